import re

import numpy as np
import pytest

from c2b_ray.image_check import checked_image

NOISE = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)


@pytest.mark.parametrize("values", [NOISE, NOISE / 255, (NOISE / 255).astype(np.float32)])
def test_levels_and_shares_give_the_same_picture(values):
    found = checked_image(values, (6, 8))
    assert found.error is None
    assert found.pixels.dtype == np.uint8
    np.testing.assert_array_equal(found.pixels, NOISE)


@pytest.mark.parametrize(
    ("values", "size", "words"),
    [
        (NOISE, (8, 6), "the image is 6 × 8 pixels, asked for were 8 × 6"),
        (NOISE[:, :, 0], None, r"shape \(6, 8\), not height × width × 3"),
        (np.zeros((6, 8, 4)), None, r"shape \(6, 8, 4\)"),
        (np.zeros((0, 8, 3)), None, "empty: 0 × 8"),
        (NOISE.astype(np.int64), None, "int64 values"),
        (np.full((6, 8, 3), 2, np.uint8), None, "all black"),
        (np.full((6, 8, 3), 90, np.uint8), None, "single colour"),
        (np.full((6, 8, 3), np.inf), None, "NaN or infinite"),
    ],
)
def test_what_is_no_picture_says_why(values, size, words):
    found = checked_image(values, size)
    assert found.pixels is None
    assert re.search(words, found.error)
