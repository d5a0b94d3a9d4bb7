"""The two compiled passes of `resize`. Compiling takes two seconds (`compiled`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from c2b_ray.compiled import compiled
from c2b_ray.models.pixels.filters import BITS

_BITS = BITS
_HALF = 1 << (BITS - 1)
_STRIP = 32
"""Rows that go across together: few enough to stay in a core's own cache, however wide the picture."""

# Declared, so that pictures in Ray's shared memory, which cannot be written to, are not compiled for anew.
_PIXELS = types.Array(types.uint8, 3, "C", readonly=True)
_STARTS = types.Array(types.int64, 1, "C", readonly=True)
_WEIGHTS = types.Array(types.int32, 2, "C", readonly=True)


@compiled()
def _mix(lines: Any, starts: Any, weights: Any, mixed: Any) -> None:
    """Computes line i of `mixed` as `weights[i]` times the lines from `starts[i]` on, summed and rounded to bytes."""
    total = np.empty(lines.shape[1], np.int32)
    for i in range(len(starts)):
        total[:] = _HALF
        for tap in range(weights.shape[1]):
            weight, line = weights[i, tap], lines[starts[i] + tap]
            for at in range(len(total)):
                total[at] += np.int32(line[at]) * weight
        for at in range(len(total)):
            mixed[i, at] = min(max(total[at] >> _BITS, 0), 255)


@compiled((_PIXELS, _STARTS, _WEIGHTS, _STARTS, _WEIGHTS))
def two_passes(image: Any, x_starts: Any, x_weights: Any, y_starts: Any, y_weights: Any) -> Any:
    """Resizes uint8 (height, width, 3) to uint8 (pixels down, pixels across, 3); starts and weights are those of
    `resize`."""
    high, wide = len(y_starts), len(x_starts)
    top, left = y_starts[0], x_starts[0]
    rows = y_starts[-1] + y_weights.shape[1] - top
    columns = x_starts[-1] + x_weights.shape[1] - left
    # Across is down on its side: in both, whole lines are added up, which vectors do.
    before = np.empty((columns, 3, _STRIP), np.uint8)
    after = np.empty((wide, 3, _STRIP), np.uint8)
    between = np.empty((rows, wide, 3), np.uint8)
    for first in range(0, rows, _STRIP):
        strip = min(_STRIP, rows - first)
        for y in range(strip):
            for x in range(columns):
                for channel in range(3):
                    before[x, channel, y] = image[top + first + y, left + x, channel]
        _mix(before.reshape(columns, -1), x_starts - left, x_weights, after.reshape(wide, -1))
        for y in range(strip):
            for x in range(wide):
                for channel in range(3):
                    between[first + y, x, channel] = after[x, channel, y]
    resized = np.empty((high, wide, 3), np.uint8)
    _mix(between.reshape(rows, -1), y_starts - top, y_weights, resized.reshape(high, -1))
    return resized
