"""One pass over images that are all to be classified: each is read where it lies, looked at, decoded and answered about
once.

    numbers of rows → read, hash, fingerprint, decode, shape → logits → predictions, and the images

It joins `steps.look` with a source and the shapes of models. Processes without a model do all but the logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from c2b_ray.models.pixels.shape import shaped
from c2b_ray.pipelines.images import CLASSIFY, Contestant, OnProgress, loaded, with_prediction_ids
from c2b_ray.pipelines.numbered import numbered
from c2b_ray.pipelines.outputs import Also
from c2b_ray.pipelines.preparing import usable
from c2b_ray.pipelines.stage import Runner, StageResult
from c2b_ray.roles import Shape
from c2b_ray.schemas import IMAGES
from c2b_ray.schemas.path import PLACED_IMAGES
from c2b_ray.steps import draw
from c2b_ray.steps.in_place import Load, in_place
from c2b_ray.steps.look import look, predict_looked_at
from c2b_ray.steps.prepared import View


@dataclass(frozen=True)
class Looking:
    """Reads rows where they lie and looks at them, in any process (`steps.look.look`). `load`: opens their source."""

    load: Load
    shapes: tuple[Shape, ...]
    keep: bool
    with_files: bool

    def __call__(self, rows: pa.Table) -> pa.Table:
        found = in_place(self.load).fetched(rows["row"].to_pylist())
        return look(rows, found, [View(shape, shaped) for shape in self.shapes], self.keep, self.with_files)


@dataclass(frozen=True)
class Places:
    """Where a pass writes: `images` and `predictions` are directories of parts. `keep`: whether images hold bytes."""

    images: str
    predictions: str
    keep: bool = False


def look_and_classify(
    runner: Runner,
    rows: tuple[draw.Rows, str],
    source: Load,
    classifiers: Sequence[Contestant],
    to: Places,
    on_progress: OnProgress,
) -> StageResult:
    """Writes the images of `rows` of a source and all classifiers' predictions of them.

    `rows`: their numbers, and the source's revision, which the images' ids contain.
    """
    questions = [one.question for one in classifiers]
    numbers, revision = rows
    asked = numbered(numbers, revision, "prediction_id", partial(with_prediction_ids, questions=questions))
    total = len(numbers) * len(classifiers)
    shapes, all_shaped = usable(one.shape for one in classifiers)
    return runner.run(
        replace(asked, total=total),
        predict_looked_at,
        partial(loaded, classifiers),
        to.predictions,
        id_column="prediction_id",
        config=replace(CLASSIFY, total=total),
        on_progress=on_progress,
        prepare=Looking(source, shapes, to.keep, not all_shaped),
        also=Also(to.images, IMAGES if to.keep else PLACED_IMAGES, "image_id"),
    )
