"""Pictures to a batch of tensors, as the library that trained the model prepares them.

The steps of torchvision's, timm's and open_clip's transforms are extracted and done on arrays, with the same values as
with Pillow and in a seventh of its time (docs/decisions/007-resizing-as-pillow-does.md). A transform with a step that
is not known here is called as it is. It knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torchvision import transforms
from torchvision.transforms._presets import ImageClassification

from c2b_ray.models.pixels.filters import Filter
from c2b_ray.models.pixels.resize import shaped
from c2b_ray.models.spec_options import to_pil
from c2b_ray.roles import Pixels, Shape

Transform = Callable[[Any], torch.Tensor]
_FILTERS: dict[Any, Filter] = {
    transforms.InterpolationMode.BILINEAR: "bilinear",
    transforms.InterpolationMode.BICUBIC: "bicubic",
}


class Preparation(Protocol):
    """Preprocessing of rows into a batch of a model's input, in two halves between which the batch is copied to the
    model's device."""

    def stacked(self, rows: Any, pinned: bool = False) -> torch.Tensor:
        """Does the first half, on the CPU; `pinned`: in memory from which a GPU copies by itself."""

    def normalised(self, stacked: torch.Tensor) -> torch.Tensor:
        """Does the second half, on the device of `stacked`."""


def batched(transform: Transform) -> OnArrays | OneByOne:
    """Returns a batched equivalent of `transform`."""
    return _read(transform) or OneByOne(transform)


def shape_of(transform: Transform) -> Shape | None:
    """Returns how a process without the model can prepare pictures for `transform`; None where it cannot."""
    arrays = _read(transform)
    return None if arrays is None else arrays.shape


@dataclass(frozen=True)
class OneByOne:
    """A transform whose steps are not known here, called for each picture."""

    transform: Transform

    def stacked(self, rows: Sequence[Pixels], pinned: bool = False) -> torch.Tensor:
        """float32 (pictures, 3, height, width)."""
        tensor = torch.stack([self.transform(to_pil(image)) for image in rows])
        return tensor.pin_memory() if pinned else tensor

    def normalised(self, stacked: torch.Tensor) -> torch.Tensor:
        return stacked

    def __call__(self, images: Sequence[Pixels]) -> torch.Tensor:
        return self.stacked(images)


@dataclass(frozen=True)
class OnArrays:
    """Resizes, crops the centre, then normalises; each step but the last may be absent.

    `size`: of the shorter side, or (height, width); `crop`: (height, width); `mean` and `std` per channel, of values
    from 0 to 1. Batches have channels last, as pixels come and as convolutions on a CPU are fastest.
    """

    size: int | tuple[int, int] | None
    filter: Filter
    crop: tuple[int, int] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Sequence[Pixels]) -> torch.Tensor:
        return self.normalised(self.stacked(images))

    def stacked(self, rows: Sequence[Pixels], pinned: bool = False) -> torch.Tensor:
        """uint8 (pictures, height, width, 3): a quarter of the bytes of what the model gets."""
        shaped = [self.shaped(image) for image in rows]
        stacked = torch.empty((len(shaped), *shaped[0].shape), dtype=torch.uint8, pin_memory=pinned)
        np.stack(shaped, out=stacked.numpy())
        return stacked

    def normalised(self, stacked: torch.Tensor) -> torch.Tensor:
        """float32 (pictures, 3, height, width) with channels last, on the device of `stacked`."""
        values = stacked.permute(0, 3, 1, 2).to(torch.float32).div_(255)
        mean, std = (_channels(values, stacked.device) for values in (self.mean, self.std))
        return values.sub_(mean).div_(std)

    @property
    def shape(self) -> Shape:
        return Shape(self.size, self.filter, self.crop)

    @property
    def prepared(self) -> Prepared:
        """The second half alone."""
        return Prepared(self)

    def shaped(self, image: Pixels) -> Pixels:
        """`image` resized and cropped, uint8 (height, width, 3)."""
        return shaped(image, self.shape)


@lru_cache(maxsize=64)
def _channels(values: tuple[float, ...], device: torch.device) -> torch.Tensor:
    """Returns a value per channel on a device, float32 (channels, 1, 1). Kept, because making it waits for the GPU."""
    with torch.inference_mode(mode=False):
        return torch.tensor(values, dtype=torch.float32, device=device).view(-1, 1, 1)


@dataclass(frozen=True)
class Prepared:
    """The second half of `OnArrays`, for `Blocks` of pictures whose first half another process has done."""

    arrays: OnArrays

    def stacked(self, rows: Any, pinned: bool = False) -> torch.Tensor:
        """uint8 (pictures, height, width, 3)."""
        if not pinned:
            return torch.from_numpy(rows if rows.flags.writeable else rows.copy())
        stacked = torch.empty(rows.shape, dtype=torch.uint8, pin_memory=True)
        np.copyto(stacked.numpy(), rows)
        return stacked

    def normalised(self, stacked: torch.Tensor) -> torch.Tensor:
        """As `OnArrays.normalised`."""
        return self.arrays.normalised(stacked)


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
