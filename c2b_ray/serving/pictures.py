"""Decodes the images of several requests, has them answered as one batch, and splits the answers among the requests.

It knows packed images and rows of numbers; the deployments know what the numbers mean.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from c2b_ray.models.pixels.shape import shaped
from c2b_ray.processes.pool import Processes
from c2b_ray.roles import Blocks, Floats, Pixels, Shape
from c2b_ray.serving.batching import ModelThreads
from c2b_ray.serving.payload import Packed, PackedFiles, all_files, pixels_of, unpack_files
from c2b_ray.steps.decode import BATCH_PIXELS, pixel_count
from c2b_ray.steps.prepared import asked_for, blocks_of, column_of, prepared_as_asked

# Decodes a replica's files in processes of its own, into blocks of pixels as the model takes them.


FEWEST = 16
"""Files that a process gets at once, so that messages cost little."""


class Shaped(Protocol):
    """A model that takes pictures that are prepared for it: `roles.ShapedClassifier` and `roles.ShapedEncoder`."""

    @property
    def shape(self) -> Shape | None: ...


class Decoders:
    """A replica's processes that decode; none where `count` is 0. They start with the first files."""

    def __init__(self, hands: ModelThreads, count: int) -> None:
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


Rows = tuple[Floats, list[str | None]]
"""A row of numbers for each image, NaN where its error says why there are none."""


async def decoded(hands: ModelThreads, packs: Sequence[Packed]) -> tuple[list[Pixels | None], list[str | None]]:
    """Returns the images of all requests in their order, and why an image has no pixels."""
    parts = await asyncio.gather(*(hands.decode(pixels_of, packed) for packed in packs))
    return [image for images, _ in parts for image in images], [error for _, errors in parts for error in errors]


async def answer_packs(
    hands: ModelThreads, packs: Sequence[Packed], width: int, call: Callable[[list[Pixels], list[int]], Floats]
) -> list[Rows]:
    """Calls `call` with all images that can be decoded, and their positions among all, as one batch: (images, width).

    Returns the answers of each request, NaN where an image cannot be decoded, and its error.
    """
    images, errors = await decoded(hands, packs)
    good = [i for i, image in enumerate(images) if image is not None]
    answers = np.full((len(images), width), np.nan, np.float32)
    if good:
        pixels = [image for image in images if image is not None]
        answers[good] = await hands.run_batch(call, len(good), pixels, good)
    return [(answers[a:b], errors[a:b]) for a, b in pairwise(accumulate(map(len, packs), initial=0))]


async def answer_prepared_packs(
    hands: ModelThreads,
    decoders: Decoders,
    packs: Sequence[Packed],
    width: int,
    shape: Shape,
    call: Callable[[Blocks], Floats],
) -> list[Rows]:
    """Returns what `answer_packs` returns, of files that processes decode, from a call with a block of pictures."""
    block, errors = await decoders.shaped(packs, shape)
    good = [i for i, error in enumerate(errors) if error is None]
    answers = np.full((len(block), width), np.nan, np.float32)
    if good:
        answers[good] = await hands.run_batch(call, len(good), block if len(good) == len(block) else block[good])
    return [(answers[a:b], errors[a:b]) for a, b in pairwise(accumulate(map(len, packs), initial=0))]


async def answered_files(
    hands: ModelThreads, packs: Sequence[Packed], call: Callable[[list[bytes | None]], tuple[Floats, list[str | None]]]
) -> list[Rows]:
    """Returns what `answer_packs` returns, of files that the model decodes itself, from a call with all of them."""
    parts = await asyncio.gather(*(hands.decode(unpack_files, pack) for pack in packs if isinstance(pack, PackedFiles)))
    files = [data for part in parts for data in part]
    answers, errors = await hands.run_batch(call, len(files), files)
    return [(answers[a:b], errors[a:b]) for a, b in pairwise(accumulate(map(len, packs), initial=0))]


async def weight(hands: ModelThreads, packed: Packed, most_rows: int) -> int:
    """Returns how many rows of a batch these images count as: one each, more where they are large, so that a batch
    never decodes to more than BATCH_PIXELS."""
    pixels = await hands.decode(_pixels, packed)
    return max(len(packed), math.ceil(pixels * most_rows / BATCH_PIXELS))


def _pixels(packed: Packed) -> int:
    if isinstance(packed, PackedFiles):
        return sum(pixel_count(data) for data in unpack_files(packed))
    return sum(height * width for height, width in packed.sizes)
