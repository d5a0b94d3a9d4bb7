"""Looks at images as they are read, once: their hash, size and fingerprint, and the pixels that models take, all from
one reading and one decoding.

    rows of a source → rows of `schemas.IMAGES`, with what models need beside them

It knows bytes, pixels and tables; it reads nothing, and imports no library of models.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from c2b_ray.roles import Pixels
from c2b_ray.steps.decode import BATCH_PIXELS
from c2b_ray.steps.draw import Fetched, Seen, images_table, looked_at
from c2b_ray.steps.duplicates import fingerprint
from c2b_ray.steps.predict import LoadedClassifier, predict_all
from c2b_ray.steps.prepared import View, shown

FILE = "file"
"""The column of encoded images, for models that take these; `bytes` are those that a run keeps."""


def look(rows: pa.Table, found: Fetched, views: Sequence[View], keep: bool, with_files: bool) -> pa.Table:
    """Returns the images of `rows` (`image_id`, `row`, and others, which stay) with a column of pixels for each view.

    `found`: what the source has of each row. An `error` of a row is a reason not to open it. `keep`: whether `bytes`
    hold the image. `with_files`: whether FILE does, for models that take no prepared pictures.
    """
    count = rows.num_rows
    known = rows["error"].to_pylist() if "error" in rows.column_names else [None] * count
    errors = [one or other for one, other in zip(known, found.errors, strict=True)]
    columns = {}
    if views:
        marks: list[bytes | None] = [None] * count
        sizes: list[int | None] = [None] * count

        def saw(row: int, pixels: Pixels) -> None:
            marks[row], sizes[row] = fingerprint(pixels), pixels.shape[0] * pixels.shape[1]

        columns = shown(found.data, errors, views, saw)
        seen = [Seen(*one) for one in zip(marks, sizes, errors, strict=True)]
    else:
        seen = [looked_at(data, error) for data, error in zip(found.data, errors, strict=True)]
    images = images_table(rows["image_id"], found.keys, found.data, seen, None if keep else rows["row"])
    for name in rows.column_names:
        if name not in images.column_names:
            images = images.append_column(name, rows[name])
    for name, column in columns.items():
        images = images.append_column(name, column)
    return images.append_column(FILE, pa.array(found.data, pa.binary())) if with_files else images


def predict_looked_at(images: pa.Table, classifiers: Sequence[LoadedClassifier]) -> pa.Table:
    """Returns what `predict_all` does, of images that `look` returned."""
    if FILE not in images.column_names:
        return predict_all(images.drop_columns(["bytes"]), classifiers)
    images = images.set_column(images.schema.get_field_index("bytes"), "bytes", images[FILE])
    return pa.concat_tables([predict_all(some, classifiers) for some in _in_memory(images)])


def _in_memory(images: pa.Table) -> Iterator[pa.Table]:
    """Yields the images, as many at a time as may be decoded at once."""
    pixels = np.nan_to_num(images["pixels"].to_numpy().astype(np.float64))
    first = 0
    for row in range(1, images.num_rows):
        if pixels[first : row + 1].sum() > BATCH_PIXELS:
            yield images.slice(first, row - first)
            first = row
    yield images.slice(first)
