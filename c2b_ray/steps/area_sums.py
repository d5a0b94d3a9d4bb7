"""A fingerprint compiled, from sums of a picture's levels over equal areas: in whole numbers, without BLAS and its
threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from c2b_ray.compiled import compilable, part

_LINES = types.Array(types.uint8, 2, "C", readonly=True)
_LEVELS = types.Array(types.uint16, 1, "C")
_STRIPS = types.Array(types.int64, 2, "C")
_AREAS = types.Array(types.int64, 3, "C")
_RESULT = types.Array(types.uint8, 1, "C")
_MOST = 256
"""Whole rows whose levels are added up in 16 bits, of which a vector holds four times as many as of 64."""


@part
def _strip_sums(lines: Any, height: Any, parts: Any, partial: Any, sums: Any) -> None:
    """Writes into `sums`, int64 (parts, levels), those of uint8 (rows, levels) over `parts` equal strips of rows, where
    a border within a row gives each side its share; a whole row counts `parts` times its height.

    `height`: of the picture of which `lines` is a reduction by a whole factor. Each row has that factor's height, and
    the last what is left. `partial`: uint16 (levels,), to work in.
    """
    partial[:] = 0
    sums[:] = 0
    rows, levels = lines.shape
    unit = -(-height // rows)
    cell_height = unit * parts
    strip = y = count = 0
    while y < rows:
        begin, end = min(y * unit, height) * parts, min((y + 1) * unit, height) * parts
        line = lines[y]
        end_of_four = min((y + 4) * unit, height) * parts
        if end_of_four - begin == 4 * cell_height and end_of_four <= (strip + 1) * height and count <= _MOST - 4:
            second, third, fourth = lines[y + 1], lines[y + 2], lines[y + 3]
            for x in range(levels):
                partial[x] += np.uint16(line[x]) + np.uint16(second[x]) + np.uint16(third[x]) + np.uint16(fourth[x])
            count += 4
            y += 3
            begin = end = end_of_four
        elif end - begin == cell_height and end <= (strip + 1) * height:
            for x in range(levels):
                partial[x] += np.uint16(line[x])
            count += 1
            begin = end
        y += 1
        if count and (count == _MOST or end >= (strip + 1) * height or y == rows):
            total = sums[strip]
            for x in range(levels):
                total[x] += np.int64(partial[x]) * cell_height
            partial[:] = 0
            count = 0
        if end == (strip + 1) * height and begin == end:
            strip += 1
        while begin < end:
            border = min(end, (strip + 1) * height)
            share, total = border - begin, sums[strip]
            for x in range(levels):
                total[x] += np.int64(line[x]) * share
            begin = border
            if begin == (strip + 1) * height:
                strip += 1


@part
def _column_sums(strips: Any, width: Any, sums: Any) -> None:
    """Writes into `sums`, int64 (strips, parts, 3), those of int64 (strips, pixels × 3) over equal parts of each strip.

    `width`: of the picture of which the pixels of a line are a reduction, as `height` in `_strip_sums`.
    """
    sums[:] = 0
    pixels, parts = strips.shape[1] // 3, sums.shape[1]
    unit = -(-width // pixels)
    area = 0
    for x in range(pixels):
        begin, end = min(x * unit, width) * parts, min((x + 1) * unit, width) * parts
        while begin < end:
            border = min(end, (area + 1) * width)
            share = border - begin
            for strip in range(len(strips)):
                for channel in range(3):
                    sums[strip, area, channel] += strips[strip, 3 * x + channel] * share
            begin = border
            if begin == (area + 1) * width:
                area += 1


@compilable(_LINES, types.int64, types.int64, _LEVELS, _STRIPS, _AREAS, _AREAS, _RESULT)
def mark_of(
    lines: Any, height: Any, width: Any, partial: Any, strips: Any, thumbnail: Any, coloured: Any, result: Any
) -> None:
    """Writes `steps.fingerprint.fingerprint` of uint8 (rows, pixels × 3) into `result`, uint8 (bytes,).

    The other arrays are to work in: uint16 (levels,), int64 (side, levels), int64 (side, side, 3) and (side, side + 1,
    3), where side is its SIDE, 8.
    """
    side = len(strips)
    _strip_sums(lines, height, side, partial, strips)
    _column_sums(strips, width, thumbnail)
    _column_sums(strips, width, coloured)
    area = height * width
    result[:side] = 0
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
