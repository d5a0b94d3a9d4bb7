"""A fingerprint compiled, from sums of a picture's levels over equal areas: in whole numbers, without BLAS and its
threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from c2b_ray.compiled import compiled

_LINES = types.Array(types.uint8, 2, "C", readonly=True)
_STRIPS = types.Array(types.int64, 2, "C", readonly=True)
_MOST = 256
"""Whole rows whose levels are added up in 16 bits, of which a vector holds four times as many as of 64."""


@compiled((_LINES, types.int64, types.int64))
def strip_sums(lines: Any, height: Any, parts: Any) -> Any:
    """Returns the sums of uint8 (rows, levels) over `parts` equal strips of rows, int64 (parts, levels), where a border
    within a row gives each side its share; a whole row counts `parts` times its height.

    `height`: of the picture of which `lines` is a reduction by a whole factor. Each row has that factor's height, and
    the last what is left.
    """
    rows, levels = lines.shape
    sums = np.zeros((parts, levels), np.int64)
    partial, count = np.zeros(levels, np.uint16), 0
    unit = -(-height // rows)
    cell_height = unit * parts
    part = 0
    for y in range(rows):
        begin, end = min(y * unit, height) * parts, min((y + 1) * unit, height) * parts
        line = lines[y]
        if end - begin == cell_height and end <= (part + 1) * height:
            for x in range(levels):
                partial[x] += np.uint16(line[x])
            count += 1
            begin = end
        if count and (count == _MOST or end >= (part + 1) * height or y == rows - 1):
            total = sums[part]
            for x in range(levels):
                total[x] += np.int64(partial[x]) * cell_height
            partial[:] = 0
            count = 0
        if end == (part + 1) * height and begin == end:
            part += 1
        while begin < end:
            border = min(end, (part + 1) * height)
            share, total = border - begin, sums[part]
            for x in range(levels):
                total[x] += np.int64(line[x]) * share
            begin = border
            if begin == (part + 1) * height:
                part += 1
    return sums


@compiled((_STRIPS, types.int64, types.int64, types.int64))
def column_sums(strips: Any, pixels: Any, width: Any, parts: Any) -> Any:
    """Returns the sums of int64 (strips, pixels × 3) over `parts` equal areas of each strip, int64 (strips, parts, 3).

    `width`: of the picture of which the `pixels` of a line are a reduction, as `height` in `strip_sums`.
    """
    sums = np.zeros((len(strips), parts, 3), np.int64)
    unit = -(-width // pixels)
    part = 0
    for x in range(pixels):
        begin, end = min(x * unit, width) * parts, min((x + 1) * unit, width) * parts
        while begin < end:
            border = min(end, (part + 1) * width)
            share = border - begin
            for strip in range(len(strips)):
                for channel in range(3):
                    sums[strip, part, channel] += strips[strip, 3 * x + channel] * share
            begin = border
            if begin == (part + 1) * width:
                part += 1
    return sums


@compiled((_LINES, types.int64, types.int64, types.int64))
def mark_of(lines: Any, height: Any, width: Any, side: Any) -> Any:
    """Returns `steps.fingerprint.fingerprint` of uint8 (rows, pixels × 3), uint8 (bytes,); `side` is its SIDE, 8."""
    strips = strip_sums(lines, height, side)
    thumbnail = column_sums(strips, lines.shape[1] // 3, width, side)
    coloured = column_sums(strips, lines.shape[1] // 3, width, side + 1)
    area = height * width
    result = np.zeros(side + side * side * 3, np.uint8)
    for y in range(side):
        previous = 0.0
        for x in range(side + 1):
            red, green, blue = coloured[y, x, 0] / area, coloured[y, x, 1] / area, coloured[y, x, 2] / area
            grey = np.rint((19595 * np.rint(red) + 38470 * np.rint(green) + 7471 * np.rint(blue)) / 65536)
            if x and grey > previous:
                result[y] += 1 << (side - x)
            previous = grey
        for x in range(side):
            for channel in range(3):
                result[side + (y * side + x) * 3 + channel] = np.rint(thumbnail[y, x, channel] / area)
    return result
