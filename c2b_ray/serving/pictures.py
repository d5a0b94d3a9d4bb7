"""Images in one buffer, and batches in chunks: the data that handles and replicas exchange.

A photograph of 500 × 375 takes 58 kB as the JPEG that it was read from and 562 kB as pixels, so an image that has a
file travels as that file. This module knows arrays, bytes and lengths, and nothing of Serve, of models, or of what the
images show.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.models.pixels.resize import shaped
from c2b_ray.processes import Processes
from c2b_ray.roles import Blocks, Floats, Pixels, Shape
from c2b_ray.serving.batching import ModelThreads
from c2b_ray.steps.decode import BATCH_PIXELS, decode_batch, pixel_count
from c2b_ray.steps.prepared import asked_for, blocks_of, column_of, prepared_as_asked

MOST_BYTES = 16 * 2**20
"""The most bytes of one chunk: a call's overhead is small, and several chunks fit into an object store."""


@dataclass(frozen=True)
class PackedPixels:
    """Images of any sizes: one buffer, which Ray shares between processes without a copy, and each (height, width)."""

    buffer: NDArray[np.uint8]
    sizes: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True)
class PackedFiles:
    """Encoded images: one buffer, and the length of each image; None where an image has no bytes."""

    buffer: NDArray[np.uint8]
    lengths: tuple[int | None, ...]

    def __len__(self) -> int:
        return len(self.lengths)


Packed = PackedPixels | PackedFiles


def all_files(packs: Sequence[Packed]) -> bool:
    """Tells whether all of these are encoded images."""
    return all(isinstance(pack, PackedFiles) for pack in packs)


def pack(images: Sequence[Pixels]) -> PackedPixels:
    """Packs the images in their order. Raises ValueError, which names the first that is not uint8 (height,
    width, 3)."""
    for number, image in enumerate(images):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(f"image {number} is {image.dtype} {image.shape}; expected uint8 (height, width, 3)")
    flat = [image.reshape(-1) for image in images]
    buffer = np.concatenate(flat) if flat else np.empty(0, np.uint8)
    return PackedPixels(buffer, tuple((image.shape[0], image.shape[1]) for image in images))


def pack_files(files: Sequence[bytes | None]) -> PackedFiles:
    """Packs the encoded images in their order."""
    buffer = np.frombuffer(b"".join(data for data in files if data is not None), np.uint8)
    return PackedFiles(buffer, tuple(None if data is None else len(data) for data in files))


def unpack(packed: PackedPixels) -> list[Pixels]:
    """Returns views of the buffer, not copies; read-only where the buffer is in the object store."""
    images, start = [], 0
    for height, width in packed.sizes:
        end = start + height * width * 3
        images.append(packed.buffer[start:end].reshape(height, width, 3))
        start = end
    return images


def unpack_files(packed: PackedFiles) -> list[bytes | None]:
    """Returns the encoded images as they were."""
    files: list[bytes | None] = []
    start = 0
    for length in packed.lengths:
        files.append(None if length is None else packed.buffer[start : start + length].tobytes())
        start += length or 0
    return files


def chosen(packed: Packed, rows: Sequence[int]) -> Packed:
    """Returns only the images of these rows, in this order."""
    if isinstance(packed, PackedFiles):
        files = unpack_files(packed)
        return pack_files([files[row] for row in rows])
    images = unpack(packed)
    return pack([images[row] for row in rows])


def pixels_of(packed: Packed) -> tuple[list[Pixels | None], list[str | None]]:
    """Returns the pixels of each image, or why there are none: exactly one of the two is None. Files are
    decoded here."""
    if isinstance(packed, PackedFiles):
        return decode_batch(unpack_files(packed))
    return list(unpack(packed)), [None] * len(packed)


def spans(sizes: Sequence[int], most_items: int, most_bytes: int = MOST_BYTES) -> list[slice]:
    """Returns slices of neighbouring rows, each of at most `most_items` rows and `most_bytes` bytes.

    A row larger than that is a slice by itself.
    """
    slices, start, n_bytes = [], 0, 0
    for row, size in enumerate(sizes):
        if row > start and (row - start == most_items or n_bytes + size > most_bytes):
            slices.append(slice(start, row))
            start, n_bytes = row, 0
        n_bytes += size
    if start < len(sizes):
        slices.append(slice(start, len(sizes)))
    return slices


# Decodes the images of several requests, has them answered as one batch, and splits the answers among the requests.
# Where the model states a shape, files are decoded in processes of the replica's own, into blocks of that shape.


FEWEST = 16
"""Files that a process gets at once, so that messages cost little."""


class Decoders:
    """A replica's processes that decode; none where `count` is 0. They start with the first files."""

    def __init__(self, model_threads: ModelThreads, count: int) -> None:
        self._model_threads, self.count = model_threads, count
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
            self._model_threads.wait(self._part, asked_for(rows.slice(a, b - a), shape), block[a:b], shape)
            for a, b in spans
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
    is_present = pa.array([length is not None for length in packed.lengths], pa.bool_())
    buffers = [is_present.buffers()[1], pa.py_buffer(offsets), pa.py_buffer(packed.buffer)]
    column = pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)
    return pa.table({"bytes": column, "error": pa.nulls(len(lengths), pa.string())})


Rows = tuple[Floats, list[str | None]]
"""A row of numbers for each image, NaN where its error says why there are none."""


async def decoded(model_threads: ModelThreads, packs: Sequence[Packed]) -> tuple[list[Pixels | None], list[str | None]]:
    """Returns the images of all requests in their order, and why an image has no pixels."""
    parts = await asyncio.gather(*(model_threads.decode(pixels_of, packed) for packed in packs))
    return [image for images, _ in parts for image in images], [error for _, errors in parts for error in errors]


async def answer_packs(
    model_threads: ModelThreads, packs: Sequence[Packed], width: int, call: Callable[[list[Pixels], list[int]], Floats]
) -> list[Rows]:
    """Calls `call` with all images that can be decoded, and their positions among all, as one batch: (images, width).

    Returns the answers of each request, NaN where an image cannot be decoded, and its error.
    """
    images, errors = await decoded(model_threads, packs)
    decoded_rows = [i for i, image in enumerate(images) if image is not None]
    answers = np.full((len(images), width), np.nan, np.float32)
    if decoded_rows:
        pixels = [image for image in images if image is not None]
        answers[decoded_rows] = await model_threads.run_batch(call, len(decoded_rows), pixels, decoded_rows)
    return [(answers[a:b], errors[a:b]) for a, b in pairwise(accumulate(map(len, packs), initial=0))]


async def answer_prepared_packs(
    model_threads: ModelThreads,
    decoders: Decoders,
    packs: Sequence[Packed],
    width: int,
    shape: Shape,
    call: Callable[[Blocks], Floats],
) -> list[Rows]:
    """Returns what `answer_packs` returns, of files that processes decode, from a call with a block of pictures."""
    block, errors = await decoders.shaped(packs, shape)
    decoded_rows = [i for i, error in enumerate(errors) if error is None]
    answers = np.full((len(block), width), np.nan, np.float32)
    if decoded_rows:
        answers[decoded_rows] = await model_threads.run_batch(
            call, len(decoded_rows), block if len(decoded_rows) == len(block) else block[decoded_rows]
        )
    return [(answers[a:b], errors[a:b]) for a, b in pairwise(accumulate(map(len, packs), initial=0))]


async def answered_files(
    model_threads: ModelThreads,
    packs: Sequence[Packed],
    call: Callable[[list[bytes | None]], tuple[Floats, list[str | None]]],
) -> list[Rows]:
    """Returns what `answer_packs` returns, of files that the model decodes itself, from a call with all of them."""
    parts = await asyncio.gather(
        *(model_threads.decode(unpack_files, pack) for pack in packs if isinstance(pack, PackedFiles))
    )
    files = [data for part in parts for data in part]
    answers, errors = await model_threads.run_batch(call, len(files), files)
    return [(answers[a:b], errors[a:b]) for a, b in pairwise(accumulate(map(len, packs), initial=0))]


async def weight(model_threads: ModelThreads, packed: Packed, most_rows: int) -> int:
    """Returns how many rows of a batch these images count as: one each, more where they are large, so that a batch
    never decodes to more than BATCH_PIXELS."""
    pixels = await model_threads.decode(_pixels, packed)
    return max(len(packed), math.ceil(pixels * most_rows / BATCH_PIXELS))


def _pixels(packed: Packed) -> int:
    if isinstance(packed, PackedFiles):
        return sum(pixel_count(data) for data in unpack_files(packed))
    return sum(height * width for height, width in packed.sizes)
