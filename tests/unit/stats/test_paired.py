import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm
from statsmodels.stats.contingency_tables import mcnemar

from c2b_ray.stats import (
    bias_scores,
    mcnemar_p_values,
    paired_difference,
    paired_difference_interval,
    paired_difference_p_values,
    paired_equivalence_p_values,
    phi_difference,
    phi_difference_interval,
    phi_difference_p_values,
)

TABLES = [(1, 7, 21), (0, 1, 44), (20, 40, 160), (0, 9, 12), (5, 5, 30), (12, 3, 15), (0, 12, 12)]

cell = st.tuples(st.integers(0, 15), st.integers(0, 15), st.integers(0, 30))
cells = st.lists(cell, min_size=2, max_size=4)


def columns(tables):
    """(only A, only B, total) of (only A, only B, both or neither)."""
    a, b, rest = np.array(tables).T
    return a, b, a + b + rest


def test_the_difference_is_that_of_the_accuracies():
    # A right on 3 of 10 alone, B on 1 alone: (1 - 3)/10
    assert paired_difference([3, 0, 0], [1, 0, 0], [10, 7, 0]) == pytest.approx([-0.2, 0, np.nan], nan_ok=True)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize(("only_a", "only_b", "total"), TABLES)
def test_tangos_limits_are_roots_of_the_quartic(only_a, only_b, total, confidence):
    # Yang, Sun & Hardin 2013 write Tango's equation without the maximum-likelihood estimate, as a quartic in the
    # difference; its outermost real roots are the limits.
    g, d, s, n = norm.ppf((1 + confidence) / 2) ** 2, only_b - only_a, only_a + only_b, total
    quartic = [
        n**2 * (n / g + 1) ** 2,
        -n * d * (n / g + 1) * (4 * n / g + 1),
        2 * n * d**2 * (3 * n / g + 2) / g - n**2 * (s / g + 1),
        n * d * (2 * s / g + 1) - d**3 * (4 * n / g + 1) / g,
        d**2 * (d**2 / g - s) / g,
    ]
    roots = np.roots(quartic)
    real = roots.real[np.abs(roots.imag) < 1e-5]
    low, high = paired_difference_interval(only_a, only_b, total, confidence)
    assert (low, high) == pytest.approx((real.min(), real.max()), abs=1e-6)


def test_a_published_interval():
    # Airway hyper-responsiveness before and after stem cell transplantation, 7 against 1 discordant of 21: Fagerland,
    # Lydersen & Laake 2014 print Tango's interval as 0.026 to 0.517.
    low, high = paired_difference_interval(1, 7, 21)
    assert (round(float(low), 3), round(float(high), 3)) == (0.026, 0.517)


def test_without_disagreement_the_interval_is_no_point():
    # z^2/(n + z^2) = 3.841459/13.841459 = 0.277533
    low, high = paired_difference_interval([0, 0], [0, 0], [10, 0])
    assert (low[0], high[0]) == pytest.approx((-0.277533, 0.277533), abs=5e-7)
    assert np.isnan([low[1], high[1]]).all()
    assert paired_difference_interval([], [], [])[0].size == 0


def test_the_difference_test_without_margin_is_mcnemars():
    a, b, n = columns([(4, 9, 10), (0, 6, 0), (25, 11, 40)])
    for ours, only_a, only_b in zip(paired_difference_p_values(a, b, n), a, b, strict=True):
        theirs = mcnemar([[9, only_a], [only_b, 9]], exact=False, correction=False).pvalue
        assert ours == pytest.approx(theirs, abs=1e-12)


def test_mcnemars_exact_test():
    # 1 against 7: 2 * (1 + 8)/2^8 = 18/256
    assert mcnemar_p_values(1, 7) == pytest.approx(18 / 256)
    a, b = np.mgrid[0:25:4, 0:25:3].reshape(2, -1)
    for ours, only_a, only_b in zip(mcnemar_p_values(a, b), a.tolist(), b.tolist(), strict=True):
        theirs = binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
        assert ours == pytest.approx(theirs, abs=1e-12)
        assert ours == pytest.approx(mcnemar([[3, only_a], [only_b, 3]], exact=True).pvalue, abs=1e-12)


@pytest.mark.parametrize("tau", [0.0, 0.05, 0.2])
def test_a_test_agrees_with_its_interval(tau):
    rng = np.random.default_rng(3)
    n = rng.integers(0, 60, (60, 3))
    a, b = rng.binomial(n // 2, 0.2), rng.binomial(n - n // 2, rng.random(n.shape))
    pairs = (
        (paired_difference_p_values, paired_difference_interval),
        (phi_difference_p_values, phi_difference_interval),
    )
    for p_values, interval in pairs:
        p = p_values(a, b, n, tau)
        known = ~np.isnan(p)
        rejected = p[known] <= 0.1
        assert 0 < rejected.sum() < rejected.size
        outer, inner = (
            ((low > tau) | (high < -tau))[known] for low, high in (interval(a, b, n, level) for level in (0.9, 0.8))
        )
        assert rejected[outer].all()
        assert inner[rejected].all()
        if tau == 0:
            np.testing.assert_array_equal(rejected, outer)
    low, high = paired_difference_interval(a, b, n, 0.8)
    none = paired_equivalence_p_values(a, b, n, 0.2)
    assert (none <= 0.1).any()
    np.testing.assert_array_equal(none <= 0.1, (low > -0.2) & (high < 0.2))


def test_the_paired_test_has_the_size_of_an_interval_null():
    # B alone right on 8 %, A alone on 3 % of 200 images: the difference is tau, and one tail alone can reject
    rng = np.random.default_rng(5)
    drawn = rng.multinomial(200, [0.03, 0.08, 0.89], 4000)
    p = paired_difference_p_values(drawn[:, 0], drawn[:, 1], np.full(4000, 200), 0.05)
    assert 0.04 < (p <= 0.05).mean() < 0.06


def test_phi_difference_is_the_difference_of_the_bias_scores():
    # Per cell: both right, only A, only B, neither.
    both, only_a, only_b, neither = np.array([[5, 4, 0, 1], [7, 0, 2, 1], [3, 3, 3, 3], [0, 0, 0, 0]]).T
    total = both + only_a + only_b + neither
    ours = phi_difference(only_a, only_b, total)
    theirs = bias_scores(both + only_b, total) - bias_scores(both + only_a, total)
    np.testing.assert_allclose(ours, theirs, atol=1e-15)
    # d = -.4, .2, 0 and no data: -.4 - (.2 + 0)/2 = -.5, .2 - (-.4 + 0)/2 = .4, 0 - (-.4 + .2)/2 = .1
    assert ours == pytest.approx([-0.5, 0.4, 0.1, np.nan], nan_ok=True)


def test_phi_interval_is_movers_on_tangos_limits():
    # Two cells: phi difference = d1 - d2, and the squares of the distances to the limits add up.
    a, b, n = np.array([4, 1]), np.array([1, 6]), np.array([20, 25])
    lower, upper = paired_difference_interval(a, b, n)
    d = paired_difference(a, b, n)
    low, high = phi_difference_interval(a, b, n)
    assert low[0] == pytest.approx(d[0] - d[1] - np.hypot(d[0] - lower[0], upper[1] - d[1]))
    assert high[0] == pytest.approx(d[0] - d[1] + np.hypot(upper[0] - d[0], d[1] - lower[1]))
    assert (low[1], high[1]) == pytest.approx((-high[0], -low[0]))


def test_phi_interval_uses_the_pairing():
    # 80 and 90 of 100 right in both cells; as pairs they differ on 10 images, as two samples on up to 30.
    paired = phi_difference_interval([0, 0], [10, 10], [100, 100])
    crossed = phi_difference_interval([10, 10], [20, 20], [100, 100])
    assert paired[1][0] - paired[0][0] < 0.7 * (crossed[1][0] - crossed[0][0])


def test_intervals_hold_their_level():
    # 4000 draws of 3 cells of 40 images, true differences .1, 0, -.05 → phi difference of the first .125
    rng = np.random.default_rng(11)
    drawn = np.stack(
        [rng.multinomial(40, [pa, pb, 1 - pa - pb], 4000) for pa, pb in [(0.1, 0.2), (0.1, 0.1), (0.15, 0.1)]], 1
    )
    a, b, n = drawn[..., 0], drawn[..., 1], np.full((4000, 3), 40)
    low, high = paired_difference_interval(a, b, n)
    assert 0.93 < np.mean((low[:, 0] <= 0.1) & (high[:, 0] >= 0.1)) < 0.97
    low, high = phi_difference_interval(a, b, n)
    assert 0.93 < np.mean((low[:, 0] <= 0.125) & (high[:, 0] >= 0.125)) < 0.97


def test_fewer_than_two_cells_with_data_are_undefined():
    for values in (
        phi_difference([1, 0], [2, 0], [5, 0]),
        phi_difference_interval([1, 0], [2, 0], [5, 0])[0],
        phi_difference_p_values([1, 0], [2, 0], [5, 0]),
    ):
        assert np.isnan(values).all()
    assert phi_difference_p_values([], [], []).size == 0


def test_swapping_the_classifiers_leaves_the_p_values():
    a, b, n = columns(TABLES)
    p = phi_difference_p_values(a, b, n, 0.05)
    assert (p < 0.05).any()
    np.testing.assert_allclose(phi_difference_p_values(b, a, n, 0.05), p, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(cells)
def test_swapping_the_classifiers_mirrors_the_interval(tables):
    a, b, n = columns(tables)
    low, high = paired_difference_interval(a, b, n)
    np.testing.assert_allclose(paired_difference_interval(b, a, n), (-high, -low), atol=1e-9)
    d = paired_difference(a, b, n)
    held = n > 0
    assert ((low <= d + 1e-9) & (d <= high + 1e-9) & (low >= -1) & (high <= 1))[held].all()


@pytest.mark.parametrize("counts", [([3], [3], [5]), ([-1], [0], [5]), ([0.5], [0.1], [0.5]), ([0, 0], [0], [5])])
def test_impossible_counts_are_refused(counts):
    for function in (paired_difference, paired_difference_interval, paired_difference_p_values, phi_difference):
        with pytest.raises(ValueError):
            function(*counts)


def test_settings_that_are_none_are_refused():
    with pytest.raises(ValueError, match="confidence"):
        paired_difference_interval(1, 2, 5, 95)
    for function in (paired_difference_p_values, phi_difference_p_values):
        with pytest.raises(ValueError, match="tau"):
            function([1, 1], [2, 2], [5, 5], -0.1)
    with pytest.raises(ValueError, match="shape"):
        mcnemar_p_values([1, 2], [1])
