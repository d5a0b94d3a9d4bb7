"""The stage in which classifiers answer perturbed pictures of images that the run has.

images → rows of pictures → read, decoded, perturbed and shaped, in any process → predictions
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from c2b_ray.audits.c2b.perturbation.images import Perturbing, picture_rows, predict_pictures, with_pictures
from c2b_ray.engine.here import preparing
from c2b_ray.engine.images import AuditedClassifier, OnProgress, Selection, loaded
from c2b_ray.engine.stage import Prepare, Rows, Runner, StageConfig, StageResult
from c2b_ray.steps.classify import Classification
from c2b_ray.steps.fetch import COLUMNS, Load, completed
from c2b_ray.tables import PERTURBED_PREDICTIONS

CLASSIFY_PICTURES = StageConfig(PERTURBED_PREDICTIONS, stage="classify", rows_per_file=1024)


def classify_pictures(
    runner: Runner,
    images: Selection,
    perturbing: Perturbing,
    classifiers: Sequence[AuditedClassifier],
    out: str,
    on_progress: OnProgress,
    source: Load | None,
) -> StageResult:
    """Writes all classifiers' answers to all pictures of the selected images into Parquet parts under `out`.

    `source`: of images whose bytes are not in their parts.
    """
    questions = [classifier.question for classifier in classifiers]
    total = images.total * len(list(perturbing.each())) * len(classifiers)
    rows = partial(_rows, images=images, perturbing=perturbing, questions=questions)
    shaped = preparing(classifier.shape for classifier in classifiers)
    return runner.run(
        Rows(images.blocks, rows, total, partial(picture_ids, images, perturbing, questions)),
        predict_pictures,
        partial(loaded, classifiers),
        out,
        id_column="prediction_id",
        config=replace(CLASSIFY_PICTURES, total=total),
        on_progress=on_progress,
        prepare=partial(_prepared, load=source, perturbing=perturbing, shaped=shaped),
    )


def _rows(
    names: pa.Table, images: Selection, perturbing: Perturbing, questions: Sequence[Classification]
) -> Iterator[pa.Table]:
    for name in names["name"].to_pylist():
        yield from picture_rows(images.of(completed(images.parts.read(name, COLUMNS))), perturbing, questions)


def picture_ids(images: Selection, perturbing: Perturbing, questions: Sequence[Classification]) -> Iterator[pa.Array]:
    """Yields the ids of all answers to pictures of the selected images, some at a time."""
    for table in images.parts.each(("image_id",)):
        for rows in picture_rows(images.of(table), perturbing, questions):
            yield rows["prediction_id"].combine_chunks().flatten()


def _prepared(rows: pa.Table, load: Load | None, perturbing: Perturbing, shaped: Prepare | None) -> pa.Table:
    pictures = with_pictures(rows, load, perturbing)
    return pictures if shaped is None else shaped(pictures)
