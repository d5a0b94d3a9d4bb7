"""What crosses between a handle and a replica: images in one buffer, batches in chunks."""

from __future__ import annotations

import pickle
from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from c2b_ray.serving.pictures import pack, pack_files, pixels_of, spans, unpack
from c2b_ray.steps.decode import decode


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=6))
def test_images_of_any_sizes_come_out_as_they_went_in(sizes: list[tuple[int, int]]) -> None:
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
    packed = pack(images)
    assert len(packed) == len(images)
    for found, image in zip(unpack(packed), images, strict=True):
        np.testing.assert_array_equal(found, image)


def test_unpacking_copies_nothing() -> None:
    packed = pack([np.ones((2, 2, 3), np.uint8)])
    assert np.shares_memory(unpack(packed)[0], packed.buffer)


@pytest.mark.parametrize("image", [np.ones((2, 2, 3)), np.ones((2, 2), np.uint8), np.ones((2, 2, 4), np.uint8)])
def test_what_is_no_image_is_named(image: np.ndarray) -> None:
    with pytest.raises(ValueError, match="image 1 is"):
        pack([np.ones((2, 2, 3), np.uint8), image])


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 10), st.integers(1, 100))
def test_spans_cover_every_row_once_and_keep_the_bounds(sizes: list[int], most: int, most_bytes: int) -> None:
    parts = spans(sizes, most, most_bytes)
    assert [row for part in parts for row in range(len(sizes))[part]] == list(range(len(sizes)))
    for part in parts:
        held = sizes[part]
        assert 1 <= len(held) <= most
        assert len(held) == 1 or sum(held) <= most_bytes


def photo() -> np.ndarray:
    """500 × 375, with as much detail as a photograph: smooth shapes under a little noise."""
    y, x = np.mgrid[0:375, 0:500]
    shapes = np.stack([128 + 90 * np.sin(x / (20 + 9 * c)) * np.cos(y / (31 - 5 * c)) for c in range(3)], axis=-1)
    noise = np.random.default_rng(0).normal(0, 9, shapes.shape)
    return np.clip(shapes + noise, 0, 255).astype(np.uint8)


def test_an_encoded_image_travels_as_its_file_and_decodes_to_the_same_pixels() -> None:
    file = BytesIO()
    Image.fromarray(photo()).save(file, "JPEG", quality=90)
    files = [file.getvalue()] * 32
    sent = len(pickle.dumps(pack_files(files))) / 32
    raw = len(pickle.dumps(pack([photo()] * 32))) / 32
    print(f"bytes an image: {sent:.0f} as its file, {raw:.0f} as pixels")
    assert sent < len(files[0]) + 100
    assert raw > 5 * sent
    images, errors = pixels_of(pack_files([*files, None, b"no image"]))
    assert errors[:32] == [None] * 32
    assert all(errors[32:])
    for image in images[:32]:
        np.testing.assert_array_equal(image, decode(files[0]))
