"""The stage that measures properties of images (`steps.image_properties`): each is read where it lies and decoded once.

It joins the step with rows of a source; reading, writing and resuming are left to `stage`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa

from c2b_ray.engine.images import OnProgress
from c2b_ray.engine.numbered import numbered
from c2b_ray.engine.stage import Runner, StageConfig
from c2b_ray.steps import draw
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.image_properties import measured
from c2b_ray.tables import PROPERTIES

MEASURE = StageConfig(PROPERTIES, stage="measure", rows_per_file=1024)


def measure_images(
    runner: Runner, rows: tuple[draw.Rows, str], source: Load, out: str, on_progress: OnProgress
) -> None:
    """Writes the properties of `rows` of a source, as parts of `PROPERTIES`. `rows`: their numbers, and the source's
    revision, which the images' ids contain."""
    numbers, revision = rows
    runner.run(
        numbered(numbers, revision),
        _as_prepared,
        _no_role,
        out,
        id_column="image_id",
        config=replace(MEASURE, total=len(numbers)),
        on_progress=on_progress,
        # All the work is a preparation, so that processes share it where a machine has many cores.
        prepare=partial(measured, load=source),
    )


def _as_prepared(rows: pa.Table, role: None) -> pa.Table:
    return rows


def _no_role() -> None:
    return None
