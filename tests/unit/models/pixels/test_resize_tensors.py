"""Pictures resized by PyTorch have the bytes of `shaped`, and so of Pillow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from c2b_ray.models.pixels.gpu_decode import can_resize, resized
from c2b_ray.models.pixels.resize import shaped
from c2b_ray.roles import Shape

SIZES = [(375, 500), (500, 375), (64, 64), (40, 61), (61, 40), (33, 90), (300, 301), (24, 24), (256, 256), (25, 400)]
SHAPES = [
    Shape(32, "bilinear", (28, 28)),
    Shape(24, "bicubic", (24, 24)),
    Shape((20, 30), "bicubic", None),
    Shape((50, 40), "bilinear", (33, 40)),
    Shape(None, "bilinear", (20, 22)),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pictures_of_many_sizes_in_one_buffer(shape: Shape) -> None:
    random = np.random.default_rng(3)
    sizes = [size for size in SIZES if can_resize(size, shape)]
    assert len(sizes) > 4
    pictures = [random.integers(0, 256, (*size, 3), np.uint8) for size in sizes]
    flat = torch.from_numpy(np.concatenate([picture.ravel() for picture in pictures]))
    expected = np.stack([shaped(picture, shape) for picture in pictures])
    np.testing.assert_array_equal(resized(flat, sizes, shape).numpy(), expected)


@pytest.mark.parametrize(
    ("size", "shape"),
    [
        ((60, 60), Shape(24, "bilinear", (30, 24))),  # the crop is larger
        ((400, 60), Shape(50, "bilinear", (40, 40))),  # Pillow goes down first
        ((60, 80), Shape(24, "bilinear", None)),  # the result has the picture's proportions
    ],
)
def test_what_is_left_to_the_cpu(size: tuple[int, int], shape: Shape) -> None:
    assert not can_resize(size, shape)
