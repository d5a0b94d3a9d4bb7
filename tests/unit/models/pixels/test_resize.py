"""`resize` against Pillow's own."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from c2b_ray.models.pixels.filters import Filter
from c2b_ray.models.pixels.resize import ResizedRegion, resize

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


def test_nothing_is_compiled_where_pictures_fit() -> None:
    fits = "resize(numpy.zeros((8, 8, 3), 'u1'), 8, 8, 'bilinear'); print('numba' in sys.modules)"
    assert said(fits) == "False"


@pytest.mark.long
def test_where_compiled_code_cannot_be_kept_it_is_compiled_again() -> None:
    nowhere = "from numba.core import caching; caching.CacheImpl._locator_classes = []"
    assert said(f"{nowhere}; print(resize(numpy.full((8, 8, 3), 7, 'u1'), 3, 3, 'bilinear').mean())") == "7.0"


def said(code: str) -> str:
    """What `code` prints in a process of its own."""
    command = [sys.executable, "-c", f"import sys, numpy; from c2b_ray.models.pixels.resize import resize; {code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
