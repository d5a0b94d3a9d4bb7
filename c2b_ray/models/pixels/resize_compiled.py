"""The two passes of `resize`, as numba compiles them (`compiled`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from c2b_ray.compiled import compilable, part
from c2b_ray.models.pixels.filters import BITS
from c2b_ray.models.pixels.resize import STRIP

_HALF = 1 << (BITS - 1)
_GROUPS = STRIP // 4

_BYTES = types.Array(types.uint8, 1, "C")
_LINES = types.Array(types.uint8, 2, "C")
_TOTAL = types.Array(types.int32, 1, "C")
# Pictures in Ray's shared memory cannot be written to, nor can weights that are kept.
_PICTURE = types.Array(types.uint8, 2, "C", readonly=True)
_STARTS = types.Array(types.int64, 1, "C", readonly=True)
_WEIGHTS = types.Array(types.int32, 2, "C", readonly=True)


@part
def _mix(lines: Any, starts: Any, first: Any, weights: Any, total: Any, mixed: Any) -> None:
    """Computes line i of `mixed` as `weights[i]` times the lines from `starts[i]` − `first` on, summed and rounded to
    bytes."""
    taps, width = weights.shape[1], len(total)
    threes = taps // 3 * 3  # three lines at once: the total is loaded and stored a third as often
    for i in range(len(starts)):
        start, out = starts[i] - first, mixed[i]
        total[:] = _HALF
        for tap in range(0, threes, 3):
            a, b, c = weights[i, tap], weights[i, tap + 1], weights[i, tap + 2]
            line, second, third = lines[start + tap], lines[start + tap + 1], lines[start + tap + 2]
            for k in range(width):
                total[k] += np.int32(line[k]) * a + np.int32(second[k]) * b + np.int32(third[k]) * c
        for tap in range(threes, taps):
            weight, line = weights[i, tap], lines[start + tap]
            for k in range(width):
                total[k] += np.int32(line[k]) * weight
        for k in range(width):
            out[k] = min(max(total[k] >> BITS, 0), 255)


@part
def _weave(a: Any, b: Any, c: Any, d: Any, four: Any) -> None:
    """Writes the bytes of four lines in turn into one. The compiler knows this loop, and `_unweave`, as shuffles of
    vectors."""
    for x in range(len(a)):
        four[4 * x] = a[x]
        four[4 * x + 1] = b[x]
        four[4 * x + 2] = c[x]
        four[4 * x + 3] = d[x]


@part
def _unweave(four: Any, a: Any, b: Any, c: Any, d: Any) -> None:
    for x in range(len(a)):
        a[x] = four[4 * x]
        b[x] = four[4 * x + 1]
        c[x] = four[4 * x + 2]
        d[x] = four[4 * x + 3]


@compilable(_PICTURE, _STARTS, _WEIGHTS, _STARTS, _WEIGHTS, _LINES, _LINES, _LINES, _BYTES, _TOTAL, _LINES)
def two_passes(
    image: Any, x_starts: Any, x_weights: Any, y_starts: Any, y_weights: Any, strip: Any, mixed: Any, across: Any,
    four: Any, total: Any, resized: Any,
) -> None:  # fmt: skip
    """Resizes uint8 (height, width × 3) into `resized`, uint8 (pixels down, pixels across × 3).

    Starts and weights are those of `resize`, and the arrays between them and `resized` are its `_ROOM`.
    """
    top, left = y_starts[0], x_starts[0]
    rows, columns = y_starts[-1] + y_weights.shape[1] - top, len(strip)
    strip_of_fours, mixed_of_fours, fours = strip.view(np.uint32), mixed.view(np.uint32), four.view(np.uint32)
    # The pass across works on transposed strips, so that both passes add whole lines, which the compiler vectorises. A
    # strip is transposed by fours of rows: first bytes, then fours of bytes.
    for first in range(0, rows, STRIP):
        groups = (min(STRIP, rows - first) + 3) // 4
        for group in range(groups):
            y, last = top + first + 4 * group, top + rows - 1
            _weave(
                image[y][3 * left : 3 * (left + columns)],
                image[min(y + 1, last)][3 * left : 3 * (left + columns)],
                image[min(y + 2, last)][3 * left : 3 * (left + columns)],
                image[min(y + 3, last)][3 * left : 3 * (left + columns)],
                four,
            )
            for x in range(columns):
                for channel in range(3):
                    strip_of_fours[x, channel * _GROUPS + group] = fours[3 * x + channel]
        _mix(strip, x_starts, left, x_weights, total[: 3 * STRIP], mixed)
        for group in range(groups):
            y = first + 4 * group
            for x in range(len(x_starts)):
                for channel in range(3):
                    fours[3 * x + channel] = mixed_of_fours[x, channel * _GROUPS + group]
            _unweave(four, across[y], across[y + 1], across[y + 2], across[y + 3])
    _mix(across, y_starts, top, y_weights, total[: 3 * len(x_starts)], resized)
