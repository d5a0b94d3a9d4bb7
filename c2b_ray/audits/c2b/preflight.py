"""Checks an audit before Ray starts: that its models, files, labels and classes exist and fit together.

It loads no weights: a classifier whose labels only the loaded model knows is checked when the audit begins.
"""

from __future__ import annotations

from c2b_ray.audits.c2b.deriving import attributes_of, proposals_of
from c2b_ray.audits.c2b.trying import with_trial
from c2b_ray.audits.c2b.verifying import calibration_table
from c2b_ray.audits.kit.backend import check_via
from c2b_ray.audits.kit.specs import check_specs, index_folder
from c2b_ray.audits.kit.tables_of_predictions import is_table
from c2b_ray.config import AuditConfig
from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.models import catalog
from c2b_ray.models.spec_options import UnstatedPreprocessingError
from c2b_ray.names import normalise
from c2b_ray.steps.calibrate import check_calibration
from c2b_ray.steps.intersect import pairs
from c2b_ray.steps.predict import classification
from c2b_ray.store import files
from c2b_ray.store.labelled import LabelledTable, table_opener

INDEX_MANIFEST = "manifest.json"


def check(config: AuditConfig, via: str) -> None:
    """Raises the errors that the audit itself would raise, before anything is started or written."""
    check_via(via)
    check_specs(config)
    _check_pairs(config)
    if config.images.index is not None:
        _check_index(config.images.index)
    if config.images.table is not None:
        table = table_opener(config.images.model_dump())()
        refuse_paths_outside(table)
        attributes = attributes_of(config, table)
        proposals = proposals_of(config, attributes)
        to_measure = {normalise(one.name) for one in attributes.to_measure}
        pairs(proposals, [pair for pair in config.intersections if to_measure.isdisjoint(map(normalise, pair))])
    if config.verification is not None and config.verification.calibration is not None:
        check_calibration(calibration_table(config.verification.calibration).labels, config.classes)
    if config.perturb is not None:
        _check_asked(config)
    label_map = config.label_map if isinstance(config.label_map, dict) else None
    for name, spec in config.specs.items():
        try:
            known = catalog.describe("classifier", spec)
        except UnstatedPreprocessingError as error:
            raise with_trial(error, name, spec, config) from error
        if known is not None:
            classification(name, known, config.classes, label_map, config.right)


def refuse_paths_outside(table: LabelledTable, field: str = "images.root") -> None:
    """Raises ConfigError where most images of a table lie outside the folder that they are read below: each of them
    would be an error of its row, after the run."""
    outside = table.leading_out()
    if 2 * len(outside) < len(table):
        return
    root = table.root_of(outside)
    line = f"write `root: {root}` under `images`" if root else "give the folder above them as `root` under `images`"
    below = table.root or "the table's folder"
    raise ConfigError(
        field,
        f"{len(outside):,} of {len(table):,} images do not lie below {below}, such as {outside[0]!r}; if they are "
        f"yours, {line}",
    )


def _check_asked(config: AuditConfig) -> None:
    """Raises ConfigError for a table of predictions, which holds no answers to perturbed pictures."""
    for name, spec in config.specs.items():
        if is_table(spec):
            raise ConfigError(
                "perturb",
                f"{name} is a table of predictions, which cannot be asked about a perturbed picture; name the "
                "classifier itself, or leave `perturb` out",
            )


def _check_pairs(config: AuditConfig) -> None:
    """Checks the names in pairs. Without a language model the config itself lists all attributes."""
    if config.language_model is not None or config.images.sources == ("labelled",):
        return
    known = {normalise(name) for name in config.attributes or {}}
    for pair in config.intersections:
        for name in pair:
            if normalise(name) not in known:
                raise ConfigError("intersections", f"no attribute {name!r}; {nearest(name, known)}")


def _check_index(index: str) -> None:
    directory = index_folder(index)
    if not files.exists(f"{directory}/{INDEX_MANIFEST}"):
        raise SourceError(
            f"{directory}: no index there (expected {INDEX_MANIFEST}); c2b index build makes one", location=directory
        )
