"""The classes of an audit with `classes: all`: those of its label map, or the classifier's labels.

Labels come from descriptions; a classifier is loaded for them only if nothing else describes it. `steps.right` decides
which answers are right.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from c2b_ray.config import AuditConfig
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.names import normalise
from c2b_ray.steps.predict import NAME_LABELS, is_unnamed
from c2b_ray.store.labelled import LabelledTable


def with_classes(config: AuditConfig) -> AuditConfig:
    """Returns the config with its classes named.

    Raises ConfigError where several classifiers have different labels, or where two labels have the same spelling, so
    that no caption could tell them apart.
    """
    if not config.of_all_classes:
        return config
    if isinstance(config.label_map, dict):
        return _named(config, list(config.label_map), "the keys of `label_map`")
    specs = list(config.specs.values())
    labels = [list(catalog.described("classifier", spec).labels) for spec in specs]
    for spec, others in zip(specs[1:], labels[1:], strict=True):
        if set(others) != set(labels[0]):
            raise ConfigError(
                "classes", f"all: {specs[0]} and {spec} have different labels; list the classes, or give `label_map`"
            )
    return _named(config, labels[0], f"the labels of {specs[0]}")


def _named(config: AuditConfig, classes: Sequence[str], whose: str) -> AuditConfig:
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in classes:
        spellings[normalise(name)].append(name)
    for key, names in spellings.items():
        if not key:
            raise ConfigError("classes", f"all: {whose} hold an empty name; list the classes that are meant")
        if len(names) > 1:
            listed = " and ".join(map(repr, names[:2]))
            raise ConfigError(
                "classes",
                f"all: of {whose}, {listed} are the same name, so that nothing tells their images apart; list the "
                "classes that are meant, or give `label_map`, which may tell labels of one name apart by index",
            )
    if config.images.table is not None:
        classes = _shown(config, classes, whose)
    if config.right == "among_classes" and len(classes) < 2:
        raise ConfigError("right", f"among_classes needs two classes or more, and {whose} hold one")
    return config.model_copy(update={"classes": list(classes)})


def _shown(config: AuditConfig, classes: Sequence[str], whose: str) -> list[str]:
    """Returns the classes that a labelled table has images of: it may show a part of a large label space."""
    table = LabelledTable(str(config.images.table), columns=config.images.renamed, root=config.images.root)
    there = {normalise(name) for name in table.labels["target_class"].unique().to_pylist() if name is not None}
    shown = [name for name in classes if normalise(name) in there]
    if not shown:
        hint = f"; {NAME_LABELS}" if is_unnamed(classes) else ""
        raise ConfigError(
            "classes", f"all: no row of {config.images.table} has one of {whose} as its target_class{hint}"
        )
    return shown
