"""Classifiers that can be trained: a new module or one with weights, its preprocessing, and how it is saved.

    timm:…   torchvision:…   world:…      and nothing behind a URL, in a table or in an ONNX file

It knows the loader of each scheme, and nothing of training. Saved modules load through the same loaders.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog
from c2b_ray.models.catalog import Spec
from c2b_ray.models.pixels.preprocess import OnArrays, Transform, batched
from c2b_ray.models.torch_runtime import device_of
from c2b_ray.roles import Description, Pixels

TRAINABLE = {
    "timm": "c2b_ray.models.timm_classifier:trainable",
    "torchvision": "c2b_ray.models.torchvision_classifier:trainable",
    "world": "c2b_ray.world.zoo:trainable",
}

Build = Callable[[bool], nn.Module]
"""Builds the module, with its weights or with new ones from torch's random state."""


@dataclass(frozen=True)
class Trainable:
    """A trainable classifier. `save`: returns the files of a module, by name. `reload`: returns the spec that loads
    them from their folder."""

    spec: str
    known: Description
    transform: Transform
    build: Build
    save: Callable[[nn.Module], Mapping[str, bytes]]
    reload: Callable[[str], str]

    @property
    def prepare(self) -> OnArrays:
        """The preprocessing: from pixels to uint8 arrays of one size, and from these to the module's input."""
        prepared = batched(self.transform)
        if not isinstance(prepared, OnArrays):
            raise SpecError(
                f"{self.spec}: its preprocessing is none of resizing, cropping and normalising; it cannot be trained"
            )
        return prepared

    def shaped(self, images: Sequence[Pixels]) -> NDArray[np.uint8]:
        """Returns the images as the classifier sees them before normalising, uint8 (images, height, width, 3)."""
        prepare = self.prepare
        return np.stack([prepare.shaped(image) for image in images])

    def fresh(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return self.build(False)

    def placed(self, module: nn.Module) -> nn.Module:
        """Places the module on the device of the spec, or of this process, in a suitable memory layout."""
        layout = torch.channels_last
        return module.to(device_of(catalog.parse(self.spec)), memory_format=layout)  # type: ignore[call-overload,no-any-return]


def trainable(text: str) -> Trainable:
    """Returns the trainable classifier of a spec. Raises SpecError for a classifier that cannot be trained."""
    spec = catalog.parse(text)
    if spec.scheme not in TRAINABLE:
        raise SpecError(
            f"{text}: only {', '.join(f'{name}:' for name in TRAINABLE)} classifiers can be trained here; others would "
            "need their weights and their code"
        )
    module, _, name = TRAINABLE[spec.scheme].partition(":")
    make: Callable[[Spec], Trainable] = getattr(importlib.import_module(module), name)
    return make(spec)
