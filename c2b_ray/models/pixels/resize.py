"""Pillow's `resize`, bit for bit, of only those pixels that a crop keeps.

Pillow's filters work in whole numbers: weights in 22 bits after the point, across first, then down, rounded to a byte
in between. Here the same sums are compiled for vectors (numba), which takes a quarter of the time
(docs/decisions/007.md); the tall pictures that go down first are left to Pillow. It knows arrays, and nothing of what
they are for.

Source: Pillow, src/libImaging/Resample.c (`precompute_coeffs`, `normalize_coeffs_8bpc`, the two 8-bit passes).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from c2b_ray.roles import Pixels

Filter = Literal["bilinear", "bicubic"]

BITS = 22
"""After the point, in a weight: 8 of a byte, 2 for sums beyond 255 and the sign make 32."""


class Window(NamedTuple):
    """Part of a resized picture, in its pixels."""

    top: int
    left: int
    height: int
    width: int


def resize(image: Pixels, height: int, width: int, kind: Filter, window: Window | None = None) -> Pixels:
    """`image` resized to `height` × `width`; of that only `window`, which lies inside, where one is given.

    What `PIL.Image.Image.resize` answers, uint8 (height, width, 3); `image` itself where there is nothing to do.
    """
    top, left, tall, wide = window or Window(0, 0, height, width)
    if image.shape[:2] == (height, width):
        return image[top : top + tall, left : left + wide]
    lost_down, lost_across = image.shape[0] - height, image.shape[1] - width
    if lost_down > max(0, 2 * lost_across):  # Pillow 13, and none before, goes down first here
        whole = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling[kind.upper()]))
        return whole[top : top + tall, left : left + wide]
    across = _weights(image.shape[1], width, left, left + wide, kind)
    down = _weights(image.shape[0], height, top, top + tall, kind)
    # Here, and not above: most of what this package serves never resizes a picture.
    from c2b_ray.models.pixels.resize_compiled import two_passes

    resized: Pixels = two_passes(np.ascontiguousarray(image), *across, *down)
    return resized


@lru_cache(maxsize=1024)
def _weights(old: int, new: int, begin: int, end: int, kind: Filter) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """For pixels `begin` to `end` of `new`: the first of the `old` pixels that each is made of, and their weights.

    int64 (end − begin,) and int32 (end − begin, taps), in units of 2**-22.
    """
    at, reach = _FILTERS[kind]
    scale = old / new
    stretch = max(scale, 1.0)
    spans, rows = [], []
    for pixel in range(begin, end):
        centre = (pixel + 0.5) * scale
        first = max(int(centre - reach * stretch + 0.5), 0)
        last = min(int(centre + reach * stretch + 0.5), old)
        raw = [at((here - centre + 0.5) * (1.0 / stretch)) for here in range(first, last)]
        total = sum(raw)
        spans.append((first, last))
        rows.append([int(math.copysign(0.5, value) + value / total * (1 << BITS)) for value in raw])
    taps = max(last - first for first, last in spans)
    starts = np.minimum([first for first, _ in spans], old - taps).astype(np.int64)
    weights = np.zeros((len(rows), taps), np.int32)
    for row, (first, last) in enumerate(spans):
        weights[row, first - starts[row] : last - starts[row]] = rows[row]
    return starts, weights


def _bilinear(x: float) -> float:
    return max(1.0 - abs(x), 0.0)


def _bicubic(x: float) -> float:
    a, x = -0.5, abs(x)
    if x < 1.0:
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    return (((x - 5.0) * x + 8.0) * x - 4.0) * a if x < 2.0 else 0.0


_FILTERS: dict[Filter, tuple[Callable[[float], float], float]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
}
