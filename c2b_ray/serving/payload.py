"""Images in one buffer, and batches in chunks: the data that handles and replicas exchange.

A photograph of 500 × 375 takes 58 kB as the JPEG that it was read from and 562 kB as pixels, so an image that has a
file travels as that file. This module knows arrays, bytes and lengths, and nothing of Serve, of models, or of what the
images show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from c2b_ray.roles import Pixels
from c2b_ray.steps.decode import decode_batch

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
    slices, start, held = [], 0, 0
    for row, size in enumerate(sizes):
        if row > start and (row - start == most_items or held + size > most_bytes):
            slices.append(slice(start, row))
            start, held = row, 0
        held += size
    if start < len(sizes):
        slices.append(slice(start, len(sizes)))
    return slices
