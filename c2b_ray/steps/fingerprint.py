"""A picture's fingerprint: 200 bytes by which `duplicates` knows it again, saved under another name, size or quality.

It knows pixels, and imports little: processes that decode pictures start with it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c2b_ray.compiled import Room, kernel
from c2b_ray.roles import Pixels

SIDE = 8
HASH = 8
"""Bytes of the signs of gradients, with which a fingerprint begins."""

FINE_ENOUGH = 48
"""Pixels per side from which on a reduced picture has nearly the same fingerprint: levels differ by 0.2 on average."""

_LEVELS_AT_ONCE = 1 << 15
"""Levels that are summed at once: for more, OpenBLAS starts threads, which many processes beside each other pay for
with twenty times the time."""
_COMPILED_FROM = 1 << 17
"""Levels of a picture from which on the compiled function is used: to load it takes as long as some thousand small
pictures."""
_GREY = np.array([19595, 38470, 7471]) / 2**16  # of red, green and blue: ITU-R 601, as Pillow's "L"


def fingerprint(pixels: Pixels, size: tuple[int, int] | None = None) -> bytes:
    """Returns 8 bytes of gradient signs (dHash, Krawetz 2013), then a thumbnail of SIDE × SIDE × 3 levels.

    Both are means of areas, in whole numbers: a border within a pixel gives each side its share of the pixel. So a
    picture has the same fingerprint on every machine, and nearly the same one at any size. `size`: height and width of
    the picture of which `pixels` are a reduction by a whole factor; the last pixel of a line is cut short where the
    factor does not divide them.
    """
    height, width = size or (pixels.shape[0], pixels.shape[1])
    lines = np.ascontiguousarray(pixels).reshape(len(pixels), -1)
    if lines.size >= _COMPILED_FROM:
        return _compiled(lines, height, width)
    thumbnail, coloured = (np.rint(sums / (height * width)) for sums in _sums(lines, height, width))
    grey = np.rint(coloured @ _GREY)
    return np.packbits(grey[:, 1:] > grey[:, :-1]).tobytes() + thumbnail.astype(np.uint8).tobytes()


def _compiled(lines: NDArray[np.uint8], height: int, width: int) -> bytes:
    result = np.empty(HASH + SIDE * SIDE * 3, np.uint8)
    kernel("c2b_ray.steps.area_sums", "mark_of")(lines, height, width, *_ROOM(lines.shape[1]), result)
    return result.tobytes()


_ROOM = Room(
    lambda levels: (
        np.empty(levels, np.uint16),
        np.empty((SIDE, levels), np.int64),
        np.empty((SIDE, SIDE, 3), np.int64),
        np.empty((SIDE, SIDE + 1, 3), np.int64),
    )
)


def _sums(lines: NDArray[np.uint8], height: int, width: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the sums of a picture's levels over SIDE × SIDE equal areas, and over SIDE × (SIDE + 1): (down, across,
    3)."""
    rows, strips = _shares(height, len(lines), SIDE), np.zeros((SIDE, lines.shape[1]))
    for start in range(0, len(lines), block_rows := max(1, _LEVELS_AT_ONCE // lines.shape[1])):
        strips += rows[:, start : start + block_rows] @ lines[start : start + block_rows]
    pixels = strips.reshape(SIDE, -1, 3)
    return _shares(width, pixels.shape[1], SIDE) @ pixels, _shares(width, pixels.shape[1], SIDE + 1) @ pixels


@lru_cache(maxsize=64)
def _shares(length: int, pixels: int, parts: int) -> NDArray[np.float64]:
    """Returns, for a line of `pixels` pixels, each pixel's share of each of `parts` equal parts: (parts, pixels),
    `length` per part.

    All pixels but the last are whole and of equal length.
    """
    borders = np.arange(parts + 1) * length
    edges = np.minimum(np.arange(pixels + 1) * -(-length // pixels), length) * parts
    overlaps = np.minimum.outer(borders[1:], edges[1:]) - np.maximum.outer(borders[:-1], edges[:-1])
    shares: NDArray[np.float64] = np.maximum(overlaps, 0).astype(np.float64)
    return shares
