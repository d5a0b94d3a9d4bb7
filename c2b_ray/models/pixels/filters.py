"""The weights of Pillow's filters, by which each pixel of a resized line is a sum of old pixels.

It knows lines of pixels, and nothing of pictures.

Source: Pillow, src/libImaging/Resample.c (`precompute_coeffs`, `normalize_coeffs_8bpc`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Filter = Literal["bilinear", "bicubic"]

BITS = 22
"""Fractional bits in a weight; with 8 bits of a byte, 2 for sums beyond 255 and the sign, 32 are used."""


@lru_cache(maxsize=1024)
def weights(old: int, new: int, begin: int, end: int, kind: Filter) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Returns, for pixels `begin` to `end` of `new`, the first contributing pixel of the `old` ones and the weights.

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
    table = np.zeros((len(rows), taps), np.int32)
    for row, (first, last) in enumerate(spans):
        table[row, first - starts[row] : last - starts[row]] = rows[row]
    return starts, table


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
