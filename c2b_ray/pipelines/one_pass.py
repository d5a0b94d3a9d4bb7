"""One pass over images that are all to be classified: each is read where it lies, looked at, decoded and answered about
once.

    numbers of rows → read, hash, fingerprint, decode, shape → logits → predictions, and the images

It joins `steps.look` with a source and the shapes of models. Processes without a model do all but the logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.pipelines.images import CLASSIFY, Contestant, OnProgress, loaded, with_prediction_ids
from c2b_ray.pipelines.numbered import numbered
from c2b_ray.pipelines.outputs import Also
from c2b_ray.pipelines.preparing import usable
from c2b_ray.pipelines.stage import Runner, StageResult
from c2b_ray.schemas import IMAGES
from c2b_ray.schemas.path import PLACED_IMAGES
from c2b_ray.steps import draw
from c2b_ray.steps.decode import BATCH_PIXELS
from c2b_ray.steps.in_place import Load
from c2b_ray.steps.look import FILE, Others, look
from c2b_ray.steps.predict import LoadedClassifier, predict_all


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
    views, every = usable(one.shape for one in classifiers)
    others: Others = "none" if every else "files" if any(one.takes_files for one in classifiers) else "decoded"
    return runner.run(
        replace(asked, total=total),
        _predicted,
        partial(loaded, classifiers),
        to.predictions,
        id_column="prediction_id",
        config=replace(CLASSIFY, total=total),
        on_progress=on_progress,
        prepare=partial(look, load=source, views=views, keep=to.keep, others=others),
        also=Also(to.images, IMAGES if to.keep else PLACED_IMAGES, "image_id"),
    )


def _predicted(images: pa.Table, classifiers: Sequence[LoadedClassifier]) -> pa.Table:
    return pa.concat_tables([predict_all(some.drop_columns(["bytes"]), classifiers) for some in _in_memory(images)])


def _in_memory(images: pa.Table) -> Iterator[pa.Table]:
    """Yields the images, as many at a time as models may decode at once."""
    first = 0
    if FILE in images.column_names:
        undecoded = pc.if_else(pc.is_valid(images[FILE]), images["pixels"], 0)
        pixels = pc.fill_null(undecoded, 0).to_numpy().astype(np.int64)
        for row in range(1, images.num_rows):
            if pixels[first : row + 1].sum() > BATCH_PIXELS:
                yield images.slice(first, row - first)
                first = row
    yield images.slice(first)
