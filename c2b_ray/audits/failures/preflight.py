"""Checks a run before anything starts: its models, files, labels and captions exist and fit.

It loads no weights. A classifier whose labels only the loaded model knows is checked when the run begins.
"""

from __future__ import annotations

from c2b_ray.audits.failures.labels import ancestry_of, baselines, decider, with_labels
from c2b_ray.audits.kit.backend import check_via
from c2b_ray.audits.kit.specs import check_specs
from c2b_ray.config.failures import FailuresConfig
from c2b_ray.models import catalog
from c2b_ray.steps.discovery.candidates import written
from c2b_ray.store.labelled import LabelledTable


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
