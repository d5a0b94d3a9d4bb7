"""Pictures to a batch of tensors, as the library that trained the model prepares them.

What torchvision's, timm's and open_clip's transforms do is read off them and done on uint8 tensors, by torchvision's
own kernels for these, where the libraries would go through Pillow: four times as fast, and within 2 of 255 levels
(docs/decisions/007.md). A transform with a step that is not known here is called as it is. It knows no model.
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

from c2b_ray.models.spec_options import to_pil
from c2b_ray.roles import Pixels

VERSION = "uint8 tensors"
"""Part of the revision of every model whose pictures are prepared here."""

Transform = Callable[[Any], torch.Tensor]
Batched = Callable[[Sequence[Pixels]], torch.Tensor]
_INTERPOLATIONS = (transforms.InterpolationMode.BILINEAR, transforms.InterpolationMode.BICUBIC)


def batched(transform: Transform) -> Batched:
    """From pictures to what `transform` makes of each, float32 (pictures, 3, height, width)."""
    return _read(transform) or partial(_one_by_one, transform)


def _one_by_one(transform: Transform, images: Sequence[Pixels]) -> torch.Tensor:
    return torch.stack([transform(to_pil(image)) for image in images])


@dataclass(frozen=True)
class OnTensors:
    """Batches with channels last, as pixels come and as convolutions on a CPU are fastest.

    `shape`: steps on one uint8 tensor (3, height, width); `mean` and `std` per channel, of values from 0 to 1.
    """

    shape: tuple[Callable[[torch.Tensor], torch.Tensor], ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Sequence[Pixels]) -> torch.Tensor:
        shaped = [self.shaped(image) for image in images]
        pixels = torch.stack([image.permute(1, 2, 0) for image in shaped]).permute(0, 3, 1, 2)
        mean, std = (torch.tensor(values, dtype=torch.float32).view(-1, 1, 1) for values in (self.mean, self.std))
        return pixels.to(torch.float32).div_(255).sub_(mean).div_(std)

    def shaped(self, image: Pixels) -> torch.Tensor:
        # torch warns of arrays that cannot be written to, as views of Ray's shared memory are.
        owned = image if image.flags.writeable and image.flags.c_contiguous else np.array(image, order="C")
        tensor = torch.from_numpy(owned).permute(2, 0, 1)
        for step in self.shape:
            tensor = step(tensor)
        return tensor


def _read(transform: Any) -> OnTensors | None:
    """`transform` on tensors; None where it holds anything but resizing, cropping and normalising, in that order."""
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
    *shaping, last, norm = [None, None, *steps]
    if not isinstance(last, transforms.ToTensor) or type(norm) is not transforms.Normalize:
        return None
    known = [_known(step) for step in shaping if step is not None]
    if any(step is None for step in known):
        return None
    mean, std = (tuple(float(v) for v in torch.as_tensor(values).flatten()) for values in (norm.mean, norm.std))
    return OnTensors(tuple(step for step in known if step is not None), mean, std)


def _known(step: Any) -> Callable[[torch.Tensor], torch.Tensor] | None:
    if type(step) is transforms.CenterCrop:
        return partial(F.center_crop, output_size=list(step.size))
    if type(step) is transforms.Resize and step.interpolation in _INTERPOLATIONS and step.max_size is None:
        size = [step.size] if isinstance(step.size, int) else list(step.size)
        # On a PIL image the libraries always smooth when they shrink, whatever `antialias` says.
        return partial(F.resize, size=size, interpolation=step.interpolation, antialias=True)
    return None
