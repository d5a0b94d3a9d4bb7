"""Searches as rows: which value, on which subject, with which λ; and the result of the search of a row.

Each row is searched on its own, so that searches run side by side and resume. It knows roles and tables, not where
models run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

import pyarrow as pa

from c2b_ray import prompts
from c2b_ray.audits.prompts.steps.search import Counted, Guide, ScoredPrompt, Search, SearchSettings
from c2b_ray.audits.prompts.steps.words import LeakWords, leaks_of
from c2b_ray.roles import Question, ReplyContinuer
from c2b_ray.tables import content_id, seed_of
from c2b_ray.tables.prompts import SEARCHES

# The targets that prompts are searched for: a value of an attribute, or of several attributes at once.


AND = " + "


class AttributeTask(Protocol):
    """An attribute as in a config."""

    @property
    def values(self) -> Sequence[str]: ...

    @property
    def targets(self) -> Sequence[str] | None: ...

    @property
    def question(self) -> str | None: ...

    @property
    def texts(self) -> Mapping[str, str] | None: ...

    @property
    def synonyms(self) -> Mapping[str, Sequence[str]]: ...


@dataclass(frozen=True)
class Target:
    """`attributes` and `values`: one of each, or as many as an intersection has."""

    attributes: tuple[str, ...]
    values: tuple[str, ...]

    @property
    def attribute(self) -> str:
        return AND.join(self.attributes)

    @property
    def value(self) -> str:
        return AND.join(self.values)

    @property
    def words(self) -> tuple[str, str]:
        """Attribute and value, as worded in an instruction."""
        return " and ".join(self.attributes), " and ".join(self.values)


def targets_of(attributes: Mapping[str, AttributeTask], intersections: Iterable[Sequence[str]]) -> list[Target]:
    """Returns every value that is searched for, then every pair of values of an intersection."""
    single = [Target((name,), (value,)) for name, task in attributes.items() for value in _wanted(task)]
    crossed = [
        Target(tuple(names), values)
        for names in intersections
        for values in product(*(_wanted(attributes[name]) for name in names))
    ]
    return [*single, *crossed]


def _wanted(task: AttributeTask) -> Sequence[str]:
    return task.targets or task.values


def question_of(name: str, task: AttributeTask) -> Question:
    """Returns the judge's question about an image."""
    texts = None if task.texts is None else tuple(task.texts[value] for value in task.values)
    return Question(task.question or f"What is the {name} in this image?", tuple(task.values), texts)


def leaks_of_target(target: Target, attributes: Mapping[str, AttributeTask]) -> LeakWords:
    """Returns the names of any value of the target's attributes: a prompt that names another value reveals the
    attribute too."""
    names = [value for name in target.attributes for value in attributes[name].values]
    synonyms = {value: words for name in target.attributes for value, words in attributes[name].synonyms.items()}
    return leaks_of(names, synonyms)


NEUTRAL = "image_prompt"
ORDERS = pa.schema(
    [
        pa.field("search_id", pa.string(), nullable=False),
        pa.field("target", pa.int32(), nullable=False),
        pa.field("method", pa.string(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class SearchPlan:
    """The settings that all searches of one generator share. `generator`: its name in tables. `identity`: everything
    else that their rows depend on."""

    generator: str
    targets: tuple[Target, ...]
    leaks: tuple[LeakWords, ...]
    settings: SearchSettings
    identity: str
    seed: int


@dataclass(frozen=True)
class SearchModels:
    """The language model, and the guide of each target by its number."""

    language_model: ReplyContinuer
    guide: Callable[[Target], Guide]


def search_tasks(plan: SearchPlan, subjects: Sequence[str], weights: Mapping[str, float], count: int) -> pa.Table:
    """Returns `count` searches of each target and λ, the subjects in turn. `weights`: the method's name → λ.

    A subject that names the target's value is not searched for, for no prompt about it could be kept.
    The seed of a search depends on its target, subject and number and not on λ or the generator, so that their prompts
    do not differ by the draw of the first token.
    """
    rows = []
    for number, target in enumerate(plan.targets):
        leaks = plan.leaks[number]
        usable_subjects = [s for s in subjects if not plan.settings.filtered or leaks.word(s) is None]
        for method, weight in weights.items():
            for search_number in range(count if usable_subjects else 0):
                subject = usable_subjects[search_number % len(usable_subjects)]
                seed = seed_of("prompt search", plan.seed, target.attribute, target.value, subject, search_number)
                identity = content_id(
                    "prompt search", plan.identity, target.attribute, target.value, weight, search_number
                )
                rows.append((content_id(identity, subject, seed), number, method, weight, subject, seed))
    return pa.Table.from_pylist([dict(zip(ORDERS.names, row, strict=True)) for row in rows], schema=ORDERS)


def search(batch: pa.Table, models: SearchModels, plan: SearchPlan) -> pa.Table:
    """Returns the prompts that each row's search finds: a table of `tables.prompts.SEARCHES`."""
    rows = []
    for order in batch.to_pylist():
        target = plan.targets[order["target"]]
        settings = replace(plan.settings, weight=order["weight"])
        guide = Counted(models.guide(target))
        prompt_search = Search(models.language_model, guide, plan.leaks[order["target"]], settings, order["seed"])
        attribute, _ = target.words
        start = models.language_model.reply_start(
            prompts.messages(NEUTRAL, subject=order["subject"], attribute=attribute)
        )
        best = prompt_search.run(start)
        fields = {
            "search_id": order["search_id"],
            "attribute": target.attribute,
            "value": target.value,
            "generator": plan.generator,
            "method": order["method"],
            "subject": order["subject"],
        }
        rows.append({**fields, **_result(best, prompt_search)})
    return pa.Table.from_pylist(rows, schema=SEARCHES)


def _result(best: Sequence[ScoredPrompt], prompt_search: Search) -> dict[str, object]:
    return {
        "prompts": [prompt.text for prompt in best],
        "log_priors": [prompt.log_prior for prompt in best],
        "bias_scores": [prompt.bias for prompt in best],
        "images_used": prompt_search.guide.images,
        "candidates": prompt_search.candidates + prompt_search.rejected,
        "rejected": prompt_search.rejected,
        "error": None if best else "no prompt came to an end without naming the value",
    }
