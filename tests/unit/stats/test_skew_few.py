"""Intervals of MaxSkew with few items in a group, against SciPy's exact limits and by their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from c2b_ray.stats import max_skew
from c2b_ray.stats.disparity import Chance
from c2b_ray.stats.skew import FEW, mean_max_skew, with_few

QUICK = Chance(permutations=100, resamples=100)
TEXTS = 6


def drawn(counts, leans, random):
    """Groups of these sizes, and rankings by scores of which texts share a part; `leans`: how far each is moved."""
    groups = np.repeat(np.arange(len(counts)), counts)
    scores = np.array(leans)[groups] + 0.5 * random.normal(size=len(groups)) + random.normal(size=(TEXTS, len(groups)))
    return groups, np.argsort(-scores, axis=1)


@pytest.mark.parametrize(
    ("counts", "leans"),
    [([48, 1], [0, 3]), ([48, 1], [0, 1]), ([47, 2], [0, 3]), ([46, 3], [0, 2.5]), ([46, 3], [0, 0.5]),
     ([45, 4], [0, -1]), ([30, 12, 3], [0, 1, 1]), ([40, 3, 2], [0, 2, 0])],
)  # fmt: skip
def test_intervals_hold_the_value_of_the_population(counts, leans):
    """Resampling alone held it in as little as 0.28 of samples with one item, and was above it in 0.47 with three."""
    random = np.random.default_rng([*counts, 11])
    k = max(1, sum(counts) // 10)
    groups, order = drawn(np.array(counts) * 1500, leans, random)
    true = np.mean([max_skew(groups[one], k * 1500) for one in order])
    found = [mean_max_skew(order, groups, len(counts), k, QUICK) for groups, order in
             (drawn(counts, leans, random) for _ in range(60))]  # fmt: skip
    assert np.mean([one.low <= true <= one.high for one in found]) >= 0.93
    assert all(one.low <= one.value <= one.high for one in found)


@pytest.mark.parametrize("few", [1, 2, 3, 4])
def test_items_that_are_all_in_the_top_have_the_exact_lower_limit(few):
    groups = np.r_[np.ones(few, int), np.zeros(60 - few, int)]
    skew = mean_max_skew(np.tile(np.arange(60), (TEXTS, 1)), groups, 2, 6, QUICK)
    least = stats.binomtest(few, few).proportion_ci(0.95, "exact").low
    assert skew.low == pytest.approx(max(0.0, np.log(least / 0.1)), abs=1e-9)
    assert skew.value == skew.high == pytest.approx(np.log(10))


def test_groups_of_enough_items_keep_their_interval():
    ratios = np.array([[0.5, 1.5], [0.8, 1.2]])
    assert with_few((0.1, 0.6), ratios, (np.array([FEW, FEW]), np.array([0.5, 0.5])), 0.3, 0.95) == (0.1, 0.6)


def test_all_groups_may_have_few_items():
    groups = np.array([0, 0, 0, 1, 1, 1])
    skew = mean_max_skew(np.tile(np.arange(6), (2, 1)), groups, 2, 3, QUICK)
    assert skew.low == 0
    assert skew.value == skew.high == pytest.approx(np.log(2))
