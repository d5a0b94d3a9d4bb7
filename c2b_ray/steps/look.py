"""Looks at images where they lie, once: their hash, size and fingerprint, and what models take of them, all from one
reading and one decoding.

    rows of a source → rows of `schemas.IMAGES`, with what models need beside them

It knows bytes, pixels and tables, and imports no library of models: other processes than that of the model call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from c2b_ray.roles import Pixels
from c2b_ray.steps.decode import BATCH_PIXELS
from c2b_ray.steps.draw import Seen, images_table, looked_at
from c2b_ray.steps.fingerprint import fingerprint
from c2b_ray.steps.in_place import Load, in_place
from c2b_ray.steps.prepared import View, shown

FILE, DECODED, HEIGHT = "file", "decoded", "height"
"""Columns of a looked-at image: its encoded bytes; or its pixels, uint8 (height, width, 3) as bytes, and its height."""

Others = Literal["none", "decoded", "files"]
"""What models need that take no prepared pictures: nothing, pixels of each picture's own size, or encoded images."""

_CARRIED = BATCH_PIXELS // 2
"""The most pixels of a batch that are handed on decoded; the files of further images are handed on instead."""


def look(rows: pa.Table, load: Load, views: Sequence[View], keep: bool, others: Others) -> pa.Table:
    """Returns the images of `rows` (`image_id`, `row`, and others, which stay) with a column of pixels for each view.

    An `error` of a row is a reason not to open it. `keep`: whether `bytes` hold the image.
    """
    found = in_place(load).fetched(rows["row"].to_pylist())
    known = rows["error"].to_pylist() if "error" in rows.column_names else [None] * rows.num_rows
    errors = [one or other for one, other in zip(known, found.errors, strict=True)]
    saw = _Saw(rows.num_rows, carry=others == "decoded")
    columns: dict[str, pa.Array] = {}
    if views or saw.carry:
        columns = shown(found.data, errors, views, saw)
        seen = [Seen(*one) for one in zip(saw.marks, saw.sizes, errors, strict=True)]
    else:
        seen = [looked_at(data, error) for data, error in zip(found.data, errors, strict=True)]
    images = images_table(rows["image_id"], found.keys, found.data, seen, None if keep else rows["row"])
    for name in rows.column_names:
        if name not in images.column_names:
            images = images.append_column(name, rows[name])
    if others != "none":
        files = [None if there is not None else data for data, there in zip(found.data, saw.pixels, strict=True)]
        columns |= {FILE: pa.array(files, pa.large_binary()), **saw.columns()}
    for name, column in columns.items():
        images = images.append_column(name, column)
    return images


class _Saw:
    """What is seen of each row's picture. `carry`: whether pixels are held, as many as fit."""

    def __init__(self, count: int, carry: bool) -> None:
        self.carry = carry
        self.marks: list[bytes | None] = [None] * count
        self.sizes: list[int | None] = [None] * count
        self.pixels: list[Pixels | None] = [None] * count
        self._left = _CARRIED if carry else 0

    def __call__(self, row: int, pixels: Pixels) -> None:
        size = pixels.shape[0] * pixels.shape[1]
        self.marks[row], self.sizes[row] = fingerprint(pixels), size
        if size <= self._left:
            self.pixels[row], self._left = pixels, self._left - size

    def columns(self) -> Mapping[str, pa.Array]:
        there = [one for one in self.pixels if one is not None]
        data = np.concatenate([one.reshape(-1) for one in there]) if there else np.zeros(0, np.uint8)
        ends = np.cumsum([0, *(0 if one is None else one.size for one in self.pixels)], dtype=np.int64)
        valid = pa.array([one is not None for one in self.pixels], pa.bool_()).buffers()[1]
        buffers = [valid, pa.py_buffer(ends), pa.py_buffer(data)]
        heights = pa.array([None if one is None else one.shape[0] for one in self.pixels], pa.int32())
        return {DECODED: pa.Array.from_buffers(pa.large_binary(), len(self.pixels), buffers), HEIGHT: heights}


def pixels_in(images: pa.Table) -> list[Pixels | None]:
    """Returns the pixels that `look` handed on decoded, uncopied and read-only."""
    pixels: list[Pixels | None] = []
    for data, height in zip(images[DECODED], images[HEIGHT].to_pylist(), strict=True):
        flat = None if height is None else np.frombuffer(data.as_buffer(), np.uint8)
        pixels.append(None if flat is None else flat.reshape(height, -1, 3))
    return pixels
