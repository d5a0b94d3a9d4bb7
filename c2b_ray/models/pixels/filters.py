"""The weights of Pillow's filters, by which each pixel of a resized line is a sum of old pixels.

It knows lines of pixels, and nothing of pictures.

Source: Pillow, src/libImaging/Resample.c (`precompute_coeffs`, `normalize_coeffs_8bpc`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Filter = Literal["bilinear", "bicubic"]
Floats = NDArray[np.float64]

BITS = 22
"""Fractional bits in a weight; with 8 bits of a byte, 2 for sums beyond 255 and the sign, 32 are used."""


@lru_cache(maxsize=1024)
def weights(old: int, new: int, begin: int, end: int, kind: Filter) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Returns, for pixels `begin` to `end` of `new`, the first contributing pixel of the `old` ones and the weights.

    int64 (end − begin,) and int32 (end − begin, taps), in units of 2**-22.
    """
    kernel, radius = _FILTERS[kind]
    scale = old / new
    stretch = max(scale, 1.0)
    centres = (np.arange(begin, end) + 0.5) * scale
    first_pixels = np.maximum((centres - radius * stretch + 0.5).astype(np.int64), 0)
    last_pixels = np.minimum((centres + radius * stretch + 0.5).astype(np.int64), old)
    taps = int((last_pixels - first_pixels).max())
    raw = np.zeros((len(centres), taps))
    total = np.zeros(len(centres))
    for tap in range(taps):  # in Pillow's order, which decides the last bit of a sum
        pixel = first_pixels + tap
        raw[:, tap] = np.where(pixel < last_pixels, kernel((pixel - centres + 0.5) * (1.0 / stretch)), 0.0)
        total += raw[:, tap]
    exact = raw / total[:, None] * (1 << BITS)
    rounded = (np.copysign(0.5, raw) + exact).astype(np.int32)
    rounded[np.arange(taps) >= (last_pixels - first_pixels)[:, None]] = 0
    starts = np.minimum(first_pixels, old - taps)
    # The weights end with the line where fewer than `taps` pixels are left: those before them are 0.
    shift = (np.arange(taps) - (first_pixels - starts)[:, None]) % taps
    return starts, np.take_along_axis(rounded, shift, axis=1)


def _bilinear(x: Floats) -> Floats:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _bicubic(x: Floats) -> Floats:
    a, x = -0.5, np.abs(x)
    inner = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    outer = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, inner, np.where(x < 2.0, outer, 0.0))


_FILTERS: dict[Filter, tuple[Callable[[Floats], Floats], float]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
}
