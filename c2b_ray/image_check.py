"""Whether a generated picture can be used: NaN, blanks and wrong sizes become errors of their rows.

Knows arrays; does not know what made them. Our models ask it, and steps ask it again, because a generator of another
package may not have done so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from c2b_ray.roles import GeneratedImage

_LEVELS = 2  # by which a picture of one colour may vary, through rounding
_SAMPLED = 8


def checked_image(values: Any, size: tuple[int, int] | None, censored: bool = False) -> GeneratedImage:
    """The picture of `values`, (height, width, 3), floats in [0, 1] or uint8, or why it is none.

    size: (height, width) that it must have, None for any. censored: a safety checker has blanked it.
    """
    if censored:
        return GeneratedImage(None, "the pipeline's safety checker blanked the image")
    values = np.asarray(values)
    if values.ndim != 3 or values.shape[2] != 3:
        return GeneratedImage(None, f"the generator gave an array of shape {values.shape}, not height × width × 3")
    if not values.size:
        return GeneratedImage(None, f"the image is empty: {values.shape[0]} × {values.shape[1]} pixels")
    if values.dtype != np.uint8 and values.dtype.kind != "f":
        return GeneratedImage(None, f"the generator gave {values.dtype} values, neither uint8 nor floats in [0, 1]")
    if size is not None and values.shape[:2] != size:
        size_of_image = f"{values.shape[0]} × {values.shape[1]}"
        return GeneratedImage(None, f"the image is {size_of_image} pixels, asked for were {size[0]} × {size[1]}")
    if values.dtype != np.uint8 and not np.isfinite(values).all():
        return GeneratedImage(None, "the image holds NaN or infinite values; dtype=fp32 often mends it")
    pixels = values if values.dtype == np.uint8 else (values.clip(0, 1) * 255).round().astype(np.uint8)
    if _range(pixels[::_SAMPLED, ::_SAMPLED]) > _LEVELS:  # enough to tell, and most often so
        return GeneratedImage(pixels)
    if int(pixels.max()) <= _LEVELS:
        return GeneratedImage(None, "the image is all black")
    if _range(pixels) <= _LEVELS:
        return GeneratedImage(None, "the image is of a single colour")
    return GeneratedImage(pixels)


def _range(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> int:
    """The largest difference of two pixels in one channel."""
    flat = pixels.reshape(-1, 3)
    return int((flat.max(axis=0) - flat.min(axis=0)).max())
