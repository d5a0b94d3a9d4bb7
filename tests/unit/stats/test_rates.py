"""Rates of rare failures: coverage by exact enumeration, SciPy and arithmetic as oracles."""

import numpy as np
import pytest
from scipy import stats

from c2b_ray.stats import Trials, failure_rates, rate_ratios


def likely(p, n):
    """Numbers of failures that can come at all, with their probabilities."""
    reach = 8 * np.sqrt(n * p) + 12
    f = np.arange(max(0, int(n * p - reach)), min(n, int(n * p + reach)) + 1)
    return f, stats.binom.pmf(f, n, p)


@pytest.mark.parametrize("p", [1e-5, 1e-3, 0.02, 0.1, 0.3, 0.5])
def test_coverage_of_a_rate(p):
    for expected in (10, 14, 20, 28, 40):
        n = round(expected / p)
        f, chance = likely(p, n)
        limits = failure_rates(f, np.full(f.shape, n))
        assert 0.93 <= chance[(limits.low <= p) & (p <= limits.high)].sum() <= 0.97


@pytest.mark.parametrize(("p1", "p0"), [(1e-3, 1e-5), (0.02, 0.01), (0.75, 0.01), (0.4, 0.4)])
@pytest.mark.parametrize(("at_baseline", "least", "most"), [(0.15, 0.95, 1), (2, 0.95, 0.985), (20, 0.94, 0.96)])
def test_coverage_of_a_ratio(p1, p0, at_baseline, least, most):
    n1, n0 = round(20 / p1), round(at_baseline / p0)
    (f1, chance1), (f0, chance0) = likely(p1, n1), likely(p0, n0)
    chance = np.outer(chance1, chance0)
    rows, columns = np.nonzero(chance > 1e-8)
    sides = (Trials.of(f[at], np.full(at.shape, n)) for f, at, n in ((f1, rows, n1), (f0, columns, n0)))
    limits = rate_ratios(*sides)
    missed = limits.low > p1 / p0, limits.high < p1 / p0
    too_high, too_low = (chance[rows, columns][side].sum() for side in missed)
    assert least <= 1 - too_high - too_low <= most
    assert max(too_high, too_low) <= 0.04


def test_without_failures_limits_remain():
    rate = failure_rates([0, 5, 0], [100, 5, 0])
    assert rate.high[0] == pytest.approx(1 - 0.05 ** (1 / 100))  # (1 - high)^100 / 2 = .025
    assert (rate.low[0], rate.low[1], rate.high[1]) == (0, pytest.approx(0.05 ** (1 / 5)), 1)
    assert np.isnan(rate.value[2])
    ratio = rate_ratios(Trials.of([4, 0, 0], [100, 100, 100]), Trials.of([0, 4, 0], [100, 100, 100]))
    assert ratio.value.tolist()[:2] == [np.inf, 0]
    assert (ratio.high[0], ratio.low[1], ratio.low[2], ratio.high[2]) == (np.inf, 0, 0, np.inf)
    assert 0.5 < ratio.low[0] < 3
    assert ratio.low[0] == pytest.approx(1 / ratio.high[1])  # sides swapped


def test_the_ratios_limits_lie_where_those_of_both_rates_put_them():
    sides = Trials.of([14], [70]), Trials.of([6], [200])
    ratio, rates = rate_ratios(*sides), [failure_rates(side.failures, side.draws) for side in sides]
    (p1, l1, u1), (p0, l0, u0) = ([float(side[0]) for side in rate] for rate in rates)
    assert (p1 - ratio.low[0] * p0) ** 2 == pytest.approx((p1 - l1) ** 2 + (ratio.low[0] * (u0 - p0)) ** 2)
    assert (p1 - ratio.high[0] * p0) ** 2 == pytest.approx((u1 - p1) ** 2 + (ratio.high[0] * (p0 - l0)) ** 2)
    assert ratio.low[0] < p1 / p0 < ratio.high[0]


def test_bad_counts_are_named():
    with pytest.raises(ValueError, match=r"at \(1,\): failures=3.0, draws=2.0"):
        failure_rates([0, 3], [1, 2])
    with pytest.raises(ValueError, match="shape"):
        rate_ratios(Trials.of([1], [2]), Trials.of([1, 1], [2, 2]))
    with pytest.raises(ValueError, match="confidence"):
        failure_rates([1], [2], confidence=1.0)
