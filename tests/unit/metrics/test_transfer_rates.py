"""Rates and consistencies over captions: the values of all images, the intervals of captions."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.metrics.consistency import error_consistency
from c2b_ray.metrics.intervals import wilson_interval
from c2b_ray.metrics.transfer import clustered_consistency, clustered_rate


@pytest.mark.parametrize("mean", [0.3, 0.8])
def test_intervals_hold_the_rate_of_captions_that_differ(mean):
    random = np.random.default_rng(7)
    repeats, captions = 2000, 40
    rates = random.beta(4 * mean, 4 * (1 - mean), (repeats, captions))  # captions differ by .2 and more
    totals = random.integers(5, 60, (repeats, captions))
    estimate = clustered_rate(random.binomial(totals, rates), totals)
    held = (estimate.low <= mean) & (mean <= estimate.high)
    assert 0.93 <= held.mean() <= 0.97
    images = [
        wilson_interval(int(f), int(n))
        for f, n in zip(random.binomial(totals, rates).sum(1), totals.sum(1), strict=True)
    ]
    assert np.mean([low <= mean <= high for low, high in images]) < 0.6  # what taking images for independent would give


def test_a_rate_of_images_with_a_caption_each_is_nearly_wilsons():
    failures = np.array([1] * 120 + [0] * 280)
    estimate = clustered_rate(failures, np.ones(400, int))
    assert (estimate.low, estimate.high) == pytest.approx(wilson_interval(120, 400), abs=1e-3)


def test_captions_that_all_agree_count_once_each_and_one_caption_says_nothing_of_others():
    estimate = clustered_rate([[0, 0, 0], [0, 0, 9]], [[100, 100, 100], [0, 0, 30]])
    assert (estimate.low[0], estimate.high[0]) == wilson_interval(0, 3)
    assert (estimate.low[1], estimate.high[1]) == wilson_interval(9, 30)
    assert np.isnan(clustered_rate([0], [0]).value)


def test_consistency_is_that_of_all_images_and_its_interval_is_of_captions():
    random = np.random.default_rng(3)
    captions, images = 30, 40
    hard = random.random((captions, 1)) < 0.5  # captions on which both mostly fail: errors that captions explain
    a, b = (random.random((captions, images)) < np.where(hard, 0.8, 0.1) for _ in range(2))
    counts = [of.sum(axis=1) for of in (a, b, a & b, np.ones_like(a))]
    estimate = clustered_consistency(*counts)
    assert float(estimate.value) == pytest.approx(error_consistency(~a.ravel(), ~b.ravel()))
    whole = float(estimate.value)
    # The jackknife, written out.
    left = np.array(
        [error_consistency(~np.delete(a, k, 0).ravel(), ~np.delete(b, k, 0).ravel()) for k in range(captions)]
    )
    error = np.sqrt(29 / 30 * ((left - left.mean()) ** 2).sum())
    assert float(estimate.high) == pytest.approx(whole + 2.0452 * error, abs=1e-4)  # t(.975, 29)


def test_a_classifier_that_is_always_right_has_no_interval():
    estimate = clustered_consistency([[0, 0]], [[3, 1]], [[0, 0]], [[10, 10]])
    assert estimate.value[0] == 0
    assert np.isnan(estimate.low[0])
