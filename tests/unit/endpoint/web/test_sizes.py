"""Sizes on the pages, in words."""

import pytest

from c2b_ray.endpoint.web.rendering import size


@pytest.mark.parametrize(
    ("bytes_", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "0.977 KiB"),
        (1_010 * 2**10, "0.986 MiB"),
        (2**30, "1 GiB"),
        (20 * 2**30, "20 GiB"),
    ],
)
def test_a_size_has_three_digits(bytes_, words):
    assert size(bytes_) == words
