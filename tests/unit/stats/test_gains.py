"""The gain of group means over others: Welch's interval, clusters that err together, and how often it is right."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from c2b_ray.stats.gains import mean_gain


def test_two_groups_of_single_values_are_welchs() -> None:
    random = np.random.default_rng(1)
    found, plain = random.normal(0.7, 0.2, 7), random.normal(0.4, 0.05, 11)
    groups = np.repeat([0, 1], [7, 11])
    ours = mean_gain(np.concatenate([found, plain]), groups, [1, -1], np.arange(18), confidence=0.9)
    welch = stats.ttest_ind(found, plain, equal_var=False)
    limits = welch.confidence_interval(0.9)
    assert ours.value == pytest.approx(found.mean() - plain.mean(), abs=1e-12)
    assert (ours.low, ours.high) == (pytest.approx(limits.low, abs=1e-9), pytest.approx(limits.high, abs=1e-9))
    assert ours.freedom == pytest.approx(welch.df, abs=1e-9)


def test_clusters_of_equal_size_are_their_means_and_shared_ones_cancel() -> None:
    random = np.random.default_rng(2)
    found = random.random((5, 3))
    plain = random.random(6)
    # Of two values whose frequencies sum to 1, the plain prompts' mean over both is 1/2 whatever they are.
    values = np.concatenate([found.ravel(), plain, 1 - plain])
    groups = np.repeat([0, 1, 2], [15, 6, 6])
    clusters = np.concatenate([np.repeat(np.arange(5), 3), 5 + np.arange(6), 5 + np.arange(6)])
    ours = mean_gain(values, groups, [1, -0.5, -0.5], clusters)
    limits = stats.ttest_1samp(found.mean(axis=1) - 0.5, 0).confidence_interval()
    assert ours.value == pytest.approx(found.mean() - 0.5, abs=1e-12)
    assert (ours.low, ours.high) == (pytest.approx(limits.low, abs=1e-9), pytest.approx(limits.high, abs=1e-9))


def test_it_holds_the_truth_as_often_as_it_says() -> None:
    """Three values, prompts in pairs of one search, ten images each; the plain prompts are the same for all values."""
    random = np.random.default_rng(3)
    held = 0
    for _ in range(1500):
        chances = random.dirichlet([4, 4, 4], 10)
        plain = np.array([random.multinomial(10, row) / 10 for row in chances])
        search = np.clip(0.6 + 0.15 * random.standard_normal((3, 6, 1)), 0, 1)
        found = random.binomial(10, search, (3, 6, 2)) / 10
        values = np.concatenate([found.ravel(), plain.T.ravel()])
        groups = np.concatenate([np.repeat(np.arange(3), 12), np.repeat(3 + np.arange(3), 10)])
        clusters = np.concatenate([np.repeat(np.arange(18), 2), 18 + np.tile(np.arange(10), 3)])
        gain = mean_gain(values, groups, np.repeat([1 / 3, -1 / 3], 3), clusters, 0.05)
        held += gain.low <= 0.6 - 1 / 3 <= gain.high
    assert 0.93 <= held / 1500 <= 0.97


def test_a_value_that_counts_twice_is_as_two_of_one_cluster() -> None:
    random = np.random.default_rng(4)
    values, counts = random.random(9), [1, 1, 1, 1, 2, 1, 2, 1, 1]
    groups, clusters = np.repeat([0, 1], [4, 5]), np.arange(9)
    once = mean_gain(values, groups, [1, -1], clusters, counts=counts)
    twice = mean_gain(*(np.repeat(x, counts) for x in (values, groups)), [1, -1], np.repeat(clusters, counts))
    assert (once.value, once.low, once.high) == pytest.approx((twice.value, twice.low, twice.high), abs=1e-12)
    with pytest.raises(ValueError, match="counts above 0"):
        mean_gain(values, groups, [1, -1], clusters, counts=[0] * 9)


def test_values_that_all_agree_are_not_certain_and_one_cluster_tells_nothing() -> None:
    groups, clusters = [0, 0, 0, 1, 1, 1], range(6)
    alike = mean_gain([1, 1, 1, 0, 0, 0], groups, [1, -1], clusters, coarsest=0.1)
    assert alike.low < 1 < alike.high
    alone = mean_gain([0.5, 0.6, 0.1, 0.2], [0, 0, 1, 1], [1, -1], [0, 0, 1, 2])
    assert alone.value == pytest.approx(0.4)
    assert np.isnan([alone.low, alone.high]).all()
    assert np.isnan(mean_gain([], [], [], []).value)
    with pytest.raises(ValueError, match="value in each"):
        mean_gain([0.5], [0], [1, -1], [0])
