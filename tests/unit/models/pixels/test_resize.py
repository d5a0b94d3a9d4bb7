"""Pictures as Pillow resizes them, by a model's shape, and as tensors."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision import transforms

from c2b_ray.models.pixels.filters import Filter
from c2b_ray.models.pixels.gpu_decode import can_resize, resized
from c2b_ray.models.pixels.resize import ResizedRegion, resize, shaped
from c2b_ray.roles import Shape

SIDE = st.integers(1, 150)


@st.composite
def windows(draw: st.DrawFn, height: int, width: int) -> ResizedRegion:
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    return ResizedRegion(top, left, draw(st.integers(1, height - top)), draw(st.integers(1, width - left)))


@settings(deadline=None, max_examples=200)
@given(st.data(), SIDE, SIDE, SIDE, SIDE, st.sampled_from(["bilinear", "bicubic"]), st.booleans(), st.integers(0, 99))
def test_every_pixel_is_pillows_whatever_the_sizes_and_the_window(
    data: st.DataObject, tall: int, wide: int, height: int, width: int, kind: Filter, stark: bool, seed: int
) -> None:
    image = np.random.default_rng(seed).integers(0, 256, (tall, wide, 3), dtype=np.uint8)
    if stark:  # sums beyond black and white
        image = np.where(image < 128, np.uint8(0), np.uint8(255))
    expected = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling[kind.upper()]))
    np.testing.assert_array_equal(resize(image, height, width, kind), expected)
    top, left, high, broad = window = data.draw(windows(height, width))
    found = resize(image, height, width, kind, window)
    np.testing.assert_array_equal(found, expected[top : top + high, left : left + broad])


def test_photographs_of_many_strips_and_views_of_larger_arrays_are_pillows_too() -> None:
    large = np.random.default_rng(0).integers(0, 256, (700, 1001, 6), dtype=np.uint8)
    view = large[::2, 1:, ::2]
    view.flags.writeable = False
    expected = Image.fromarray(np.ascontiguousarray(view)).resize((341, 119), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(resize(view, 119, 341, "bicubic"), np.asarray(expected))


@pytest.mark.parametrize("crop", [(8, 8), (40, 40), None])  # of the resized picture, beyond it, and none
def test_a_picture_may_be_written_into_a_block(crop: tuple[int, int] | None) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (2, 30, 24, 3), dtype=np.uint8)
    shape = Shape((16, 12), "bilinear", crop)
    block = np.zeros((2, *(shape.frame or ()), 3), np.uint8)
    for place, picture in zip(block, pictures, strict=True):
        result = shaped(picture, shape, place)
        assert (result is place) == (crop != (40, 40))
        np.testing.assert_array_equal(result, shaped(picture, shape))


def test_nothing_compiled_is_loaded_where_pictures_fit() -> None:
    fits = "resize(numpy.zeros((8, 8, 3), 'u1'), 8, 8, 'bilinear'); print('llvmlite' in sys.modules)"
    assert said(fits) == "False"


def said(code: str) -> str:
    """What `code` prints in a process of its own."""
    command = [sys.executable, "-c", f"import sys, numpy; from c2b_ray.models.pixels.resize import resize; {code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


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
