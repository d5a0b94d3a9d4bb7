"""Prepares a picture by a model's `Shape`: resized and cropped to bytes, without the model and without PyTorch."""

from __future__ import annotations

import numpy as np

from c2b_ray.models.pixels.resize import ResizedRegion, resize
from c2b_ray.roles import Pixels, Shape


def shaped(image: Pixels, shape: Shape) -> Pixels:
    """Returns `image` resized and cropped, uint8 (height, width, 3); the values are those of torchvision's transforms
    of a picture of Pillow."""
    height, width = resized_size(shape.size, *image.shape[:2])
    if shape.crop is None:
        return resize(image, height, width, shape.filter)
    tall, wide = shape.crop
    if tall <= height and wide <= width:
        # Half a pixel is rounded to an even number, as torchvision does.
        window = ResizedRegion(round((height - tall) / 2), round((width - wide) / 2), tall, wide)
        return resize(image, height, width, shape.filter, window)
    return _padded(resize(image, height, width, shape.filter), tall, wide)


def resized_size(size: int | tuple[int, int] | None, height: int, width: int) -> tuple[int, int]:
    """Returns height and width of a picture of `height` × `width` that is resized to a `Shape`'s `size`."""
    if size is None:
        return height, width
    if isinstance(size, tuple):
        return size
    if width <= height:
        return int(size * height / width), size
    return size, int(size * width / height)


def _padded(image: Pixels, tall: int, wide: int) -> Pixels:
    """Returns the centre of a picture that is smaller than the crop on one side or both, with black borders there.

    Source: torchvision, transforms/functional.py (`center_crop`).
    """
    height, width = image.shape[:2]
    left = (wide - width) // 2 if wide > width else 0
    top = (tall - height) // 2 if tall > height else 0
    right = (wide - width + 1) // 2 if wide > width else 0
    bottom = (tall - height + 1) // 2 if tall > height else 0
    whole = np.pad(image, ((top, bottom), (left, right), (0, 0)))
    height, width = whole.shape[:2]
    if (width, height) == (wide, tall):
        return whole
    top, left = round((height - tall) / 2), round((width - wide) / 2)
    return np.ascontiguousarray(whole[top : top + tall, left : left + wide])
