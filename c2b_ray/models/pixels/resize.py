"""Pillow's `resize`, bit for bit, for only those pixels that a crop keeps; and pictures to a model's shape or tensor.

Pillow's filters work in whole numbers: weights in 22 bits after the point, across first, then down, rounded to a byte
in between. Here the same sums are compiled for vectors (numba), which takes a seventh of the time
(docs/decisions/007-resizing-as-pillow-does.md); the tall pictures that go down first are left to Pillow. It knows
arrays and shapes, no model and no PyTorch.

Source: Pillow, src/libImaging/Resample.c (the two 8-bit passes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from c2b_ray.compiled import Held, Room, kernel
from c2b_ray.models.pixels.filters import Filter, weights
from c2b_ray.roles import Pixels, Shape

STRIP = 32
"""Rows that go across together: few enough to stay in a core's own cache, however wide the picture."""


class ResizedRegion(NamedTuple):
    """Part of a resized picture, in its pixels."""

    top: int
    left: int
    height: int
    width: int


def resize(
    image: Pixels,
    height: int,
    width: int,
    kind: Filter,
    window: ResizedRegion | None = None,
    into: Pixels | None = None,
) -> Pixels:
    """Resizes `image` to `height` × `width`; returns only `window` of the result, which lies inside it, where a window
    is passed.

    `into`: an array in one piece, of the result's size, which may get the result. The result equals that of
    `PIL.Image.Image.resize`, uint8 (height, width, 3); it is `image` itself where there is nothing to do.
    """
    top, first_column, out_height, out_width = window or ResizedRegion(0, 0, height, width)
    if image.shape[:2] == (height, width):
        return image[top : top + out_height, first_column : first_column + out_width]
    if goes_down_first((image.shape[0], image.shape[1]), (height, width)):
        resized_image = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling[kind.upper()]))
        return resized_image[top : top + out_height, first_column : first_column + out_width]
    resized = np.empty((out_height, out_width, 3), np.uint8) if into is None else into
    lines, resized_lines = np.ascontiguousarray(image).reshape(len(image), -1), resized.reshape(out_height, -1)
    columns, x_arguments = _line(image.shape[1], width, first_column, out_width, kind)
    rows, y_arguments = _line(image.shape[0], height, top, out_height, kind)
    two_passes = kernel("c2b_ray.models.pixels.resize_compiled", "two_passes")
    two_passes(lines, *x_arguments, *y_arguments, *_ROOM(columns, rows, out_width), resized_lines)
    return resized


@lru_cache(maxsize=1024)
def _line(old: int, new: int, begin: int, count: int, kind: Filter) -> tuple[int, tuple[Held, Held]]:
    """Returns of how many pixels of a line of `old` the pixels from `begin` on of `new` are sums, and their starts and
    weights."""
    starts, taps = weights(old, new, begin, begin + count, kind)
    return int(starts[-1]) + taps.shape[1] - int(starts[0]), (Held(starts), Held(taps))


_ROOM = Room(
    lambda columns, rows, out_width: (
        np.empty((columns, 3 * STRIP), np.uint8),
        np.empty((out_width, 3 * STRIP), np.uint8),
        np.empty((rows + 3, 3 * out_width), np.uint8),
        np.empty(4 * 3 * max(columns, out_width), np.uint8),
        np.empty(3 * max(STRIP, out_width), np.int32),
    )
)
"""What the two passes work in: a transposed strip of rows before and after it goes across, all rows after they went
across, four rows woven into one, and the sums of a line."""


def goes_down_first(old: tuple[int, int], new: tuple[int, int]) -> bool:
    """Tells whether Pillow 13, and none before, resizes pictures of this height and width down before across."""
    lost_down, lost_across = old[0] - new[0], old[1] - new[1]
    return lost_down > max(0, 2 * lost_across)


# Pictures by a model's `Shape`: resized and cropped to bytes.


def shaped(image: Pixels, shape: Shape, into: Pixels | None = None) -> Pixels:
    """Returns `image` resized and cropped, uint8 (height, width, 3); the values are those of torchvision's transforms
    of a picture of Pillow. `into`: as of `resize`."""
    height, width = resized_size(shape.size, *image.shape[:2])
    if shape.crop is None:
        return resize(image, height, width, shape.filter, into=into)
    crop_height, crop_width = shape.crop
    if crop_height <= height and crop_width <= width:
        # Half a pixel is rounded to an even number, as torchvision does.
        window = ResizedRegion(
            round((height - crop_height) / 2), round((width - crop_width) / 2), crop_height, crop_width
        )
        return resize(image, height, width, shape.filter, window, into)
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


# Pictures as the tensor that an ONNX graph takes: resized, cropped, scaled, normalised.


@dataclass(frozen=True)
class Preprocessing:
    """From images, uint8 (height, width, 3), to the input tensor; each field as in `onnx_classifier`'s table.

    `repr` is of the fields that each had from the start; `unusual` names the others where they differ from the default.
    """

    height: int
    width: int
    resize: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float
    channels_last: bool
    dtype: str
    squash: bool = field(default=False, repr=False)
    interpolation: Filter = field(default="bilinear", repr=False)
    bgr: bool = field(default=False, repr=False)

    @property
    def unusual(self) -> list[str]:
        return [
            *(["squash"] if self.squash else []),
            *([self.interpolation] if self.interpolation != "bilinear" else []),
            *(["bgr"] if self.bgr else []),
        ]

    def __call__(self, images: Sequence[Pixels]) -> NDArray[Any]:
        """(images, 3, height, width), or (images, height, width, 3) where channels come last."""
        return self.of_shaped([self._cropped(image) for image in images])

    @property
    def of_shape(self) -> Shape | None:
        """How pictures are resized and cropped, where a `Shape` says it: for a square input."""
        side = (self.height, self.width)
        return Shape(self.resize, "bilinear", side) if self.height == self.width else None

    def of_shaped(self, images: Sequence[Pixels]) -> NDArray[Any]:
        """As a call, of pictures that are resized and cropped."""
        shape = (self.height, self.width, 3) if self.channels_last else (3, self.height, self.width)
        channels = (3,) if self.channels_last else (3, 1, 1)
        mean, std = (np.array(values, np.float32).reshape(channels) for values in (self.mean, self.std))
        rows = np.empty((len(images), *shape), self.dtype)
        for row, image in zip(rows, images, strict=True):
            pixels = image[..., ::-1] if self.bgr else image
            pixels = pixels if self.channels_last else pixels.transpose(2, 0, 1)
            if self.dtype == "uint8":
                row[...] = pixels
                continue
            # In place and plane by plane: a quarter of the time that copies of whole pictures take.
            values = row if row.dtype == np.float32 else np.empty(shape, np.float32)
            np.multiply(pixels, np.float32(self.scale), out=values)
            values -= mean
            values /= std
            if values is not row:
                row[...] = values
        return rows

    def _cropped(self, image: Pixels) -> Pixels:
        if self.squash:
            return resize(image, self.height, self.width, self.interpolation)
        short = min(self.height, self.width)
        cover_height, cover_width = round(self.resize * self.height / short), round(self.resize * self.width / short)
        height, width = image.shape[:2]
        # The picture is made to cover that size: one side fits, the other keeps the proportion (rounded down, as
        # torchvision does) and is trimmed.
        if width * cover_height <= height * cover_width:
            size = (max(cover_height, cover_width * height // width), cover_width)
        else:
            size = (cover_height, max(cover_width, cover_height * width // height))
        window = ResizedRegion(
            round((size[0] - self.height) / 2), round((size[1] - self.width) / 2), self.height, self.width
        )
        return resize(image, *size, self.interpolation, window)
