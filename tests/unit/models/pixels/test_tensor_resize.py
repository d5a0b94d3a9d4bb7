"""Resizing on tensors gives Pillow's values, but for one level where a sum lies between two."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from c2b_ray.models.pixels import tensor_resize
from c2b_ray.models.pixels.shape import shaped
from c2b_ray.models.pixels.tensor_resize import shaped_tensors
from c2b_ray.roles import Pixels, Shape

SIDES = [(375, 500), (500, 375), (333, 500), (100, 90), (224, 224), (601, 401), (225, 226), (900, 300), (37, 512)]
SHAPES = [
    Shape(256, "bilinear", (224, 224)),
    Shape(224, "bicubic", (224, 224)),
    Shape((64, 80), "bicubic", None),
    Shape(40, "bilinear", (64, 64)),  # smaller than the crop: black borders
    Shape(None, "bilinear", (30, 31)),
]


def pictures() -> list[Pixels]:
    random = np.random.default_rng(0)
    result = []
    for height, width in SIDES:
        coarse = random.integers(0, 256, (height // 5 + 1, width // 5 + 1, 3), dtype=np.uint8)
        smooth = np.kron(coarse, np.ones((5, 5, 1), np.uint8))[:height, :width]
        result.append(np.clip(smooth + random.normal(0, 10, smooth.shape), 0, 255).astype(np.uint8))
    return result


def tensors() -> list[torch.Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(one.transpose(2, 0, 1))) for one in pictures()]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("at_once", [tensor_resize.AT_ONCE, 600 * 600])
def test_pictures_of_many_sizes_are_resized_as_pillow_does(
    shape: Shape, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensor_resize, "AT_ONCE", at_once)
    expected = np.stack([shaped(one, shape) for one in pictures()]).astype(int)
    there = shaped_tensors(tensors(), shape)
    assert there.dtype == torch.uint8
    apart = np.abs(there.numpy().astype(int) - expected)
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.002
