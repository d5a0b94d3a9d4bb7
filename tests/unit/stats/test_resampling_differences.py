"""Differences of two statistics from their bootstrap replicates, of the same samples and of others."""

import numpy as np
import pytest
from scipy.stats import norm

from c2b_ray.stats.resampling import difference_of, independent_difference_of


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
