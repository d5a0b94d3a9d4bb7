"""A picture's perceptual hash, 64 bits of which few change when it is saved again at another size or quality; and its
thumbnail, which tells whether two pictures with nearly the same hash are the same picture.

dHash (Krawetz 2013): whether a picture of 9 × 8 grey cells grows lighter from each cell to the next. Where two cells
are equal, as in a sky or on a white ground, dHash has no information; here such a bit tells whether the cell is lighter
than the picture on average, so that a pale object on a plain ground is distinguished from one elsewhere. All
comparisons use whole numbers, so the hash is the same on every machine.

Hashes alone do not suffice at scale: among 50,000 pictures of distinct scenes of one label, one in 60 lies within 4
bits of another, and that share grows with their number. And a picture that is shifted by one of 64 pixels differs in 7
bits. So the inner part is hashed too, and the same part shifted by a pixel each way: one of these hashes equals, bit
for bit, that of the shifted picture's inner part. This module knows pixels, not what is done with hashes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from c2b_ray.roles import Pixels

BITS = 64
SIDE = 8
THUMBNAIL_BYTES = SIDE * SIDE * 3
MEAN_DIFFERENCE, LARGEST_DIFFERENCE = 2.5, 20
"""Levels (of 255) by which thumbnails of one picture may differ on average and anywhere, apart from brightness."""

MOVED_MEAN_DIFFERENCE, MOVED_LARGEST_DIFFERENCE = 8.0, 56
"""The same for a picture and a shifted one, whose cells differ."""
MOVES = tuple((x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0))
WINDOW_BYTES = 8 * (1 + len(MOVES))
INSET, LEAST_SIDE, FINE_SIDE = 2, 16, 64
"""Pixels that the inner part leaves out at each edge; the least side of a picture that has an inner part; and the side,
or up to twice that, to which a larger picture is reduced by a whole factor."""

Hashes = NDArray[np.uint64]
Thumbnails = NDArray[np.uint8]


def fingerprint(pixels: Pixels) -> int:
    """Returns the hash of an image, in [0, 2**64). A picture of one colour has 0."""
    return _hash(Image.fromarray(pixels).convert("L"))


def windows(pixels: Pixels) -> bytes:
    """Returns the hashes of an image's inner part and of the same part shifted by each of `MOVES`: WINDOW_BYTES,
    little-endian.

    If an image is another one shifted by a pixel, the first hash of each is among the other hashes of the other. A
    picture with a side below LEAST_SIDE has 0, and only other numbers besides, so that it is never a shifted copy.
    """
    grey = Image.fromarray(pixels).convert("L")
    if (times := min(grey.size) // FINE_SIDE) > 1:
        grey = grey.reduce(times)
    width, height = grey.size
    if min(width, height) < LEAST_SIDE:
        return np.array([0] + [2**BITS - 1] * len(MOVES), "<u8").tobytes()
    inner = (INSET, INSET, width - INSET, height - INSET)
    moved = [_hash(grey, (inner[0] + x, inner[1] + y, inner[2] + x, inner[3] + y)) for x, y in ((0, 0), *MOVES)]
    return np.array(moved, "<u8").tobytes()


def _hash(grey: Image.Image, box: tuple[int, int, int, int] | None = None) -> int:
    cells = np.asarray(grey.resize((9, 8), Image.Resampling.BOX, box=box), np.int64)
    left, right = cells[:, :-1], cells[:, 1:]
    bits = np.where(left == right, left * cells.size > cells.sum(), right > left)
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def thumbnail(pixels: Pixels) -> bytes:
    """Returns the mean colours of SIDE × SIDE cells: THUMBNAIL_BYTES levels."""
    return Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BOX).tobytes()


def alike(
    a: Thumbnails, b: Thumbnails, mean: float = MEAN_DIFFERENCE, largest: int = LARGEST_DIFFERENCE
) -> NDArray[np.bool_]:
    """Returns which pairs of thumbnails (pairs, THUMBNAIL_BYTES) show one picture, which may be lighter in one
    of them."""
    gap = a.astype(np.int32) - b
    difference = np.abs(gap * THUMBNAIL_BYTES - gap.sum(axis=1, keepdims=True))  # of the mean gap, times the levels
    is_near = difference.max(axis=1, initial=0) <= largest * THUMBNAIL_BYTES
    is_same: NDArray[np.bool_] = is_near & (difference.sum(axis=1) <= mean * THUMBNAIL_BYTES**2)
    return is_same


def differing_bits(a: Hashes, b: Hashes) -> NDArray[np.uint8]:
    """Returns the Hamming distance of hashes, in [0, 64], with NumPy's broadcasting."""
    distance: NDArray[np.uint8] = np.bitwise_count(a ^ b)
    return distance


def bands(hashes: Hashes, count: int) -> list[Hashes]:
    """Distributes the hashes' bits over `count` bands. Two hashes that differ in fewer than `count` bits agree in some
    band.

    Neighbouring bits, which are often equal, go to different bands, so that few pictures share a band by chance.
    """
    masks = [sum(1 << bit for bit in range(band, BITS, count)) for band in range(count)]
    return [hashes & np.uint64(mask) for mask in masks]
