"""The stages in which models look at labelled images: each image is read where it lies, and asked about once.

It joins `steps.observe` with rows of a source; reading, writing and resuming are left to `stage`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.audits.c2b.hypotheses.derived import OfClasses
from c2b_ray.audits.c2b.run import C2BRun, check_unchanged
from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.numbered import numbered
from c2b_ray.engine.stage import Runner, StageConfig
from c2b_ray.errors import SourceError
from c2b_ray.steps.draw import image_ids, wanted
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.observe import with_files
from c2b_ray.tables import content_id

LEAST = 0.5
"""The least share of the images that a model must say something of."""


@dataclass(frozen=True)
class Looked:
    """What a model looks at: the images `of` the audit's classes, in a source of this `revision`, opened by `load`."""

    of: OfClasses
    revision: str
    load: Load

    @property
    def rows(self) -> NDArray[np.int64]:
        return self.of.rows


@dataclass(frozen=True)
class Look:
    """How a model is asked. `table`: of the run, where its answers are written; `asked`: class → what makes an answer
    another one, such as the model's revision and its questions; `step`, `role`, `config`: of the stage."""

    table: str
    asked: Mapping[str, Sequence[Any]]
    step: Callable[[pa.Table, Any], pa.Table]
    role: Callable[[], Any]
    config: StageConfig


def observe(run: C2BRun, runner: Runner, looked: Looked, look: Look, on_progress: OnProgress) -> pa.Table:
    """Has a model look at all images of the audit's classes; returns what it says, by ascending row.

    Raises SourceError where it says nothing of more than half of them.
    """
    rows, revision, load = looked.rows, looked.revision, looked.load
    check_unchanged(run, partial(wanted, rows, revision), load, runner, look.table)
    run.begin_writing()
    digests = [content_id("asked", name, *look.asked[name]) for name in looked.of.classes]
    places = looked.of.places.astype(np.min_scalar_type(-len(digests)))
    name_rows = partial(_named, classes=looked.of.classes, digests=digests, places=places)
    runner.run(
        replace(numbered(rows, revision, "observation_id", name_rows), total=len(rows)),
        look.step,
        look.role,
        run.location(look.table),
        id_column="observation_id",
        config=replace(look.config, total=len(rows)),
        on_progress=on_progress,
        prepare=partial(with_files, load=load),
    )
    said = pa.concat_tables(_said(run, look, looked, digests))
    errors = said["error"].drop_null()
    if len(errors) > LEAST * said.num_rows:
        raise SourceError(
            f"{run.path}: of {len(errors):,} of {said.num_rows:,} images {look.table} say nothing; the first reason: "
            f"{errors[0]}. Mend the cause, delete {run.location(look.table)} and run the audit again"
        )
    return said.filter(pc.is_null(said["error"])).sort_by("row")


def _named(
    rows: pa.Table, classes: Sequence[str], digests: Sequence[str], places: NDArray[np.signedinteger[Any]]
) -> pa.Table:
    of_rows = places[rows["row"].to_numpy()].tolist()
    ids = [
        content_id("observe", image, digests[class_number])
        for image, class_number in zip(rows["image_id"].to_pylist(), of_rows, strict=True)
    ]
    rows = rows.append_column("observation_id", pa.array(ids, pa.string()))
    return rows.append_column(
        "target_class", pa.array([classes[class_number] for class_number in of_rows], pa.string())
    )


def _said(run: C2BRun, look: Look, looked: Looked, digests: Sequence[str]) -> Iterator[pa.Table]:
    """Yields the answers to these questions, a part at a time. A run that resumes with other questions, or on a table
    with other rows, holds the former answers too."""
    for part in run.each(look.table, look.config.schema.names):
        rows = part["row"].to_numpy()
        is_of_class = (rows < len(looked.of.places)) & (
            looked.of.places[np.minimum(rows, len(looked.of.places) - 1)] >= 0
        )
        part = part.filter(pa.array(is_of_class))
        ids = image_ids(part["row"].to_numpy(), looked.revision)
        expected = [
            content_id("observe", image, digests[class_number])
            for image, class_number in zip(
                ids.to_pylist(), looked.of.places[part["row"].to_numpy()].tolist(), strict=True
            )
        ]
        yield part.filter(pc.equal(part["observation_id"], pa.array(expected, pa.string())))
