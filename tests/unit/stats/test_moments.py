"""Moments and samples do not depend on how rows are cut into parts."""

from __future__ import annotations

import numpy as np

from c2b_ray.stats.distances import Moments, Sample


def test_moments_of_parts_are_those_of_the_whole_far_from_zero():
    rows = np.random.default_rng(0).normal(1e4, 1.0, (500, 6)).astype(np.float32)
    moments = Moments(6)
    for part in np.array_split(rows, [1, 7, 300, 300]):
        moments.add(part)
    assert np.allclose(moments.mean, rows.astype(np.float64).mean(axis=0))
    assert np.allclose(moments.covariance, np.cov(rows.astype(np.float64), rowvar=False), atol=1e-9)


def test_a_sample_does_not_depend_on_order_or_parts():
    random = np.random.default_rng(1)
    rows, marks = random.normal(size=(300, 3)).astype(np.float32), random.permutation(300).astype(np.uint64)
    order = random.permutation(300)
    whole, cut = Sample(50, 3), Sample(50, 3)
    whole.add(rows, marks)
    for part in np.array_split(order, 7):
        cut.add(rows[part], marks[part])
    assert np.array_equal(whole.rows, cut.rows)
    assert np.array_equal(whole.rows, rows[np.argsort(marks)[:50]])
