"""Pictures prepared without the model have the bytes of torchvision's own transforms."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from torchvision import transforms

from c2b_ray.models.pixels.resize import shaped
from c2b_ray.roles import Shape

FILTERS = {"bilinear": transforms.InterpolationMode.BILINEAR, "bicubic": transforms.InterpolationMode.BICUBIC}


@pytest.mark.parametrize("picture", [(40, 61), (61, 40), (17, 90), (90, 17), (33, 33), (5, 4)])
@pytest.mark.parametrize(
    "shape",
    [
        Shape(32, "bilinear", (28, 28)),
        Shape(24, "bicubic", (31, 27)),  # larger than some resized pictures: torchvision adds black borders
        Shape((20, 30), "bicubic", None),
        Shape(None, "bilinear", (25, 36)),
        Shape(None, "bilinear", None),
    ],
)
def test_it_equals_torchvision(picture: tuple[int, int], shape: Shape) -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (*picture, 3), np.uint8)
    image = Image.fromarray(pixels)
    if shape.size is not None:
        image = transforms.Resize(shape.size, FILTERS[shape.filter])(image)
    if shape.crop is not None:
        image = transforms.CenterCrop(shape.crop)(image)
    np.testing.assert_array_equal(shaped(pixels, shape), np.asarray(image))


def test_it_needs_no_pytorch() -> None:
    code = "import sys, c2b_ray.models.pixels.resize, c2b_ray.steps.decode; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
