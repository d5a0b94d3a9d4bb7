"""Rank correlations and differences of statistics, from permutations and bootstrap replicates."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import norm, rankdata, spearmanr

from c2b_ray.stats.resampling import difference_of, independent_difference_of, rank_correlation, rank_correlations


def test_rho_and_the_t_p_value_are_scipys_ties_included():
    random = np.random.default_rng(0)
    x, y = random.integers(0, 6, (3, 14)).astype(float), random.normal(size=(2, 14))
    result = rank_correlations(x, y)
    for row in range(3):
        for column in range(2):
            theirs = spearmanr(x[row], y[column])
            assert result.rho[row, column] == pytest.approx(theirs.statistic, abs=1e-12)
            assert result.t_p_value[row, column] == pytest.approx(theirs.pvalue, abs=1e-12)


def test_values_that_only_float_noise_tells_apart_are_ties():
    noisy, clean = [0.3 + 0.2 + 0.1, 0.1 + 0.2 + 0.3, 0.7, 0.9], [0.6, 0.6, 0.7, 0.9]
    assert noisy[0] != noisy[1]
    for other in ([1, 2, 3, 4], [4, 1, 2, 3]):
        assert rank_correlation(noisy, other).rho == pytest.approx(spearmanr(clean, other).statistic, abs=1e-12)
    assert np.isnan(rank_correlation([0, 2.2e-16, 0, 4.4e-16, 0], np.arange(5)).rho)  # KL of equal rates


def test_few_models_get_exact_p_values():
    x, y = np.arange(6.0), np.array([1.0, 0, 2, 3, 5, 4])
    rho = spearmanr(x, y).statistic
    as_far = np.mean([abs(spearmanr(x, y[list(order)]).statistic) >= rho - 1e-12 for order in permutations(range(6))])
    assert rank_correlation(x, y).p_value == pytest.approx(as_far, abs=1e-12)
    assert rank_correlation(x, x).p_value == pytest.approx(2 / 720, abs=1e-12)


def test_the_tail_of_more_models_is_never_below_the_exact_one():
    orders = np.array(list(permutations(range(9))), np.int8)
    for x in (np.arange(9), np.array([0, 0, 0, 1, 2, 3, 3, 4, 5])):
        rhos = _rhos(x, orders)
        for swapped in ([0, 1], [3, 5], []):
            y = np.arange(9)
            y[swapped] = y[swapped[::-1]]
            result = rank_correlation(x, y)
            exact = (rhos >= result.rho - 1e-9).mean()
            assert exact <= result.p_value * 1.3 <= 5e-3
    assert 2 / 362_880 < rank_correlation(np.arange(9), np.arange(9)).p_value < 20_000 / 362_880


def _rhos(x, orders):
    """|rho| of x with every order."""
    ranks = rankdata(x) - 5
    return np.abs((orders - 4.0) @ ranks) / np.sqrt(60 * (ranks**2).sum())


def test_intervals_and_levels_of_ten_models():
    random = np.random.default_rng(4)
    held, rejected = {}, 0
    for true in (0.0, 0.7):
        r = 2 * np.sin(np.pi * true / 6)  # whose Spearman correlation is `true` (Pearson 1907)
        draws = random.multivariate_normal([0, 0], [[1, r], [r, 1]], (200, 10))
        found = [rank_correlation(one[:, 0], one[:, 1]) for one in draws]
        held[true] = np.mean([one.low <= true <= one.high for one in found])
        rejected = rejected if true else np.mean([one.p_value <= 0.05 for one in found])
    assert min(held.values()) >= 0.9
    assert rejected <= 0.1


def test_what_cannot_be_known_is_nan():
    assert np.isnan(rank_correlation([1, 1, 1, 1], [1, 2, 3, 4]).rho)
    assert np.isnan(rank_correlation([1, 2], [2, 1]).p_value)
    with pytest.raises(ValueError, match="finite"):
        rank_correlation([1, np.nan, 2], [1, 2, 3])


def test_limits_and_p_are_normal_with_the_spread_of_the_replicates():
    random = np.random.default_rng(0)
    a, b = random.normal(size=(2, 500))
    for difference, spread in (
        (difference_of, np.std(a - b, ddof=1)),
        (independent_difference_of, np.sqrt(np.var(a, ddof=1) + np.var(b, ddof=1))),
    ):
        low, high, p_value = difference(a, b, (0.9, 0.2), 0.9)
        assert (low, high) == pytest.approx(norm.interval(0.9, 0.7, spread), abs=1e-12)
        assert p_value == pytest.approx(2 * norm.sf(0.7 / spread), abs=1e-12)


@pytest.mark.parametrize("difference", [difference_of, independent_difference_of])
def test_what_says_nothing_has_no_limits(difference):
    drawn = np.array([0.1, 0.2, 0.3])
    assert np.isnan(difference(drawn, drawn, (np.nan, 0.2), 0.95)).all()
    assert np.isnan(difference(np.full(3, np.nan), drawn, (0.1, 0.2), 0.95)).all()
    flat = np.ones(3)
    assert difference(flat, flat, (1.0, 1.0), 0.95) == (0.0, 0.0, 1.0)


def test_a_difference_of_the_margin_is_found_no_more_often_than_alpha():
    random = np.random.default_rng(3)
    drawn = random.normal(0, 0.1, (2, 400))
    spread = np.std(drawn[0] - drawn[1], ddof=1)
    for margin in (0.0, 0.05, 1.0):
        gaps = margin + random.normal(0, spread, 4000)  # two statistics whose true difference is the margin
        p_values = [difference_of(*drawn, (gap, 0.0), 0.95, margin)[2] for gap in gaps]
        assert np.mean(np.array(p_values) <= 0.05) < 0.06
        assert difference_of(*drawn, (margin + 5 * spread, 0.0), 0.95, margin)[2] < 1e-6
    flat = np.ones(3)
    assert difference_of(flat, flat, (1.0, 0.97), 0.95, 0.05)[2] == 1.0
    assert difference_of(flat, flat, (1.0, 0.93), 0.95, 0.05)[2] == 0.0
