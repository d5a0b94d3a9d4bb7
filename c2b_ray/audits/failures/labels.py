"""The labels of a run: in the classifiers' label spaces, in the hierarchy, and in baseline captions.

It reads models' descriptions, and loads only models that have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.candidates import Candidate, Hierarchy
from c2b_ray.audits.failures.discovery.rounds import AnswerRules, Truth, check_rule, needs_parents
from c2b_ray.audits.failures.discovery.rounds_stage import DiscoveryClassifier
from c2b_ray.audits.failures.discovery.sentences import baseline, check_prompt
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.models import model_row, warn_of_assumptions
from c2b_ray.audits.kit.session import Steps
from c2b_ray.config.hierarchy import Ancestry, read_hierarchy
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.roles import Description
from c2b_ray.steps.classify import classification


def with_labels(config: FailuresConfig) -> FailuresConfig:
    """Returns the config with its labels named, where it asks for all of them."""
    if config.labels:
        return config
    if isinstance(config.label_map, dict):
        return config.model_copy(update={"labels": list(config.label_map)})
    spec = next(iter(config.specs.values()))
    labels = list(dict.fromkeys(catalog.described("classifier", spec).labels))
    return config.model_copy(update={"labels": labels})


def ancestry_of(config: FailuresConfig) -> Ancestry | None:
    return None if config.hierarchy is None else read_hierarchy(config.hierarchy)


def decider(config: FailuresConfig, name: str, description: Description, ancestry: Ancestry | None) -> AnswerRules:
    """Returns what decides whether an answer of a classifier is a failure. ConfigError where the classifier lacks one
    of the run's labels, or where no answer could fail by the run's rule."""
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    groups = classification(name, description, config.labels, label_map, field="labels").labels_of_class
    names = list(description.labels)
    for label, positions in zip(config.labels, groups, strict=True):
        for position in positions:
            names[position] = label
    hierarchy = None if ancestry is None else Hierarchy(ancestry, description.labels)
    truths = {
        label: _truth(config, positions, len(names), hierarchy)
        for label, positions in zip(config.labels, groups, strict=True)
    }
    for label, truth in truths.items():
        check_rule(config.rule, truth, label)
    _check_targets(config, name, names)
    return AnswerRules(
        name, description.revision, tuple(names), truths, config.rule, config.confidence, config.true_below
    )


def _truth(config: FailuresConfig, positions: Sequence[int], labels: int, hierarchy: Hierarchy | None) -> Truth:
    members = np.zeros(labels, bool)
    members[list(positions)] = True
    if hierarchy is None or not needs_parents(config.rule):
        return Truth(members)
    return Truth(members, hierarchy.kin(positions))


def _check_targets(config: FailuresConfig, classifier: str, names: Sequence[str]) -> None:
    for label, targets in (config.targets or {}).items():
        for target in targets:
            if target not in names:
                raise ConfigError(f"targets.{label}", f"{classifier} has no label {target!r}")
            if target == label:
                raise ConfigError(f"targets.{label}", "a label taken for itself is no failure")


def contenders(config: FailuresConfig, models: Backend) -> tuple[DiscoveryClassifier, ...]:
    """The classifiers of a run, in the order of its config."""
    ancestry = ancestry_of(config)
    return tuple(
        DiscoveryClassifier(
            models.classifier(spec), decider(config, name, models.describe("classifier", spec), ancestry)
        )
        for name, spec in config.specs.items()
    )


def noted_classifiers(config: FailuresConfig, models: Backend, steps: Steps) -> dict[str, dict[str, Any]]:
    """Returns the manifest's entries of a run's classifiers, and warns of their assumed settings."""
    descriptions = {name: models.describe("classifier", spec) for name, spec in config.specs.items()}
    for name, description in descriptions.items():
        warn_of_assumptions(steps, name, description)
    return {f"classifier {name}": model_row(spec, descriptions[name]) for name, spec in config.specs.items()}


def baselines(config: FailuresConfig) -> dict[str, Candidate]:
    """Returns the baseline caption of each label. ConfigError where the hierarchy lacks one of them."""
    check_prompt(config.prompt)
    ancestry = ancestry_of(config)
    hierarchy = None if ancestry is None else Hierarchy(ancestry)
    label_map = config.label_map if isinstance(config.label_map, dict) else {}
    return {
        label: Candidate(
            label, baseline(config.prompt, label, _parent(hierarchy, label, label_map.get(label, []))), (), "baseline"
        )
        for label in config.labels
    }


def _parent(hierarchy: Hierarchy | None, label: str, stand_for_it: Sequence[int | str]) -> str | None:
    """Returns the word that follows a label in its prompt. For a user's label ("cat") it is the common parent of the
    classifier's labels that it maps to. ConfigError where the hierarchy has neither."""
    if hierarchy is None:
        return None
    if label in hierarchy or not stand_for_it:
        return hierarchy.parent_name(label)
    parents = {hierarchy.parent_name(name) for name in stand_for_it if isinstance(name, str) and name in hierarchy}
    return parents.pop() if len(parents) == 1 else None
