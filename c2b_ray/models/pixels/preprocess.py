"""Pictures to a batch of tensors, as the library that trained the model prepares them.

What torchvision's, timm's and open_clip's transforms do is read off them and done on arrays, value for value as they do
it with Pillow and in a quarter of its time (docs/decisions/007.md). A transform with a step that is not known here is
called as it is. It knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torchvision import transforms
from torchvision.transforms._presets import ImageClassification
from torchvision.transforms.v2 import functional as F

from c2b_ray.models.pixels.filters import Filter
from c2b_ray.models.pixels.resize import Window, resize
from c2b_ray.models.spec_options import to_pil
from c2b_ray.roles import Pixels

Transform = Callable[[Any], torch.Tensor]
Batched = Callable[[Sequence[Pixels]], torch.Tensor]
_FILTERS: dict[Any, Filter] = {
    transforms.InterpolationMode.BILINEAR: "bilinear",
    transforms.InterpolationMode.BICUBIC: "bicubic",
}


def batched(transform: Transform) -> Batched:
    """From pictures to what `transform` makes of each, float32 (pictures, 3, height, width)."""
    return _read(transform) or partial(_one_by_one, transform)


def _one_by_one(transform: Transform, images: Sequence[Pixels]) -> torch.Tensor:
    return torch.stack([transform(to_pil(image)) for image in images])


@dataclass(frozen=True)
class OnArrays:
    """Resizing, then the centre cropped, then normalising; each but the last may be absent.

    `size`: of the shorter side, or (height, width); `crop`: (height, width); `mean` and `std` per channel, of values
    from 0 to 1. Batches have channels last, as pixels come and as convolutions on a CPU are fastest.
    """

    size: int | tuple[int, int] | None
    filter: Filter
    crop: tuple[int, int] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Sequence[Pixels]) -> torch.Tensor:
        pixels = torch.from_numpy(np.stack([self.shaped(image) for image in images])).permute(0, 3, 1, 2)
        mean, std = (torch.tensor(values, dtype=torch.float32).view(-1, 1, 1) for values in (self.mean, self.std))
        return pixels.to(torch.float32).div_(255).sub_(mean).div_(std)

    def shaped(self, image: Pixels) -> Pixels:
        """`image` resized and cropped, uint8 (height, width, 3)."""
        height, width = self._size(*image.shape[:2])
        if self.crop is None:
            return resize(image, height, width, self.filter)
        tall, wide = self.crop
        if tall <= height and wide <= width:
            # Half a pixel is rounded to an even number, as torchvision does.
            window = Window(round((height - tall) / 2), round((width - wide) / 2), tall, wide)
            return resize(image, height, width, self.filter, window)
        small = torch.tensor(resize(image, height, width, self.filter))
        padded: Pixels = F.center_crop(small.permute(2, 0, 1), [tall, wide]).permute(1, 2, 0).numpy()
        return padded

    def _size(self, height: int, width: int) -> tuple[int, int]:
        if self.size is None:
            return height, width
        if isinstance(self.size, tuple):
            return self.size
        if width <= height:
            return int(self.size * height / width), self.size
        return self.size, int(self.size * width / height)


def _read(transform: Any) -> OnArrays | None:
    """`transform` on arrays; None where it holds anything but resizing, cropping and normalising, in that order."""
    if type(transform) is ImageClassification:
        steps = [
            transforms.Resize(transform.resize_size, transform.interpolation, antialias=transform.antialias),
            transforms.CenterCrop(transform.crop_size),
            transforms.ToTensor(),
            transforms.Normalize(transform.mean, transform.std),
        ]
    elif type(transform) is transforms.Compose:
        steps = [step for step in transform.transforms if type(step).__name__ != "MaybeConvertMode"]  # to RGB
    else:
        return None
    size, kind, crop = None, _FILTERS[transforms.InterpolationMode.BILINEAR], None
    if steps and type(steps[0]) is transforms.Resize:
        step = steps.pop(0)
        if step.interpolation not in _FILTERS or step.max_size is not None:
            return None
        # On a PIL image the libraries always smooth when they shrink, whatever `antialias` says.
        size, kind = _size(step.size), _FILTERS[step.interpolation]
    if steps and type(steps[0]) is transforms.CenterCrop:
        height, width = steps.pop(0).size
        crop = (int(height), int(width))
    if len(steps) != 2 or not isinstance(steps[0], transforms.ToTensor) or type(steps[1]) is not transforms.Normalize:
        return None
    norm = steps[1]
    mean, std = (tuple(float(v) for v in torch.as_tensor(values).flatten()) for values in (norm.mean, norm.std))
    return OnArrays(size, kind, crop, mean, std)


def _size(size: Any) -> int | tuple[int, int]:
    sides = (size,) if isinstance(size, int) else tuple(size)
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))
