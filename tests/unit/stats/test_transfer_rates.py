"""Rates and consistencies over captions: the values of all images, the intervals of captions."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.stats.distances import clustered_consistency, clustered_rate
from c2b_ray.stats.intervals import wilson_interval
from c2b_ray.stats.paired import error_consistency


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


@pytest.mark.parametrize(("captions", "mean"), [(10, 0.3), (30, 0.3), (30, 0.05)])
def test_intervals_hold_the_rate_where_a_few_captions_have_most_images(captions, mean):
    """With the linearised variance and K - 1 degrees they held it in .80, .84 and .81."""
    random = np.random.default_rng(11)
    totals = np.maximum(1, 20 * np.exp(random.normal(0, 1.5, (2000, captions)))).astype(int)
    rates = random.beta(9 * mean, 9 * (1 - mean), totals.shape)
    estimate = clustered_rate(random.binomial(totals, rates), totals)
    held = (estimate.low <= mean) & (mean <= estimate.high)
    assert 0.92 <= held.mean() <= 0.98


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


def test_intervals_of_consistency_hold_it_where_a_few_captions_have_most_images():
    """Two classifiers that fail independently but for the caption: kappa is known; K - 1 degrees held it in .87."""
    random = np.random.default_rng(5)
    totals = np.maximum(2, 15 * np.exp(random.normal(0, 1.2, (1500, 8)))).astype(int)
    hard = random.beta(1, 2, totals.shape)  # E[p] = 1/3, E[p^2] = 1/6
    both, one, other = random.multinomial(totals, np.stack([hard**2, *[hard * (1 - hard)] * 2, (1 - hard) ** 2], -1)).T[
        :3
    ]
    estimate = clustered_consistency((both + one).T, (both + other).T, both.T, totals)
    expected = 1 / 9 + 4 / 9
    kappa = (1 / 6 + 1 - 2 / 3 + 1 / 6 - expected) / (1 - expected)
    held = (estimate.low <= kappa) & (kappa <= estimate.high)
    assert 0.91 <= held.mean() <= 0.98


def test_a_classifier_that_is_always_right_has_no_interval():
    estimate = clustered_consistency([[0, 0]], [[3, 1]], [[0, 0]], [[10, 10]])
    assert estimate.value[0] == 0
    assert np.isnan(estimate.low[0])
