"""task → proposals: which attributes of an image might matter for each class.

A language model is asked once per class (C2B, CVPR 2025, Eq. 2); its replies are checked, normalised and merged with
the user's own hypotheses. Replies that cannot be used are kept as rows. It does not know which model answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from jsonschema import Draft202012Validator

from c2b_ray import prompts
from c2b_ray.errors import ReplyError
from c2b_ray.roles import ChatReply, ChatRequest, LanguageModel
from c2b_ray.schemas import PROPOSALS, REJECTED, content_id, seed_of
from c2b_ray.steps.replies import PROPOSALS_SCHEMA

TEMPERATURE, TOP_P = 0.6, 0.9  # OpenBias's; C2B states neither
MAX_TOKENS = 700
OVERLAP = 0.75  # OpenBias: attributes whose value sets overlap this much (of either set) are one
TRIES = 3


@dataclass(frozen=True)
class Hypothesis:
    """One attribute of a class with the values to compare, and the names that were merged into it."""

    attribute: str
    bias_classes: tuple[str, ...]
    source: str
    merged_from: tuple[str, ...]


def propose(
    task: str,
    classes: Sequence[str],
    language_model: LanguageModel | None,
    given: Mapping[str, Sequence[str]] | None,
    seed: int,
) -> tuple[pa.Table, pa.Table]:
    """Tables of `schemas.PROPOSALS` and `schemas.REJECTED`.

    Given hypotheses join the model's, or stand alone where there is no model. A class whose replies all fail is left
    with the given ones; its replies are in the second table.
    """
    asked, rejected = ({}, []) if language_model is None else _ask(task, classes, language_model, seed)
    own = [Hypothesis(name, tuple(values), "user", (name,)) for name, values in (given or {}).items()]
    rows = []
    for target_class in classes:
        for hypothesis in merge([*own, *asked.get(target_class, [])]):
            parts = (target_class, hypothesis.attribute, list(hypothesis.bias_classes))
            rows.append(
                {
                    "proposal_id": content_id("propose", *parts),
                    "target_class": target_class,
                    "attribute": hypothesis.attribute,
                    "bias_classes": list(hypothesis.bias_classes),
                    "source": hypothesis.source,
                    "merged_from": list(hypothesis.merged_from),
                }
            )
    return pa.Table.from_pylist(rows, PROPOSALS), pa.Table.from_pylist(rejected, REJECTED)


def _ask(
    task: str, classes: Sequence[str], language_model: LanguageModel, seed: int
) -> tuple[dict[str, list[Hypothesis]], list[dict[str, str]]]:
    found: dict[str, list[Hypothesis]] = {}
    rejected: list[dict[str, str]] = []
    for attempt in range(TRIES):
        open_classes = [c for c in classes if c not in found]
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
                found[target_class] = _hypotheses(parse_reply(reply, PROPOSALS_SCHEMA))
            except ReplyError as error:
                rejected.append({"step": "propose", "about": target_class, "reply": error.reply, "reason": str(error)})
    return found, rejected


def parse_reply(reply: ChatReply, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object of a reply. ReplyError says what is wrong with it."""
    if reply.error:
        raise ReplyError(reply.error, reply.text)
    if not reply.text.strip():
        raise ReplyError("empty reply", reply.text)
    try:
        data = json.loads(_without_fence(reply.text))
    except ValueError as error:
        raise ReplyError(f"not JSON: {error}", reply.text) from error
    problem = next(iter(sorted(Draft202012Validator(dict(schema)).iter_errors(data), key=lambda e: list(e.path))), None)
    if problem is not None:
        place = "/".join(str(p) for p in problem.path) or "the whole"
        raise ReplyError(f"JSON of another form, at {place}: {problem.message[:200]}", reply.text)
    return dict(data)


def _without_fence(text: str) -> str:
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text[3:-3].removeprefix("json")
    return text


def _hypotheses(data: Mapping[str, Any]) -> list[Hypothesis]:
    return [
        Hypothesis(item["name"], tuple(item["values"]), "language_model", (item["name"],))
        for item in data["attributes"]
    ]


def normalise(name: str) -> str:
    """Lower case, single spaces, no quotes or closing punctuation: the form in which names are compared."""
    return " ".join(name.lower().replace("_", " ").strip(" .,;:'\"").split())


def merge(hypotheses: Iterable[Hypothesis]) -> list[Hypothesis]:
    """Normalised, and merged where the name is the same or the values overlap by `OVERLAP` of either set.

    The first name and its values' order win, so that what a user gave keeps its words. Attributes with fewer than two
    values are dropped: φ compares.
    """
    merged: list[Hypothesis] = []
    for raw in hypotheses:
        values = tuple(dict.fromkeys(v for v in map(normalise, raw.bias_classes) if v))
        name = normalise(raw.attribute)
        if not name or len(values) < 2:
            continue
        new = Hypothesis(name, values, raw.source, (name,))
        twin = next((i for i, old in enumerate(merged) if _same(old, new)), None)
        if twin is None:
            merged.append(new)
        else:
            merged[twin] = _joined(merged[twin], new)
    return merged


def _same(a: Hypothesis, b: Hypothesis) -> bool:
    if a.attribute == b.attribute:
        return True
    shared = len(set(a.bias_classes) & set(b.bias_classes))
    return shared / min(len(a.bias_classes), len(b.bias_classes)) >= OVERLAP


def _joined(first: Hypothesis, second: Hypothesis) -> Hypothesis:
    # A user's list of values is complete as it stands; two replies of a model add to each other.
    values = first.bias_classes
    if first.source != "user":
        values = tuple(dict.fromkeys([*values, *second.bias_classes]))
    source = first.source if second.source in first.source else f"{first.source}+{second.source}"
    names = tuple(dict.fromkeys([*first.merged_from, *second.merged_from]))
    return Hypothesis(first.attribute, values, source, names)
