"""Checks a run before anything starts: its models, files, labels and captions exist and fit.

It loads no weights. A classifier whose labels only the loaded model knows is checked when the run begins.
"""

from __future__ import annotations

from c2b_ray.audits.failures.labels import ancestry_of, baselines, decider, with_labels
from c2b_ray.audits.kit.backend import check_via
from c2b_ray.audits.kit.specs import check_spec
from c2b_ray.config.failures import FailuresConfig
from c2b_ray.filesystems.spec_paths import paths
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


def check_specs(config: FailuresConfig) -> None:
    """Checks that each spec's scheme is known and that the files it names exist."""
    for field, role, spec in specs_of(config):
        check_spec(field, role, spec)


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


def specs_of(config: FailuresConfig) -> list[tuple[str, str, str]]:
    """Returns (field, role, spec) of each model."""
    specs = [("classifier", "classifier", spec) for spec in config.specs.values()]
    if config.images.generate is not None:
        specs.append(("images.generate.model", "image_generator", config.images.generate.model))
    roles = {
        "captioner": "captioner",
        "verifier": "captioner",
        "encoder": "encoder",
        "language_model": "language_model",
    }
    for field, role in roles.items():
        if (spec := getattr(config, field)) is not None:
            specs.append((field, role, spec))
    others = config.generalise.generators if config.generalise else ()
    return specs + [("generalise.generators", "image_generator", spec) for spec in others]


def paths_read(config: FailuresConfig) -> dict[str, str]:
    """Returns the files and folders that stages read, with their fields. On a cluster every node needs them."""
    specs = specs_of(config)
    read = {path: field for field, role, spec in specs if role != "language_model" for _, path in paths(spec)}
    if config.generalise is not None and config.generalise.index is not None:
        read[config.generalise.index] = "generalise.index"
    if config.labelled is not None:
        read[config.labelled] = "labelled"
    if config.images.labelled is not None:
        read[config.images.labelled.table] = "images.labelled.table"
    return read
