"""Pillow's `resize`, bit for bit, for only those pixels that a crop keeps.

Pillow's filters work in whole numbers: weights in 22 bits after the point, across first, then down, rounded to a byte
in between. Here the same sums are compiled for vectors (numba), which takes a quarter of the time
(docs/decisions/007-resizing-as-pillow-does.md); the tall pictures that go down first are left to Pillow. It knows
arrays, and nothing of what they are for.

Source: Pillow, src/libImaging/Resample.c (the two 8-bit passes).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from c2b_ray.models.pixels.filters import Filter, weights
from c2b_ray.roles import Pixels


class ResizedRegion(NamedTuple):
    """Part of a resized picture, in its pixels."""

    top: int
    left: int
    height: int
    width: int


def resize(image: Pixels, height: int, width: int, kind: Filter, window: ResizedRegion | None = None) -> Pixels:
    """Resizes `image` to `height` × `width`; returns only `window` of the result, which lies inside it, where a window
    is passed.

    The result equals that of `PIL.Image.Image.resize`, uint8 (height, width, 3); it is `image` itself where there is
    nothing to do.
    """
    top, first_column, out_height, out_width = window or ResizedRegion(0, 0, height, width)
    if image.shape[:2] == (height, width):
        return image[top : top + out_height, first_column : first_column + out_width]
    if goes_down_first((image.shape[0], image.shape[1]), (height, width)):
        resized_image = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling[kind.upper()]))
        return resized_image[top : top + out_height, first_column : first_column + out_width]
    column_weights = weights(image.shape[1], width, first_column, first_column + out_width, kind)
    row_weights = weights(image.shape[0], height, top, top + out_height, kind)
    # Here, and not above: most of what this package serves never resizes a picture.
    from c2b_ray.models.pixels.resize_compiled import two_passes

    resized: Pixels = two_passes(np.ascontiguousarray(image), *column_weights, *row_weights)
    return resized


def goes_down_first(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Tells whether Pillow 13, and none before, resizes pictures of this height and width down before across."""
    lost_down, lost_across = old[0] - new[0], old[1] - new[1]
    return lost_down > max(0, 2 * lost_across)
