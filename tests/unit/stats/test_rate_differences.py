"""Differences of failure rates against exact enumeration."""

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from c2b_ray.stats.rates import Trials, rate_difference_p_values, rate_difference_ratios, rate_differences


@pytest.mark.parametrize(
    ("p_a", "p_b", "n_a", "n_b"), [(0.1, 0.3, 60, 40), (0.02, 0.02, 200, 300), (0.01, 0.05, 250, 250)]
)
def test_limits_hold_the_difference_and_the_test_keeps_its_level(p_a, p_b, n_a, n_b):
    # every outcome with its probability: coverage and the chance of a false alarm are sums, not simulations
    a, b = np.meshgrid(np.arange(n_a + 1), np.arange(n_b + 1), indexing="ij")
    weight = binom.pmf(a, n_a, p_a) * binom.pmf(b, n_b, p_b)
    likely = weight > 1e-7
    sides = Trials.of(a[likely], np.full(likely.sum(), n_a)), Trials.of(b[likely], np.full(likely.sum(), n_b))
    limits = rate_differences(*sides)
    held = weight[likely][(limits.low <= p_b - p_a) & (p_b - p_a <= limits.high)].sum()
    assert 0.93 <= held <= 0.985
    if p_a == p_b:
        assert weight[likely][rate_difference_p_values(*sides) <= 0.05].sum() <= 0.05


@pytest.mark.parametrize(("p_a", "p_b"), [(0.5, 0.5), (0.3, 0.3), (0.2, 0.6)])
def test_all_holds_for_classifiers_of_the_same_images_that_never_fail_on_the_same_one(p_a, p_b):
    n = 90  # Fisher's test of independent images has a false alarm in .16 of cases at .5 and .5
    a, b = (side.ravel() for side in np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij"))
    possible = a + b <= n
    a, b = a[possible], b[possible]
    weight = multinomial.pmf(np.stack([a, b, n - a - b], axis=1), n, [p_a, p_b, max(1 - p_a - p_b, 0.0)])
    likely = weight > 1e-7
    weight, sides = weight[likely], [Trials.of(side[likely], np.full(likely.sum(), n)) for side in (a, b)]
    for estimate, truth in ((rate_differences(*sides), p_b - p_a), (rate_difference_ratios(*sides), p_b / p_a)):
        assert 0.93 <= weight[(estimate.low <= truth) & (truth <= estimate.high)].sum() <= 0.985
    if p_a == p_b:
        assert weight[rate_difference_p_values(*sides) <= 0.05].sum() <= 0.05


def test_a_side_without_draws_tells_nothing():
    nothing, some = Trials.of([0], [0]), Trials.of([3], [10])
    estimate = rate_differences(nothing, some)
    assert np.isnan(estimate.value[0])
    assert (estimate.low[0], estimate.high[0]) == (-1, 1)
    assert rate_difference_p_values(nothing, some)[0] == 1
