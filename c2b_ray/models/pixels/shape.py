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
    crop_height, crop_width = shape.crop
    if crop_height <= height and crop_width <= width:
        # Half a pixel is rounded to an even number, as torchvision does.
        window = ResizedRegion(
            round((height - crop_height) / 2), round((width - crop_width) / 2), crop_height, crop_width
        )
        return resize(image, height, width, shape.filter, window)
    return _padded(resize(image, height, width, shape.filter), crop_height, crop_width)


def resized_size(size: int | tuple[int, int] | None, height: int, width: int) -> tuple[int, int]:
    """Returns height and width of a picture of `height` × `width` that is resized to a `Shape`'s `size`."""
    if size is None:
        return height, width
    if isinstance(size, tuple):
        return size
    if width <= height:
        return int(size * height / width), size
    return size, int(size * width / height)


def _padded(image: Pixels, crop_height: int, crop_width: int) -> Pixels:
    """Returns the centre of a picture that is smaller than the crop on one side or both, with black borders there.

    Source: torchvision, transforms/functional.py (`center_crop`).
    """
    height, width = image.shape[:2]
    first_column = (crop_width - width) // 2 if crop_width > width else 0
    top = (crop_height - height) // 2 if crop_height > height else 0
    right = (crop_width - width + 1) // 2 if crop_width > width else 0
    bottom = (crop_height - height + 1) // 2 if crop_height > height else 0
    padded = np.pad(image, ((top, bottom), (first_column, right), (0, 0)))
    height, width = padded.shape[:2]
    if (width, height) == (crop_width, crop_height):
        return padded
    top, first_column = round((height - crop_height) / 2), round((width - crop_width) / 2)
    return np.ascontiguousarray(padded[top : top + crop_height, first_column : first_column + crop_width])
