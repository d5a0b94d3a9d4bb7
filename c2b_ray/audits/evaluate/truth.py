"""The ground truth of an evaluation: its labelled images as a table, and which of them each classifier answers right.

The answers are those of an audit of these images, whose run is below the evaluation's directory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.audit import audit
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.evaluate.config import EvaluateConfig, WorldTruth
from c2b_ray.audits.evaluate.sources import Annotated, celeba, imagenet_x
from c2b_ray.audits.evaluate.steps.matching import wording
from c2b_ray.audits.evaluate.steps.truth import (
    TARGET,
    Ints,
    Rows,
    TruthAnswers,
    TruthCell,
    cells,
    one_spelling,
    truth_biases,
)
from c2b_ray.audits.kit.session import Session
from c2b_ray.errors import ConfigError, RunError, SourceError, another_run, nearest
from c2b_ray.models import catalog
from c2b_ray.names import normalise
from c2b_ray.steps.classify import are_numbers
from c2b_ray.steps.draw import ImageIds, image_ids
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.steps.labels import check_classes, chosen, left_out, spellings
from c2b_ray.storage import files, is_remote
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.world.captions import DECOYS, PARAPHRASES, DecoyAttribute, decoy_columns
from c2b_ray.world.scenes import sample
from c2b_ray.world.table import labelled_table

IMAGENET = 1000
TABLE, RUN, FIELD = "truth_images.parquet", "truth_run", "truth.table"


@dataclass(frozen=True)
class TruthTable:
    """The location of the labelled images, the names of their columns, and further content of the annotations.

    `missing`: the number of annotated images that do not exist.
    """

    location: str
    columns: Mapping[str, str]
    names: Mapping[str, str]
    label_map: dict[str, list[int | str]] | None
    missing: int = 0


@dataclass(frozen=True)
class GroundTruth:
    """Labelled images and the answers to them. A row is a row of the table."""

    labels: pa.Table
    revision: str
    run: C2BRun
    classes: tuple[str, ...]
    cells: Mapping[TruthCell, Rows]
    right: Mapping[str, TruthAnswers]  # by classifier: which rows were answered right, and which at all
    names: Mapping[str, str]
    pictures: Ints  # by row, the same number for all copies of a picture
    decoys: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Image id → row."""
        ids = image_ids(np.arange(self.labels.num_rows), self.revision)
        return {image: row for row, image in enumerate(ids.to_pylist())}

    def biases(self, tau: float, alpha: float) -> pa.Table:
        return truth_biases(self.cells, self.right, tau, alpha, self.names, self.pictures)

    def visible(self) -> dict[TruthCell, Rows]:
        """Returns the cells of attributes that images show: those of planted decoys are left out."""
        return {cell: rows for cell, rows in self.cells.items() if cell[1] not in self.decoys}

    def said(self) -> dict[tuple[str, str], str]:
        """Returns the name of each (attribute, value) in captions."""
        return {(a, v): wording(a, v).texts[0] for _, a, v in self.cells}

    def wanted(self, most: int | None, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns rows of the classes, at most `most` of each, drawn at random."""
        targets = np.array(self.labels[TARGET].to_pylist(), object)
        rows = [np.flatnonzero(targets == name) for name in self.classes]
        if most is not None:
            random = np.random.default_rng(seed)
            rows = [np.sort(random.permutation(rows_of_class)[:most]) for rows_of_class in rows]
        return np.concatenate([np.zeros(0, np.int64), *rows])


def truth_table(config: EvaluateConfig, out: str) -> TruthTable:
    """Returns the labelled images of the config, written to `out` where they are annotations or scenes."""
    truth, label_map = config.truth, config.label_map
    if truth.table is not None:
        columns = {} if truth.columns is None else truth.columns.model_dump(exclude_none=True)
        return TruthTable(truth.table, columns, config.names, _mapped(label_map))
    path = f"{out}/{TABLE}"
    if truth.world is not None:
        if not files.exists(path):
            files.write_table(path, world_table(truth.world))
        return TruthTable(path, {}, {**PARAPHRASES, **config.names}, _mapped(label_map))
    annotated = _annotated(config)
    if files.exists(path):
        if not annotated.written(Path(path)):
            raise RunError(
                f"{out}: the annotations or images are others now than it measured",
                remedy=another_run("to evaluate them as they are", "put the former files back"),
            )
    else:
        if is_remote(out):
            raise ConfigError("--out", f"{out}: annotations are gathered into a local directory; name one")
        annotated.write(Path(path))
    if config.truth.imagenet_x is not None and not isinstance(label_map, dict):
        _check_imagenet(config)
    return TruthTable(path, {}, config.names, _mapped(label_map) or annotated.label_map or None, annotated.missing)


def _check_imagenet(config: EvaluateConfig) -> None:
    """Raises ConfigError for a classifier whose labels cannot be in ImageNet's order, in which classes are counted."""
    for name, spec in config.specs.items():
        description = catalog.describe("classifier", spec)
        if (
            description is not None
            and description.labels
            and not are_numbers(description.labels)
            and len(description.labels) != IMAGENET
        ):
            raise ConfigError(
                f"classifier.{name}",
                f"{spec} has {len(description.labels)} labels, and ImageNet-X counts {IMAGENET:,} classes: give "
                "`label_map`, or for a table of predictions ?labels=PATH with all labels in ImageNet's order",
            )


def _mapped(label_map: Any) -> dict[str, list[int | str]] | None:
    return label_map if isinstance(label_map, dict) else None


def _annotated(config: EvaluateConfig) -> Annotated:
    if config.truth.celeba is not None:
        return celeba(config.truth.celeba, config.seed)
    assert config.truth.imagenet_x is not None
    return imagenet_x(config.truth.imagenet_x, config.seed)


def world_table(truth: WorldTruth) -> pa.Table:
    """Returns scenes as a labelled table, with a column for each decoy."""
    scenes = sample(truth.scenes, truth.seed)
    table = labelled_table(scenes, f"scene-{truth.seed}")
    try:
        columns = decoy_columns(scenes, truth.seed, planted(truth))
    except ValueError as error:
        raise ConfigError("truth.world.planted", str(error)) from error
    for name, column in columns.items():
        if name in table.column_names:
            raise ConfigError("truth.world.planted", f"{name!r} is a column of scenes already")
        table = table.append_column(name, column)
    return table


def planted(truth: WorldTruth | None) -> tuple[DecoyAttribute, ...]:
    if truth is None:
        return ()
    if truth.planted:
        return tuple(DecoyAttribute(**decoy.model_dump()) for decoy in truth.planted)
    return DECOYS if truth.decoys else ()


def ground_truth(config: EvaluateConfig, table: TruthTable, out: str, session: Session) -> GroundTruth:
    """Returns the ground truth. Each classifier answers every image that it has not answered yet."""
    read = LabelledTable(table.location, FIELD, table.columns)
    labels = read.labels
    classes = _classes(config, labels, table.location)
    check_classes(labels, classes, FIELD)
    attributes = chosen(labels, None, FIELD)
    labels = one_spelling(labels, [TARGET, *attributes])
    columns = {"columns": dict(table.columns)} if table.columns else {}
    run = audit(
        {
            "task": config.task,
            "classes": classes,
            "classifier": config.classifier,
            "images": {"source": "labelled", "table": table.location} | columns,
            "attributes": attributes,
            "label_map": table.label_map,
            "right": config.right,
            "tau": config.tau,
            "alpha": config.alpha,
            "seed": config.seed,
        },
        f"{out}/{RUN}",
        session.via,
        session.listener,
        session.placement,
    )
    truth_cells = cells(labels, list(attributes), classes, config.least)
    if not truth_cells:
        raise SourceError(
            f"{table.location}: no class has {config.least} images with a value and as many without it; lower `least`, "
            "or give more images",
            location=table.location,
        )
    right = _right(run, labels, read.revision, list(config.specs))
    decoys = frozenset(decoy.name for decoy in planted(config.truth.world))
    pictures = _pictures(run, labels.num_rows, read.revision)
    answers = (truth_cells, right, table.names, pictures, decoys, _notes(read.labels, pictures))
    return GroundTruth(labels, read.revision, run, tuple(classes), *answers)


def _pictures(run: C2BRun, rows: int, revision: str) -> Ints:
    return Distinct(run.read("images", DISTINCT_COLUMNS)).pictures(ImageIds(image_ids(np.arange(rows), revision)))


def _notes(labels: pa.Table, pictures: Ints) -> tuple[str, ...]:
    notes = [f"The column {name} is no attribute: {why}." for name, why in left_out(labels).items()]
    if copies := len(pictures) - len(np.unique(pictures)):
        sentence = f"{copies:,} of {len(pictures):,} images are copies of others"
        notes.append(f"{sentence}: biases of the ground truth count each picture once.")
    return tuple(notes)


def _classes(config: EvaluateConfig, labels: pa.Table, location: str) -> list[str]:
    spelling_of = spellings(labels[TARGET])
    if config.classes is None:
        return sorted(spelling_of.values())
    for name in config.classes:
        if normalise(name) not in spelling_of:
            raise ConfigError("classes", f"{location} has no images of {name!r}; {nearest(name, spelling_of.values())}")
    return [spelling_of[normalise(name)] for name in config.classes]


def _right(run: C2BRun, labels: pa.Table, revision: str, classifiers: Sequence[str]) -> dict[str, TruthAnswers]:
    ids = image_ids(np.arange(labels.num_rows), revision).to_pylist()
    row_of = {image: row for row, image in enumerate(ids)}
    targets = labels[TARGET].to_pylist()
    result = {name: (np.zeros(len(ids), bool), np.zeros(len(ids), bool)) for name in classifiers}
    columns = ["image_id", "predicted_class", "answered", "error"]
    for answer in run.predictions_of(columns).to_pylist():
        row = row_of.get(answer["image_id"])
        if row is None or answer["error"] is not None or answer["classifier"] not in result:
            continue
        ok, is_answered = result[answer["classifier"]]
        is_answered[row] = True
        answered = answer["answered"] if answer["answered"] is not None else [answer["predicted_class"]]
        ok[row] = targets[row] in answered
    return result
