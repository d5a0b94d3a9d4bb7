"""Classifiers that the caller of an audit passes as objects: they answer in this process, and nowhere else.

It knows how an audit names them; `models.memory_classifier` loads them and defines their answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from c2b_ray.audits.kit.backend import AUTO
from c2b_ray.errors import ConfigError

if TYPE_CHECKING:
    from c2b_ray.models.memory_classifier import InMemory, MemoryClassifier, Model

HERE = "here"


def held_in_memory(
    classifier: Model | InMemory | Mapping[str, Model | InMemory] | None, labels: Sequence[str] | None, via: str
) -> dict[str, MemoryClassifier]:
    """Returns the classifiers by name, usable while the caller keeps them; empty where none was passed.

    Raises ConfigError where they would have to answer outside this process, or do not answer as classifiers do.
    """
    if classifier is None:
        if labels is not None:
            raise ConfigError("labels", "are for a classifier in memory; pass it as classifier=, or leave them out")
        return {}
    if via not in (AUTO, HERE):
        raise ConfigError("via", f"{via!r}: a classifier in memory answers in this process alone; leave via out")
    from c2b_ray.models.memory_classifier import hold

    return hold(classifier, labels)


def held_or_named(
    classifier: str | Model | InMemory | Mapping[str, str | Model | InMemory] | None,
    labels: Sequence[str] | None,
    via: str,
) -> tuple[dict[str, MemoryClassifier], str | dict[str, str] | None]:
    """Returns the classifiers that were passed as objects, as `held_in_memory` does, and the value of the config's
    `classifier`: that of the specs or objects that were passed; None where the config names its classifiers itself."""
    if isinstance(classifier, str) or (
        isinstance(classifier, Mapping) and classifier and all(isinstance(model, str) for model in classifier.values())
    ):
        held_in_memory(None, labels, via)  # refuses `labels`: a spec has its own
        return {}, classifier if isinstance(classifier, str) else {
            name: str(model) for name, model in classifier.items()
        }
    in_memory = held_in_memory(classifier, labels, via)  # type: ignore[arg-type]  # models alone
    return in_memory, specs_of(in_memory)


def specs_of(in_memory: Mapping[str, MemoryClassifier]) -> dict[str, str] | None:
    """Returns the value of the config's `classifier`: name → spec; None where the config names its classifiers
    itself."""
    return {name: classifier.spec for name, classifier in in_memory.items()} or None
