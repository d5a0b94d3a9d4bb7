"""Classifiers whose answers are differentiable in their images, preprocessing included.

    timm:…  torchvision:…  hf:…  world:…  a torch module in memory

The resizing, cropping and normalising of the classifier is done on tensors. Images are not rounded to bytes on the way;
otherwise the answers are the classifier's own, which is checked when one is loaded. Classifiers behind a URL, in a
table, in an ONNX graph or in a custom function are refused. It knows modules and preprocessing, and not the use of
gradients.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as F

from c2b_ray.errors import SpecError
from c2b_ray.models import catalog, devices
from c2b_ray.models.heads import refuse_independent_labels, refuse_without_gradients
from c2b_ray.models.memory_classifier import MemoryClassifier, evaluating
from c2b_ray.models.pixels.preprocess import OnArrays, OneByOne
from c2b_ray.models.torch_runtime import TorchClassifier

PIXELS, ANSWERS = 0.02, 0.1
"""The largest allowed differences from the classifier: of the normalised input, on average, and of the probabilities.
Resizing in floats, without rounding to bytes, changes both."""
_RESIZING = {"bilinear": InterpolationMode.BILINEAR, "bicubic": InterpolationMode.BICUBIC}


@dataclass(frozen=True)
class TensorPreparation:
    """`OnArrays` on tensors in [0, 1], differentiable."""

    steps: OnArrays

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """(rows, 3, height, width) in [0, 1] → the module's input."""
        size = self.steps.size
        if size is not None:
            shape = [size] if isinstance(size, int) else list(size)
            images = F.resize(images, shape, _RESIZING[self.steps.filter], antialias=True)
        if self.steps.crop is not None:
            images = F.center_crop(images, list(self.steps.crop))
        normal: torch.Tensor = F.normalize(images, list(self.steps.mean), list(self.steps.std))
        return normal


class TorchGradients:
    """A module behind its differentiable preprocessing; implements `roles.GradientClassifier`."""

    def __init__(
        self,
        module: nn.Module,
        prepare: TensorPreparation,
        labels: tuple[str, ...],
        revision: str,
        evaluates: bool = False,
    ) -> None:
        self._module, self.prepare, self._evaluates = module, prepare, evaluates
        self.labels, self.revision = labels, revision
        parameter = next(iter(module.parameters()), torch.zeros(0))
        self._device, self._dtype = (
            parameter.device,
            parameter.dtype if parameter.is_floating_point() else torch.float32,
        )

    def logits_of(self, images: Any) -> torch.Tensor:
        """Returns logits, float32 (rows, labels); of one output z for two labels, (0, z)."""
        values = self.prepare(images.to(self._device, torch.float32)).to(self._dtype)
        mode: AbstractContextManager[None] = evaluating(self._module) if self._evaluates else nullcontext()
        with mode:
            logits: torch.Tensor = self._module(values).float()
        logits = _as_logits(logits) if self._evaluates else logits
        single = logits.dim() == 1 or logits.shape[1] == 1
        if single and len(self.labels) == 2:
            score = logits.reshape(-1, 1)
            return torch.cat([torch.zeros_like(score), score], dim=1)
        return logits

    def probabilities(self, images: Any) -> torch.Tensor:
        return torch.softmax(self.logits_of(images), dim=1)


def _as_logits(rows: torch.Tensor) -> torch.Tensor:
    """Converts a module's output to logits: an in-memory module may return probabilities (`memory_classifier`)."""
    with torch.no_grad():
        probable = bool((rows >= 0).all() and ((rows.sum(dim=1) - 1).abs() < 1e-3).all())
    return rows.clamp_min(torch.finfo(torch.float32).tiny).log() if probable else rows


def gradient_classifier(text: str) -> TorchGradients:
    """Loads the classifier of a spec with its gradients. SpecError says why a classifier has none."""
    refuse_without_gradients(text)
    with devices.exactly():
        classifier: Any = catalog.classifier(text)
    if isinstance(classifier, MemoryClassifier) and classifier.module is None:
        raise SpecError(f"{text}: a function has no gradients; pass a torch module")
    if not isinstance(classifier, TorchClassifier | MemoryClassifier) or classifier.preparation is None:
        raise SpecError(f"{text}: {type(classifier).__name__} gives no gradients; timm:, torchvision: and hf: do")
    refuse_independent_labels(text, classifier.head)
    is_in_memory = isinstance(classifier, MemoryClassifier)
    prepare = _on_tensors(classifier.preparation, text)
    module: Any = classifier.module
    result = TorchGradients(module, prepare, classifier.labels, classifier.revision, is_in_memory)
    _check(result, classifier, text)
    return result


def _on_tensors(preparation: Any, text: str) -> TensorPreparation:
    if isinstance(preparation, OnArrays):
        return TensorPreparation(preparation)
    if isinstance(preparation, OneByOne) and (steps := _of_processor(preparation.transform)) is not None:
        return TensorPreparation(steps)
    raise SpecError(
        f"{text}: its preprocessing is none of resizing, cropping and normalising, so it cannot be differentiated; "
        "give a c2b_ray.Preprocess"
    )


def _of_processor(transform: Any) -> OnArrays | None:
    """Reads the steps of an image processor of transformers; None unless these are resizing, cropping and
    normalising."""
    settings: dict[str, Any] = getattr(getattr(transform, "processor", None), "to_dict", dict)()
    size, crop = settings.get("size") or {}, settings.get("crop_size") or {}
    scale = settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale") else 1.0
    if not settings or settings.get("resample") not in (2, 3) or abs(scale * 255 - 1) > 1e-6:
        return None
    resized = (size["height"], size["width"]) if "height" in size else size.get("shortest_edge")
    if settings.get("do_resize") and resized is None:
        return None
    normal = settings.get("do_normalize")
    return OnArrays(
        size=resized if settings.get("do_resize") else None,
        filter="bicubic" if settings["resample"] == 3 else "bilinear",
        crop=(crop["height"], crop["width"]) if settings.get("do_center_crop") else None,
        mean=tuple(settings["image_mean"]) if normal else (0.0,) * 3,
        std=tuple(settings["image_std"]) if normal else (1.0,) * 3,
    )


def _check(result: TorchGradients, classifier: Any, text: str) -> None:
    """Raises SpecError where the differentiable classifier's answers differ from the classifier's."""
    x, y = np.meshgrid(np.linspace(0, 1, 64), np.linspace(0, 1, 64))
    waves = [np.stack([x, y, (np.sin((3 + i) * 6 * x * y) + 1) / 2], axis=2) for i in range(2)]
    pictures = [(wave * 255).round().astype(np.uint8) for wave in waves]
    images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255
    expected = classifier.preparation.normalised(classifier.preparation.stacked(pictures))
    inputs = result.prepare(images)
    gap = (inputs - expected).abs().mean().item() if inputs.shape == expected.shape else float("inf")
    if not gap <= PIXELS:
        raise SpecError(
            f"{text}: its preprocessing, made differentiable, gives pixels {gap:.3f} from its own on average (at "
            f"most {PIXELS}); it cannot be searched"
        )
    probabilities = result.probabilities(images.requires_grad_())
    if not probabilities.requires_grad:
        raise SpecError(f"{text}: its answers carry no gradients: its forward pass detaches them")
    answers = torch.softmax(torch.from_numpy(classifier.logits(pictures, ["a", "b"])), dim=1)
    if not answers.isfinite().all():
        raise SpecError(f"{text}: it answers NaN; expected finite logits for any image")
    if not (probabilities.detach().cpu() - answers).abs().max().item() <= ANSWERS:
        raise SpecError(f"{text}: with gradients it answers otherwise than without; it cannot be searched")
