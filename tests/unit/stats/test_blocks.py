"""Blocks change no result, and bound what a computation holds at once."""

import numpy as np
import pytest

from c2b_ray.stats import contrasts, pooled
from c2b_ray.stats import scores as blocks
from c2b_ray.stats.scores import by_blocks


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_blocks_change_no_result(monkeypatch, size):
    rng = np.random.default_rng(3)
    images = rng.integers(1, 40, (6, 9)).astype(float)
    images[:, 4] = 0
    accuracy = np.where(images > 0, rng.binomial(images.astype(int), 0.85) / np.maximum(images, 1), np.nan)
    weights = np.where(np.eye(9) > 0, 1, -1 / 8) * (images > 0)[:, None, :]
    cells = (np.nan_to_num(accuracy) * images)[:, None, :], images[:, None, :], weights

    def computed():
        scores = pooled.pooled_bias_scores(accuracy, images, 0.05)
        interval = contrasts.contrast_interval(*cells, 0.9)
        tests = contrasts.contrast_p_values(*cells, 0.05), contrasts.contrast_none_p_values(*cells, 0.05)
        return [*(getattr(scores, name) for name in vars(scores)), *interval, *tests]

    whole = computed()
    monkeypatch.setattr(blocks, "BLOCK", size)
    monkeypatch.setattr(pooled, "BLOCK", size)
    for one, other in zip(computed(), whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-11)


def test_no_block_is_larger_than_it_may_be(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 24)
    seen = []

    def rows(a, b):
        seen.append(a.shape)
        return a.sum(axis=-1) + b[..., 0]

    a, b = np.arange(10.0)[:, None], np.arange(6.0)
    assert np.array_equal(by_blocks(rows, a, b), a[:, 0] * 6)
    assert seen == [(4, 6), (4, 6), (2, 6)]
    assert by_blocks(rows, np.empty((0, 6)), b).shape == (0,)
