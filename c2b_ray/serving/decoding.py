"""Decodes a replica's files in processes of its own, into blocks of pixels as the model takes them.

A replica that owns a GPU must not decode in its threads: they would wait for Python's lock, and so would the GPU. It
knows packed files and shapes, and no model.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from c2b_ray.models.pixels.shape import shaped
from c2b_ray.processes.pool import Processes
from c2b_ray.roles import Blocks, Shape
from c2b_ray.serving.hands import Hands
from c2b_ray.serving.payload import Packed, PackedFiles, all_files
from c2b_ray.steps.prepared import asked_for, blocks_of, column_of, prepared_as_asked

FEWEST = 16
"""Files that a process gets at once, so that messages cost little."""


class Shaped(Protocol):
    """A model that takes pictures that are prepared for it: `roles.ShapedClassifier` and `roles.ShapedEncoder`."""

    @property
    def shape(self) -> Shape | None: ...


class Decoders:
    """A replica's processes that decode; none where `count` is 0. They start with the first files."""

    def __init__(self, hands: Hands, count: int) -> None:
        self._hands, self.count = hands, count
        self._pool = Processes(partial(prepared_as_asked, shaped=shaped), count, 2 * count) if count else None

    def take(self, model: object, packs: Sequence[Packed]) -> bool:
        """Tells whether the packs are files that can be decoded here for the model."""
        frame = getattr(getattr(model, "shape", None), "frame", None)
        return self._pool is not None and frame is not None and all_files(packs)

    async def shaped(self, packs: Sequence[Packed], shape: Shape) -> tuple[Blocks, list[str | None]]:
        """Returns the pictures of all packs in their order, uint8 (pictures, height, width, 3), and why one has no
        pixels."""
        rows = pa.concat_tables([_rows(pack) for pack in packs if isinstance(pack, PackedFiles)])
        assert shape.frame is not None
        block = np.empty((rows.num_rows, *shape.frame, 3), np.uint8)
        size = max(FEWEST, math.ceil(rows.num_rows / max(1, self.count)))
        spans = pairwise([*range(0, rows.num_rows, size), rows.num_rows])
        parts = [
            self._hands.wait(self._part, asked_for(rows.slice(a, b - a), shape), block[a:b], shape) for a, b in spans
        ]
        errors = [error for part in await asyncio.gather(*parts) for error in part]
        return block, errors

    def _part(self, rows: pa.Table, block: Blocks, shape: Shape) -> list[str | None]:
        """Fills a part of the block. It is copied at once, so that no process waits for memory that a batch holds."""
        assert self._pool is not None
        table = self._pool.submit(rows).result()
        block[:] = blocks_of(table)[column_of(shape)].reshape(block.shape)
        errors: list[str | None] = table["error"].to_pylist()
        return errors

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()


def _rows(packed: PackedFiles) -> pa.Table:
    """Returns the files as a table, uncopied."""
    lengths = [length or 0 for length in packed.lengths]
    offsets = np.fromiter(accumulate(lengths, initial=0), np.int64, len(lengths) + 1)
    there = pa.array([length is not None for length in packed.lengths], pa.bool_())
    buffers = [there.buffers()[1], pa.py_buffer(offsets), pa.py_buffer(packed.buffer)]
    column = pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)
    return pa.table({"bytes": column, "error": pa.nulls(len(lengths), pa.string())})
