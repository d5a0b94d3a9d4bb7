"""Intervals of HIT − FH and of its differences, against SciPy and by their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from c2b_ray import stats as metrics


def test_a_difference_and_its_interval():
    a, b = np.tile([1, 1, 0, 1, 1, 1], 2), np.tile([0, -1, 0, 1, 0, 0], 2)
    clusters = np.arange(12)
    result = metrics.outcome_difference((a, b), (clusters, clusters), draws=20_000)
    # Each cluster counts once on both sides: the bootstrap of a mean of differences.
    assert result.value == pytest.approx(5 / 6)
    paired = stats.bootstrap((a - b,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1))
    # Differences 1, 2, 0, 0, 1, 1 twice: with two more clusters their sum is 10 and that of squares 14 + 7 / 4.
    mean, variance = 10 / 14, (14 + 7 / 4) / 14 - (10 / 14) ** 2
    assert result.low == pytest.approx(mean - stats.t.ppf(0.975, 13) * math.sqrt(variance / 14), abs=1e-12)
    assert result.high == pytest.approx(paired.confidence_interval.high, abs=0.09)
    assert math.isnan(metrics.outcome_difference((a, b[:0]), (clusters, clusters[:0])).value)
    assert math.isnan(metrics.outcome_difference((a, b), (clusters * 0, clusters * 0)).low)


def test_few_clusters_that_all_lean_one_way_are_no_proof():
    for count, proof in ((2, False), (5, False), (6, True)):
        hits, clusters = np.ones(count, int), np.arange(count)
        both = (hits, 0 * hits), (clusters, clusters)
        result = metrics.outcome_difference(*both, most=1)
        assert (result.value, result.high) == (1, 1)
        assert (result.low > 0) == (result.p_value <= 0.05) == proof


def test_two_equal_methods_differ_by_nothing():
    """The false alarms of the interval, over planted methods that are equally good."""
    alarms = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        clusters = np.repeat(np.arange(30), 4)
        sides = [random.choice([1, -1, 0], 120, p=[0.3, 0.1, 0.6]) for _ in range(2)]
        found = metrics.outcome_difference((sides[0], sides[1]), (clusters, clusters), draws=500, seed=seed)
        alarms += found.low > 0 or found.high < 0
    assert alarms <= 12


def of_one(outcomes, clusters, draws=400):
    return metrics.outcome_difference((outcomes, 0 * outcomes), (clusters, clusters), draws=draws, most=1)


@pytest.mark.parametrize("count", [2, 4, 11, 200])
def test_equal_outcomes_are_as_certain_as_so_many_clusters_make_them(count):
    clusters = np.arange(count)
    least = stats.binomtest(count, count).proportion_ci(0.95, "exact").low  # the share of clusters that are like these
    hit = of_one(np.ones(count, int), clusters)
    assert hit.high == 1
    lowest = 2 * least - 1  # the others are false hits
    assert hit.low == pytest.approx(lowest if 2.0 ** (1 - count) <= 0.05 else min(lowest, 0.0), abs=1e-9)
    missed = of_one(np.zeros(count, int), clusters)
    assert (missed.low, missed.high) == (pytest.approx(least - 1, abs=1e-9), pytest.approx(1 - least, abs=1e-9))
    fewer = of_one(np.ones(count + 30, int), np.r_[clusters, np.zeros(30, int)])  # one cluster holds nearly all
    assert fewer.low < hit.low
    both = metrics.outcome_difference((np.zeros(count, int),) * 2, (clusters, clusters), draws=400)
    assert both.high == -both.low == pytest.approx(2 * (1 - least), abs=1e-9)


@pytest.mark.parametrize("count", [4, 10, 30])
@pytest.mark.parametrize("shares", [(0.98, 0.02), (0.98, 0), (0.02, 0), (0, 0.02), (0.02, 0.02), (0.9, 0)])
def test_intervals_hold_a_truth_near_0_and_near_1(count, shares):
    """Coverage over samples. Draws of equal outcomes alone gave 0.33 for 20 outcomes of which 0.98 are hits."""
    random = np.random.default_rng([count, *(round(100 * share) for share in shares)])
    hit, false = shares
    truth, held = hit - false, 0
    for outcomes in random.choice([1, -1, 0], (400, count), p=[hit, false, 1 - hit - false]):
        found = of_one(outcomes, np.arange(count))
        held += found.low - 1e-12 <= truth <= found.high + 1e-12
    assert held / 400 >= 0.925


def test_p_values_of_equal_differences_are_those_at_which_the_interval_reaches_0():
    for value, count in ((1, 8), (2, 6), (1, 14)):
        sides = (np.ones(count, int), np.full(count, 1 - value)), (np.arange(count),) * 2
        p_value = metrics.outcome_difference(*sides).p_value
        assert metrics.outcome_difference(*sides, 1 - p_value * 1.001).low > 0
        assert metrics.outcome_difference(*sides, 1 - p_value * 0.999).low <= 0


def test_intervals_of_few_clusters_hold_the_truth():
    """Plain percentiles held it in .88 of samples."""
    random, held = np.random.default_rng(5), []
    for seed in range(300):
        clusters, each = [(4, 2), (8, 3), (12, 5)][seed % 3]
        groups = np.repeat(np.arange(clusters), each)
        shares = random.dirichlet([2.0, 0.4, 1.6], clusters)[groups]
        drawn = (random.random(len(groups))[:, None] > shares.cumsum(axis=1)).sum(axis=1).clip(max=2)
        outcomes = np.array([1, -1, 0])[drawn]
        both = (outcomes, 0 * outcomes), (groups, groups)
        found = metrics.outcome_difference(*both, draws=2000, seed=seed, most=1.0)
        held.append(found.low <= 0.4 <= found.high)
    assert np.mean(held) >= 0.93


@pytest.mark.parametrize(("count", "hit", "other"), [(4, 0.16, 0.15), (8, 0.05, 0.15), (8, 0.16, None)])
def test_intervals_of_rare_outcomes_in_few_clusters_hold_the_truth(count, hit, other):
    """Where all biases of a cluster share their outcome. Percentiles alone held it in .71 to .90."""
    random, held, clusters = np.random.default_rng([count, round(100 * hit)]), 0, np.repeat(np.arange(count), 3)
    for _ in range(250):
        one, two = (random.choice([1, -1, 0], count, p=[p * 0.7, p * 0.3, 1 - p])[clusters] for p in (hit, other or 0))
        found = metrics.outcome_difference((one, two), (clusters, clusters), draws=200, most=1 if other is None else 2)
        held += found.low - 1e-12 <= 0.4 * (hit - (other or 0)) <= found.high + 1e-12
    assert held / 250 >= 0.93
