"""Proposes attributes of an image that might matter for each class of a task.

A language model gets one request per class (C2B, CVPR 2025, Eq. 2); its replies are checked, normalised and merged with
the user's hypotheses. Unusable replies are kept as rows. It does not know which model answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from c2b_ray import prompts
from c2b_ray.errors import ReplyError
from c2b_ray.names import normalise
from c2b_ray.roles import ChatRequest, LanguageModel, TextEncoder
from c2b_ray.steps.labels import names_class
from c2b_ray.steps.replies import PROPOSALS_SCHEMA, parse_reply
from c2b_ray.steps.synonyms import Judge, SynonymPair, key
from c2b_ray.tables import PROPOSALS, REJECTED, content_id, seed_of

TEMPERATURE, TOP_P = 0.6, 0.9  # OpenBias's; C2B states neither
MAX_TOKENS = 700
USER = "user"
OVERLAP = 0.75  # OpenBias: attributes whose value sets overlap this much (of either set) are one
TRIES = 3
CLASSES_NAMED = 40  # of a thousand, enough to see what kind they are


@dataclass(frozen=True)
class Hypothesis:
    """One attribute of a class with the values to compare, and the names that were merged into it."""

    attribute: str
    bias_classes: tuple[str, ...]
    source: str
    merged_from: tuple[str, ...]
    merged: tuple[Merge, ...] = ()


@dataclass(frozen=True)
class Merge:
    """A merge of two names and its reason: a row of `merged` in `tables.PROPOSALS`."""

    kind: str
    name: str
    into: str
    similarity: float | None
    rule: str

    def row(self) -> dict[str, object]:
        names = {"kind": self.kind, "from": self.name, "into": self.into}
        return {**names, "similarity": self.similarity, "rule": self.rule}


def propose(
    task: str,
    classes: Sequence[str],
    language_model: LanguageModel | None,
    user_attributes: Mapping[str, Sequence[str]] | None,
    seed: int,
    encoder: TextEncoder | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Returns tables of `tables.PROPOSALS` and `tables.REJECTED`.

    With an encoder, names with similar embeddings are checked for being synonyms (`synonyms`); without one, names are
    merged by spelling only. The user's attributes (`user_attributes`: name → values) are added to the language model's,
    or used alone without a model. A class for which every reply fails has only the user's; its replies are in the
    second table.
    """
    full_task = described(task, classes)
    proposed, rejected = ({}, []) if language_model is None else _ask(full_task, classes, language_model, seed)
    user_hypotheses = [
        Hypothesis(name, tuple(values), USER, (name,)) for name, values in (user_attributes or {}).items()
    ]
    merged = merge_all(
        [[*user_hypotheses, *proposed.get(name, [])] for name in classes], Judge(encoder, language_model, seed)
    )
    rows = []
    for target_class, hypotheses in zip(classes, merged, strict=True):
        for hypothesis in hypotheses:
            # Sorted: the order in which values are listed must not decide which images show them.
            parts = (target_class, hypothesis.attribute, sorted(hypothesis.bias_classes))
            rows.append(
                {
                    "proposal_id": content_id("propose", *parts),
                    "target_class": target_class,
                    "attribute": hypothesis.attribute,
                    "bias_classes": list(hypothesis.bias_classes),
                    "source": hypothesis.source,
                    "merged_from": list(hypothesis.merged_from),
                    "merged": [merge.row() for merge in hypothesis.merged],
                }
            )
    return pa.Table.from_pylist(rows, PROPOSALS), pa.Table.from_pylist(rejected, REJECTED)


def described(task: str, classes: Sequence[str]) -> str:
    """Returns the task with its classes, as in Eq. 2: the first `CLASSES_NAMED` of them, unless the task names all
    classes itself.

    They form a sentence of the task rather than a line of the prompt, as in tasks that people write.
    """
    if all(names_class(task, name) for name in classes):
        return task
    shown_classes, unlisted = list(classes[:CLASSES_NAMED]), len(classes) - CLASSES_NAMED
    class_list = ", ".join(shown_classes) + (f" and {unlisted} more" if unlisted > 0 else "")
    end = "" if task.rstrip().endswith((".", "?", "!")) else "."
    return f"{task.rstrip()}{end} Classes: {class_list}."


def _ask(
    task: str, classes: Sequence[str], language_model: LanguageModel, seed: int
) -> tuple[dict[str, list[Hypothesis]], list[dict[str, str]]]:
    result: dict[str, list[Hypothesis]] = {}
    rejected: list[dict[str, str]] = []
    for attempt in range(TRIES):
        open_classes = [c for c in classes if c not in result]
        requests = [
            ChatRequest(
                prompts.messages("propose", task=task, target_class=target_class),
                schema=PROPOSALS_SCHEMA,
                temperature=TEMPERATURE,
                top_p=TOP_P,
                max_tokens=MAX_TOKENS,
                seed=seed_of("propose", prompts.text("propose"), task, target_class, seed, attempt),
            )
            for target_class in open_classes
        ]
        for target_class, reply in zip(open_classes, language_model.chat(requests) if requests else [], strict=True):
            try:
                result[target_class] = _hypotheses(parse_reply(reply, PROPOSALS_SCHEMA))
            except ReplyError as error:
                rejected.append({"step": "propose", "about": target_class, "reply": error.reply, "reason": str(error)})
    return result, rejected


def _hypotheses(data: Mapping[str, Any]) -> list[Hypothesis]:
    return [
        Hypothesis(item["name"], tuple(item["values"]), "language_model", (item["name"],))
        for item in data["attributes"]
    ]


def merge_all(classes: Sequence[Sequence[Hypothesis]], judge: Judge) -> list[list[Hypothesis]]:
    """Returns the hypotheses of each class, normalised, with those of the same meaning merged: by name, by values that
    overlap by `OVERLAP` of either set, or as the judge decides, for attributes and then for the values within each.

    The first name and its values' order win. A user's attributes come first, keep their words and values, and are never
    merged into others. Attributes with fewer than two values are dropped, because φ compares values.
    """
    cleaned = [[new for raw in hypotheses if (new := _cleaned(raw))] for hypotheses in classes]
    values: dict[str, set[str]] = {}
    for hypothesis in (h for hypotheses in cleaned for h in hypotheses):
        values.setdefault(hypothesis.attribute, set()).update(hypothesis.bias_classes)
    names = [list(dict.fromkeys(h.attribute for h in hypotheses)) for hypotheses in cleaned]
    synonyms = judge.same(names, values)
    merged = [_by_attribute(*pair) for pair in zip(cleaned, synonyms, strict=True)]
    open_ones = [h for hypotheses in merged for h in hypotheses if not _of_user(h)]
    synonyms_of = dict(zip(map(id, open_ones), judge.same([h.bias_classes for h in open_ones]), strict=True))
    by_value = [[_by_value(h, synonyms_of.get(id(h), [])) for h in hypotheses] for hypotheses in merged]
    return [[h for h in hypotheses if len(h.bias_classes) > 1] for hypotheses in by_value]


def _cleaned(raw: Hypothesis) -> Hypothesis | None:
    values = tuple(dict.fromkeys(v for v in map(normalise, raw.bias_classes) if v))
    name = normalise(raw.attribute)
    return Hypothesis(name, values, raw.source, (name,)) if name and len(values) > 1 else None


def _of_user(hypothesis: Hypothesis) -> bool:
    return hypothesis.source.startswith(USER)


def _by_attribute(hypotheses: Sequence[Hypothesis], synonyms: Sequence[SynonymPair]) -> list[Hypothesis]:
    merged: list[Hypothesis] = []
    for new in hypotheses:
        for position, old in enumerate(merged):
            if (synonym := _why_same(old, new, synonyms)) is not None:
                merged[position] = _joined(old, new, synonym)
                break
        else:
            merged.append(new)
    return merged


def _why_same(old: Hypothesis, new: Hypothesis, synonyms: Sequence[SynonymPair]) -> SynonymPair | None:
    if new.attribute in old.merged_from:
        return SynonymPair(old.attribute, new.attribute, None, "name")
    if _of_user(old) and _of_user(new):
        return None
    for pair in synonyms:
        if new.attribute in (pair.a, pair.b) and {pair.a, pair.b} & set(old.merged_from):
            return pair
    old_values, new_values = ({key(value) for value in h.bias_classes} for h in (old, new))
    if len(old_values & new_values) / min(len(old_values), len(new_values)) >= OVERLAP:
        return SynonymPair(old.attribute, new.attribute, None, "values")
    return None


def _joined(first: Hypothesis, second: Hypothesis, synonym: SynonymPair) -> Hypothesis:
    # A user's list of values is complete as it stands; two replies of a model add to each other.
    values = first.bias_classes
    if not _of_user(first):
        values = tuple(dict.fromkeys([*values, *second.bias_classes]))
    source = first.source if second.source in first.source else f"{first.source}+{second.source}"
    names = tuple(dict.fromkeys([*first.merged_from, *second.merged_from]))
    merges = first.merged
    if synonym.rule != "name":
        merges += (Merge("attribute", second.attribute, first.attribute, synonym.similarity, synonym.rule),)
    return Hypothesis(first.attribute, values, source, names, merges)


def _by_value(hypothesis: Hypothesis, synonyms: Sequence[SynonymPair]) -> Hypothesis:
    name_of: dict[str, str] = {}
    merges = []
    for pair in synonyms:
        first, second = (name_of.get(name, name) for name in (pair.a, pair.b))
        if first != second:
            name_of |= {name: first for name, merged_name in name_of.items() if merged_name == second} | {second: first}
            merges.append(Merge("value", second, first, pair.similarity, pair.rule))
    values = tuple(dict.fromkeys(name_of.get(value, value) for value in hypothesis.bias_classes))
    return replace(hypothesis, bias_classes=values, merged=(*hypothesis.merged, *merges))
