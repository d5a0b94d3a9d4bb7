"""Checks a run before anything starts: its models, files, labels and captions exist and fit.

It loads no weights. A classifier whose labels only the loaded model knows is checked when the run begins.
"""

from __future__ import annotations

import math

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.candidates import written
from c2b_ray.audits.failures.labelled import CLUSTER_FIELD, FIELD, check_images
from c2b_ray.audits.failures.labels import ancestry_of, baselines, decider, with_labels
from c2b_ray.audits.failures.search import BASELINE_SHARE
from c2b_ray.audits.kit.backend import check_via
from c2b_ray.audits.kit.specs import check_specs
from c2b_ray.errors import ConfigError
from c2b_ray.models import catalog
from c2b_ray.storage.labelled import LabelledTable

LEAST_OF_A_LABEL = 2
"""Images of each label's bare prompt: one to describe, one among which to look for failures."""


def checked(config: FailuresConfig, via: str) -> FailuresConfig:
    """Checks all that can be checked of the config, and returns it with its labels named."""
    check_via(via)
    check_specs(config)
    config = with_labels(config)
    check(config)
    return config


def check(config: FailuresConfig) -> None:
    """Raises what the run itself would raise, before anything is started or written."""
    baselines(config)
    _check_budget(config)
    for text in config.captions:
        written(text, config.labels, "file", "captions")
    ancestry = ancestry_of(config)
    for name, spec in config.specs.items():
        known = catalog.describe("classifier", spec)
        if known is not None:
            decider(config, name, known, ancestry)
    if config.generalise is not None and config.generalise.index is not None:
        catalog.describe("index", config.generalise.index)
    if config.labelled is not None:
        LabelledTable(config.labelled, "labelled")
    if config.images.labelled is not None:
        labelled = config.images.labelled
        images = LabelledTable(labelled.table, FIELD, labelled.columns)
        if labelled.cluster is not None:
            images.clusters(labelled.cluster, CLUSTER_FIELD)
        check_images(images, config)


def _check_budget(config: FailuresConfig) -> None:
    """Raises ConfigError where the draws do not suffice for a few images of each label: the run would draw more."""
    draws, discovery, labels = config.budget.draws, config.budget.discovery, len(config.labels)
    if config.images.generate is None or int(int(draws * discovery) * BASELINE_SHARE) >= LEAST_OF_A_LABEL * labels:
        return
    needed = math.ceil(math.ceil(LEAST_OF_A_LABEL * labels / BASELINE_SHARE) / discovery)
    raise ConfigError(
        "budget.draws", f"{draws:,} images are too few for {labels:,} labels: give at least {needed:,}, or fewer labels"
    )
