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
_RESIZED = types.Array(types.uint8, 3, "C")
_STARTS = types.Array(types.int64, 1, "C", readonly=True)
_WEIGHTS = types.Array(types.int32, 2, "C", readonly=True)


@compiled()
def _mix(lines: Any, starts: Any, weights: Any, mixed: Any) -> None:
    """Computes line i of `out` as `weights[i]` times the lines from `starts[i]` on, summed and rounded to bytes."""
    total = np.empty(lines.shape[1], np.int32)
    for i in range(len(starts)):
        total[:] = _HALF
        for tap in range(weights.shape[1]):
            weight, line = weights[i, tap], lines[starts[i] + tap]
            for k in range(len(total)):
                total[k] += np.int32(line[k]) * weight
        for k in range(len(total)):
            mixed[i, k] = min(max(total[k] >> _BITS, 0), 255)


@compiled(types.void(_PIXELS, _STARTS, _WEIGHTS, _STARTS, _WEIGHTS, _RESIZED))
def two_passes(image: Any, x_starts: Any, x_weights: Any, y_starts: Any, y_weights: Any, resized: Any) -> None:
    """Resizes uint8 (height, width, 3) into `resized`, uint8 (pixels down, pixels across, 3); starts and weights are
    those of `resize`."""
    out_height, out_width = len(y_starts), len(x_starts)
    top, first_column = y_starts[0], x_starts[0]
    rows = y_starts[-1] + y_weights.shape[1] - top
    columns = x_starts[-1] + x_weights.shape[1] - first_column
    # The pass across works on transposed strips, so that both passes add whole lines, which the compiler vectorises.
    input_lines = np.empty((columns, 3, _STRIP), np.uint8)
    output_lines = np.empty((out_width, 3, _STRIP), np.uint8)
    rows_resized = np.empty((rows, out_width, 3), np.uint8)
    for first in range(0, rows, _STRIP):
        strip = min(_STRIP, rows - first)
        for y in range(strip):
            for x in range(columns):
                for channel in range(3):
                    input_lines[x, channel, y] = image[top + first + y, first_column + x, channel]
        _mix(input_lines.reshape(columns, -1), x_starts - first_column, x_weights, output_lines.reshape(out_width, -1))
        for y in range(strip):
            for x in range(out_width):
                for channel in range(3):
                    rows_resized[first + y, x, channel] = output_lines[x, channel, y]
    _mix(rows_resized.reshape(rows, -1), y_starts - top, y_weights, resized.reshape(out_height, -1))
