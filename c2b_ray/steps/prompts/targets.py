"""The targets that prompts are searched for: a value of an attribute, or of several attributes at once.

It knows names, and the judge's questions about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol

from c2b_ray.roles import Question
from c2b_ray.steps.prompts.leaks import Leaks, leaks_of

AND = " + "


class About(Protocol):
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


def targets_of(attributes: Mapping[str, About], intersections: Iterable[Sequence[str]]) -> list[Target]:
    """Returns every value that is searched for, then every pair of values of an intersection."""
    single = [Target((name,), (value,)) for name, about in attributes.items() for value in _wanted(about)]
    crossed = [
        Target(tuple(names), values)
        for names in intersections
        for values in product(*(_wanted(attributes[name]) for name in names))
    ]
    return [*single, *crossed]


def _wanted(about: About) -> Sequence[str]:
    return about.targets or about.values


def question_of(name: str, about: About) -> Question:
    """Returns the judge's question about an image."""
    texts = None if about.texts is None else tuple(about.texts[value] for value in about.values)
    return Question(about.question or f"What is the {name} in this image?", tuple(about.values), texts)


def leaks_of_target(target: Target, attributes: Mapping[str, About]) -> Leaks:
    """Returns the names of any value of the target's attributes: a prompt that names another value reveals the
    attribute too."""
    names = [value for name in target.attributes for value in attributes[name].values]
    synonyms = {value: words for name in target.attributes for value, words in attributes[name].synonyms.items()}
    return leaks_of(names, synonyms)
