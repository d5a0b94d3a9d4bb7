"""From pictures to the tensor that an ONNX graph takes: resized, cropped, scaled, normalised. It knows no graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c2b_ray.models.pixels.filters import Filter
from c2b_ray.models.pixels.resize import ResizedRegion, resize
from c2b_ray.roles import Pixels, Shape


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
