"""Pictures as models take them, decoded and shaped where no model is: blocks of pixels in the place of files.

    rows with `bytes` → rows with a column of pixels for each shape, and an error where a file is no picture

It knows files' bytes, pixels and tables; it imports no library of models, and how a picture is shaped is passed to it.
A table of such rows is what other processes hand to the process of the model, which reads the pixels uncopied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from c2b_ray.roles import Blocks, Pixels, Shape
from c2b_ray.steps.decode import decoded

PIXELS = "pixels"
Saw = Callable[[int, Pixels], None]
"""Is told the number of a row, and its picture."""
Shaped = Callable[[Pixels, Shape, Pixels], Pixels]


@dataclass(frozen=True)
class PreparedView:
    """How a model is shown pictures: its `shape`, whose `frame` is known, and the function that prepares by it, which
    may write what it returns into its last argument."""

    shape: Shape
    shaped: Shaped

    @property
    def frame(self) -> tuple[int, int]:
        assert self.shape.frame is not None
        return self.shape.frame


def column_of(shape: Shape) -> str:
    """Returns the name of the column with the pixels of a shape."""
    sides = (str(side) for side in (shape.size, shape.filter, shape.crop))
    return f"{PIXELS} {' '.join(sides)}"


def is_pixels(column: str) -> bool:
    """Tells whether a column of prepared rows holds pixels."""
    return column.startswith(f"{PIXELS} ")


def prepared(rows: pa.Table, views: Sequence[PreparedView], keep_bytes: bool = False) -> pa.Table:
    """Returns the rows with a column of pixels for each view; each picture is decoded once, and one at a time.

    `bytes` are left out unless `keep_bytes`. A row with an error, known or found here, has no pixels.
    """
    errors: list[str | None] = rows["error"].to_pylist()
    files = (data.as_py() if errors[row] is None else None for row, data in enumerate(rows["bytes"]))
    columns = shown(files, errors, views)
    index = rows.schema.get_field_index("error")
    rows = rows.set_column(index, rows.schema.field(index), pa.array(errors, pa.string()))
    if not keep_bytes:
        rows = rows.drop_columns(["bytes"])
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows


def shown(
    files: Iterable[bytes | None], errors: list[str | None], views: Sequence[PreparedView], saw: Saw | None = None
) -> dict[str, pa.Array]:
    """Returns a column of pixels for each view, by name; each file is decoded once, and one at a time.

    `errors`: why a file is not opened; gets the reason why one is no picture. `saw`: is told of each picture.
    """
    blocks = [np.empty((len(errors), *view.frame, 3), np.uint8) for view in views]
    for row, data in enumerate(files):
        pixels = None
        if errors[row] is None:
            pixels, errors[row] = decoded(data)
        for view, block in zip(views, blocks, strict=True):
            if pixels is None:
                block[row] = 0
            elif (result := view.shaped(pixels, view.shape, target := block[row])) is not target:
                target[...] = result
        if pixels is not None and saw is not None:
            saw(row, pixels)
    is_valid = pa.array([error is None for error in errors], pa.bool_())
    return {column_of(view.shape): _column(block, is_valid) for view, block in zip(views, blocks, strict=True)}


def asked_for(rows: pa.Table, shape: Shape) -> pa.Table:
    """Returns the rows with a shape that `prepared_as_asked` reads: one process then prepares for several models."""
    return rows.replace_schema_metadata({"shape": json.dumps([shape.size, shape.filter, shape.crop])})


def prepared_as_asked(rows: pa.Table, shaped: Shaped) -> pa.Table:
    """Returns `prepared` of rows from `asked_for`."""
    size, kind, crop = json.loads(rows.schema.metadata[b"shape"])
    shape = Shape(tuple(size) if isinstance(size, list) else size, kind, tuple(crop) if crop else None)
    return prepared(rows, [PreparedView(shape, shaped)])


def blocks_of(rows: pa.Table) -> dict[str, Blocks]:
    """Returns the pixels of prepared rows by the name of their column, uint8 (rows, height × width × 3).

    What a row with an error has there is meaningless. Nothing is copied where a column is in one piece.
    """
    return {name: _block(rows[name]) for name in rows.column_names if is_pixels(name)}


def _column(block: Blocks, is_valid: pa.Array) -> pa.Array:
    """Returns the pixels as a column, uncopied; `is_valid`: of which rows there are some."""
    kind = pa.binary(int(np.prod(block.shape[1:])))
    valid = None if is_valid.true_count == len(is_valid) else is_valid.buffers()[1]
    return pa.Array.from_buffers(kind, len(block), [valid, pa.py_buffer(block)])


def _block(column: pa.ChunkedArray) -> Blocks:
    width = column.type.byte_width
    chunks = []
    for chunk in column.chunks:
        data = np.frombuffer(chunk.buffers()[1], np.uint8, len(chunk) * width, chunk.offset * width)
        chunks.append(data.reshape(len(chunk), width))
    if len(chunks) == 1:
        return chunks[0]
    return np.concatenate(chunks) if chunks else np.zeros((0, width), np.uint8)
