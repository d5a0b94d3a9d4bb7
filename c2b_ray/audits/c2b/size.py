"""Computes how many images an audit may look at from its config alone, which decides whether it is small.

It loads no model and calls nothing; `estimate` counts more exactly, at more cost.
"""

from __future__ import annotations

from math import prod

from c2b_ray.config import AuditConfig
from c2b_ray.config.defaults import with_defaults
from c2b_ray.names import normalise
from c2b_ray.storage.labelled import table_opener

ASSUMED_ATTRIBUTES, ASSUMED_VALUES = 7, 4
"""Assumed for each class before a language model proposes them: about what C2B's runs and ours gave."""


def most_answers(config: AuditConfig) -> int | None:
    """Returns an upper limit of the images that classifiers answer about, without reading any file; None where the
    classifier names the classes or a table has the images."""
    if config.of_all_classes:
        return None
    complete = with_defaults(config, None)
    return None if complete.images.table is not None else most_images(complete) * len(complete.specs)


def most_images(config: AuditConfig) -> int:
    """Returns an upper limit of the images that are drawn; a labelled table counts with all its rows, and a perturbed
    image with all its pictures.

    The config's `classes` must be named.
    """
    cells, per_cell = _cells(config), config.most_per_cell
    if config.images.table is not None:
        rows = len(table_opener(config.images.model_dump())())
        perturbed = 0 if config.perturb is None else len(config.classes) * config.perturb.images
        pictures = 0 if config.perturb is None else min(rows, perturbed) * config.perturb.pictures
        return pictures + (rows if per_cell is None or not config.attributes else min(rows, cells * per_cell))
    assert per_cell is not None
    total = 0
    for source in config.images.sources:
        pooled = source == "retrieve" and config.verification is not None and config.images.pool is not None
        # All images of a pool may be looked at until enough are accepted.
        looked_at = config.captions_per_cell * int(config.images.pool or 0) if pooled else 0
        total += cells * max(per_cell, looked_at)
    if config.budget is not None and config.verification is None:
        total = min(total, config.budget.images)
    return total


def _cells(config: AuditConfig) -> int:
    values = {normalise(name): len(listed) for name, listed in (config.attributes or {}).items()}
    proposed = 0 if config.language_model is None else ASSUMED_ATTRIBUTES * ASSUMED_VALUES
    pairs = sum(prod(values.get(normalise(name), ASSUMED_VALUES) for name in pair) for pair in config.intersections)
    return len(config.classes) * (sum(values.values()) + proposed + pairs)
