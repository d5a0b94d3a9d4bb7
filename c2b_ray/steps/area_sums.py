"""Sums of a picture's levels over equal strips, compiled: in whole numbers, without floating point and its threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from c2b_ray.compiled import compiled

_LINES = types.Array(types.uint8, 2, "C", readonly=True)


@compiled((_LINES, types.int64, types.int64))
def strip_sums(lines: Any, height: Any, parts: Any) -> Any:
    """Returns the sums of uint8 (rows, levels) over `parts` equal strips of rows, int64 (parts, levels), where a border
    within a row gives each side its share; a whole row counts `parts` times its height.

    `height`: of the picture of which `lines` is a reduction by a whole factor. Each row has that factor's height, and
    the last what is left.
    """
    rows, levels = lines.shape
    sums = np.zeros((parts, levels), np.int64)
    unit = -(-height // rows)
    part = 0
    for y in range(rows):
        begin, end = min(y * unit, height) * parts, min((y + 1) * unit, height) * parts
        while begin < end:
            border = min(end, (part + 1) * height)
            share, line, total = border - begin, lines[y], sums[part]
            for x in range(levels):
                total[x] += np.int32(line[x]) * share
            begin = border
            if begin == (part + 1) * height:
                part += 1
    return sums
