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
    at, reach = _FILTERS[kind]
    scale = old / new
    stretch = max(scale, 1.0)
    centres = (np.arange(begin, end) + 0.5) * scale
    firsts = np.maximum((centres - reach * stretch + 0.5).astype(np.int64), 0)
    lasts = np.minimum((centres + reach * stretch + 0.5).astype(np.int64), old)
    taps = int((lasts - firsts).max())
    raw = np.zeros((len(centres), taps))
    total = np.zeros(len(centres))
    for tap in range(taps):  # in Pillow's order, which decides the last bit of a sum
        here = firsts + tap
        raw[:, tap] = np.where(here < lasts, at((here - centres + 0.5) * (1.0 / stretch)), 0.0)
        total += raw[:, tap]
    exact = raw / total[:, None] * (1 << BITS)
    whole = (np.copysign(0.5, raw) + exact).astype(np.int32)
    whole[np.arange(taps) >= (lasts - firsts)[:, None]] = 0
    starts = np.minimum(firsts, old - taps)
    # The weights end with the line where fewer than `taps` pixels are left: those before them are 0.
    moved = (np.arange(taps) - (firsts - starts)[:, None]) % taps
    return starts, np.take_along_axis(whole, moved, axis=1)


def _bilinear(x: Floats) -> Floats:
    return np.maximum(1.0 - np.abs(x), 0.0)


def _bicubic(x: Floats) -> Floats:
    a, x = -0.5, np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


_FILTERS: dict[Filter, tuple[Callable[[Floats], Floats], float]] = {
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
}
