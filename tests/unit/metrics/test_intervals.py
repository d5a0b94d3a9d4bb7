import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from c2b_ray.metrics import (
    bias_score_interval,
    bias_score_p_values,
    bias_scores,
    p_value_of_limit,
    rogan_gladen,
    wilson_interval,
)

cell = st.integers(0, 80).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total)))
cells = st.lists(cell, min_size=2, max_size=5)


def test_wilson_of_the_worked_example_as_floats():
    # z = 1.959964, z^2/n = .1920729: (.75 + .0960365 -+ sqrt(.1875 * .1920729 + .0092230))/1.1920729
    assert wilson_interval(15, 20) == pytest.approx((0.5312991, 0.8881383), abs=5e-8)
    assert all(type(limit) is float for limit in wilson_interval(15, 20))


def test_wilson_is_statsmodels():
    total = np.arange(1, 41).repeat(41)
    correct = np.minimum(np.tile(np.arange(41), 40), total)
    for confidence in (0.5, 0.95, 0.999):
        ours, theirs = (
            wilson_interval(correct, total, confidence),
            proportion_confint(correct, total, 1 - confidence, method="wilson"),
        )
        np.testing.assert_allclose(ours, theirs, atol=1e-13)


def test_wilson_touches_the_ends_exactly_and_is_nan_without_data():
    low, high = wilson_interval([0, 7, 0], [7, 7, 0])
    assert low[0] == 0
    assert high[1] == 1
    assert 0 < high[0] < 1
    assert 0 < low[1] < 1
    assert np.isnan([low[2], high[2]]).all()
    assert wilson_interval([], [])[0].size == 0


@pytest.mark.parametrize("confidence", [0, 1, 95, float("nan")])
def test_a_confidence_that_is_none_is_refused(confidence):
    for interval in (wilson_interval, bias_score_interval):
        with pytest.raises(ValueError, match="confidence"):
            interval([1, 2], [3, 3], confidence)


def test_with_two_cells_the_interval_is_newcombes():
    rng = np.random.default_rng(5)
    total = rng.integers(1, 60, (40, 2))
    correct = rng.integers(0, total + 1)
    correct[:4], total[:4] = [[0, 9], [9, 0], [0, 0], [9, 9]], 9
    low, high = bias_score_interval(correct, total, 0.9)
    for i, ((c1, c2), (t1, t2)) in enumerate(zip(correct.tolist(), total.tolist(), strict=True)):
        theirs = confint_proportions_2indep(c1, t1, c2, t2, method="newcomb", compare="diff", alpha=0.1)
        assert (low[i, 0], high[i, 0]) == pytest.approx(theirs, abs=1e-12)
        assert (low[i, 1], high[i, 1]) == pytest.approx((-theirs[1], -theirs[0]), abs=1e-12)


def test_the_interval_of_three_cells_and_an_empty_one():
    # 15/20 has Wilson limits .5312991, .8881383; every phi is 0, and both others add their distance at 1/2 each:
    # low = -sqrt(.2187009^2 + 2 * (.1381383/2)^2) = -sqrt(.0478301 + .0095411) = -.2395229
    # high = sqrt(.1381383^2 + 2 * (.2187009/2)^2) = sqrt(.0190822 + .0239151) = .2073577
    low, high = bias_score_interval([15, 15, 0, 15], [20, 20, 0, 20])
    np.testing.assert_allclose(low, [-0.2395229, -0.2395229, np.nan, -0.2395229], atol=2e-7)
    np.testing.assert_allclose(high, [0.2073577, 0.2073577, np.nan, 0.2073577], atol=2e-7)


def test_an_interval_does_not_vanish_when_every_image_was_right():
    low, high = bias_score_interval([20, 20], [20, 20])
    # Wilson's lower limit of 20/20 is 20/(20 + 1.96^2) = .8388748
    np.testing.assert_allclose([low, high], [[-0.1611252] * 2, [0.1611252] * 2], atol=1e-7)


@settings(deadline=None, max_examples=25)
@given(cells, st.floats(0.01, 0.999), st.randoms())
def test_intervals_contain_the_score_nest_and_follow_their_cells(rows, confidence, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    correct, total = np.array(rows).T
    phi = bias_scores(correct, total)
    low, high = bias_score_interval(correct, total, confidence)
    wider_low, wider_high = bias_score_interval(correct, total, (1 + confidence) / 2)
    known = ~np.isnan(phi)
    np.testing.assert_array_equal(np.isnan(low), ~known)
    assert (low[known] <= phi[known]).all()
    assert (phi[known] <= high[known]).all()
    assert (wider_low[known] <= low[known]).all()
    assert (high[known] <= wider_high[known]).all()
    np.testing.assert_allclose(bias_score_interval(correct[order], total[order], confidence)[0], low[order], atol=1e-14)


@settings(deadline=None, max_examples=25)
@given(cells, st.sampled_from([0.0, 0.05, 0.2]), st.floats(0.001, 0.9))
def test_p_is_at_most_alpha_exactly_when_the_interval_excludes_the_null(rows, tau, alpha):
    correct, total = np.array(rows).T
    p = bias_score_p_values(correct, total, tau)
    assume(not (np.abs(p - alpha) < 1e-9).any())
    low, high = bias_score_interval(correct, total, 1 - alpha)
    np.testing.assert_array_equal(p <= alpha, (low > tau) | (high < -tau))
    np.testing.assert_array_equal(np.isnan(p), np.isnan(low))


def test_p_values_at_the_ends():
    # equal accuracies: 1; a gap within tau: 1; overwhelming counts: 0 without a warning; one cell: undefined
    assert bias_score_p_values([4, 4], [5, 5]).tolist() == [1, 1]
    assert bias_score_p_values([4, 3], [5, 5], 0.3).tolist() == [1, 1]
    assert bias_score_p_values([10**6, 0], [10**6, 10**6]).tolist() == [0, 0]
    assert np.isnan(bias_score_p_values([4, 0], [5, 0])).all()
    assert bias_score_p_values([], []).size == 0
    with pytest.raises(ValueError, match="tau"):
        bias_score_p_values([4, 3], [5, 5], -0.1)


@pytest.mark.parametrize("n", [20, 50, 200])
def test_the_test_keeps_its_level_at_the_edge_of_the_null(n):
    # no simulation: every outcome of two cells that has any weight, at true accuracies that differ by exactly tau
    for tau, most in ((0.0, 0.058), (0.05, 0.035)):
        for accuracy in (0.15, 0.8, 0.93):
            weights = np.outer(binom.pmf(np.arange(n + 1), n, accuracy + tau), binom.pmf(np.arange(n + 1), n, accuracy))
            outcomes = np.argwhere(weights > 1e-5)
            p = bias_score_p_values(outcomes, np.full(outcomes.shape, n), tau)[:, 0]
            assert weights[tuple(outcomes[p <= 0.05].T)].sum() <= most


def test_the_test_keeps_its_level_with_four_unequal_cells():
    # true accuracies .85, .8, .8, .8: phi of the first is exactly tau = .05, that of the others -.05/3
    totals = np.array([30, 80, 50, 20])
    correct = np.random.default_rng(8).binomial(totals, [0.85, 0.8, 0.8, 0.8], size=(2000, 4))
    p = bias_score_p_values(correct, np.broadcast_to(totals, correct.shape), 0.05)
    assert ((p <= 0.05).mean(axis=0) < 0.035).all()
    low, high = bias_score_interval(correct, np.broadcast_to(totals, correct.shape))
    assert 0.94 < ((low[:, 0] <= 0.05) & (high[:, 0] >= 0.05)).mean() < 0.97


@settings(deadline=None, max_examples=40)
@given(st.floats(0, 1), st.floats(0.55, 1), st.floats(0.55, 1))
def test_rogan_gladen_undoes_the_errors_of_the_labels(true, sensitivity, specificity):
    observed = true * sensitivity + (1 - true) * (1 - specificity)
    corrected = rogan_gladen(observed, sensitivity, specificity)
    assert type(corrected) is float
    assert corrected == pytest.approx(true, abs=1e-12)


def test_rogan_gladen_clips_and_is_nan_where_the_labels_tell_nothing():
    # (.05 + .9 - 1)/(.8) < 0; (.95 + .9 - 1)/(.6) > 1; sensitivity + specificity = 1 and below; unknown input
    observed, sensitivity = [0.05, 0.95, 0.5, 0.5, np.nan], [0.9, 0.7, 0.1, 0.05, 0.9]
    np.testing.assert_array_equal(rogan_gladen(observed, sensitivity, 0.9), [0, 1, np.nan, np.nan, np.nan])
    with pytest.raises(ValueError, match=r"specificity = 90"):
        rogan_gladen(0.5, 0.9, 90)


def test_the_p_value_of_a_limit_is_that_of_a_normal_estimate():
    # an interval d -+ z * se reaches z * se, so 2 * Phi(-|d|/se) at any confidence
    for confidence in (0.5, 0.95, 0.99):
        z = norm.ppf((1 + confidence) / 2)
        for difference in (0.3, -0.3):
            assert p_value_of_limit(difference, z * 0.1, confidence) == pytest.approx(2 * norm.cdf(-3))


@settings(deadline=None, max_examples=40)
@given(st.floats(0.001, 2), st.floats(0.001, 2), st.floats(0.01, 0.999))
def test_the_p_value_of_a_limit_is_small_exactly_where_the_interval_excludes_0(difference, reach, confidence):
    p = p_value_of_limit(difference, reach, confidence)
    assume(abs(difference - reach) > 1e-9)
    assert (p < 1 - confidence) == (reach < difference)
    assert p == p_value_of_limit(-difference, reach, confidence)


def test_the_p_value_of_a_limit_at_the_ends():
    assert p_value_of_limit(0.0, 0.0, 0.95) == p_value_of_limit(0.0, 0.1, 0.95) == 1
    assert p_value_of_limit(0.2, 0.0, 0.95) == 0
    assert np.isnan([p_value_of_limit(np.nan, 0.1, 0.95), p_value_of_limit(0.1, np.nan, 0.95)]).all()
    with pytest.raises(ValueError, match="confidence"):
        p_value_of_limit(0.1, 0.1, 1.0)
