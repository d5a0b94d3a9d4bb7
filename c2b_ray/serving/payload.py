"""Images in one buffer, and batches in chunks: what crosses between a handle and a replica.

It knows arrays and lengths, and nothing of Serve, of models, or of what the images show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from c2b_ray.roles import Pixels

MOST_BYTES = 16 * 2**20
"""Pixels of one chunk: large enough that a call's overhead is small, small enough that several fit an object store."""


@dataclass(frozen=True)
class PackedImages:
    """Images of any sizes: one buffer, which Ray carries through shared memory uncopied, and each (height, width)."""

    buffer: NDArray[np.uint8]
    sizes: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.sizes)


def pack(images: Sequence[Pixels]) -> PackedImages:
    """The images in their order; ValueError names the first that is not uint8 (height, width, 3)."""
    for number, image in enumerate(images):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(f"image {number} is {image.dtype} {image.shape}; expected uint8 (height, width, 3)")
    flat = [image.reshape(-1) for image in images]
    buffer = np.concatenate(flat) if flat else np.empty(0, np.uint8)
    return PackedImages(buffer, tuple((image.shape[0], image.shape[1]) for image in images))


def unpack(packed: PackedImages) -> list[Pixels]:
    """Views of the buffer, not copies; read-only where the buffer lies in the object store."""
    images, start = [], 0
    for height, width in packed.sizes:
        end = start + height * width * 3
        images.append(packed.buffer[start:end].reshape(height, width, 3))
        start = end
    return images


def spans(sizes: Sequence[int], most_items: int, most_bytes: int = MOST_BYTES) -> list[slice]:
    """Neighbouring rows, at most so many and at most so many bytes a slice; a row larger than that has its own."""
    found, start, held = [], 0, 0
    for row, size in enumerate(sizes):
        if row > start and (row - start == most_items or held + size > most_bytes):
            found.append(slice(start, row))
            start, held = row, 0
        held += size
    if start < len(sizes):
        found.append(slice(start, len(sizes)))
    return found
