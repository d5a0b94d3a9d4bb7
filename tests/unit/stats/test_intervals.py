import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from c2b_ray.stats import (
    bias_score_interval,
    bias_score_p_values,
    bias_scores,
    contrast_test,
    equivalence_p_values,
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


def test_with_two_large_cells_the_interval_is_miettinen_and_nurminens():
    # the score test at the most likely accuracies under the null, to which the saddlepoint tends
    low, high = bias_score_interval([800, 700], [1000, 1000], 0.9)
    theirs = confint_proportions_2indep(800, 1000, 700, 1000, method="score", compare="diff", alpha=0.1)
    assert (low[0], high[0]) == pytest.approx(theirs, abs=5e-4)
    assert (low[1], high[1]) == pytest.approx((-high[0], -low[0]), abs=1e-9)


def test_an_interval_does_not_vanish_when_every_image_was_right_and_an_empty_cell_is_left_out():
    low, high = bias_score_interval([20, 20, 0, 20], [20, 20, 0, 20])
    # Clopper & Pearson's lower limit of 20/20 is .025^(1/20) = .832: phi of two such cells is known about as well
    np.testing.assert_allclose(bias_score_interval([20, 20], [20, 20])[0], -(1 - 0.025**0.05), atol=0.02)
    np.testing.assert_array_equal(np.isnan(low), [False, False, True, False])
    assert (low[[0, 1, 3]] < -0.1).all()
    assert (high[[0, 1, 3]] > 0.05).all()


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
    np.testing.assert_allclose(bias_score_interval(correct[order], total[order], confidence)[0], low[order], atol=1e-8)


@settings(deadline=None, max_examples=25)
@given(cells, st.sampled_from([0.0, 0.05, 0.2]), st.floats(0.001, 0.45))
def test_p_and_interval_agree(rows, tau, alpha):
    correct, total = np.array(rows).T
    p, none = bias_score_p_values(correct, total, tau), equivalence_p_values(correct, total, tau)
    assume(not (np.abs(np.concatenate([p, none]) - alpha) < 1e-6).any())
    low, high = bias_score_interval(correct, total, 1 - alpha)
    inner_low, inner_high = bias_score_interval(correct, total, 1 - 2 * alpha)
    assert (p <= alpha)[(low > tau) | (high < -tau)].all()
    assert ((inner_low > tau) | (inner_high < -tau))[p <= alpha].all()
    if tau == 0:
        np.testing.assert_array_equal(p <= alpha, (low > 0) | (high < 0))
    np.testing.assert_array_equal(none <= alpha, (inner_low > -tau) & (inner_high < tau))
    np.testing.assert_array_equal(np.isnan(p), np.isnan(low))
    np.testing.assert_array_equal(np.isnan(none), np.isnan(low))


def test_p_values_at_the_ends():
    # equal accuracies: 1; a gap within tau: 1; overwhelming counts: 0 without a warning; one cell: undefined
    assert bias_score_p_values([4, 4], [5, 5]).tolist() == [1, 1]
    assert bias_score_p_values([4, 3], [5, 5], 0.3).tolist() == [1, 1]
    assert bias_score_p_values([10**6, 0], [10**6, 10**6]).tolist() == [0, 0]
    assert np.isnan(bias_score_p_values([4, 0], [5, 0])).all()
    assert bias_score_p_values([], []).size == 0
    with pytest.raises(ValueError, match="tau"):
        bias_score_p_values([4, 3], [5, 5], -0.1)


def every_outcome(sizes):
    grid = np.stack(np.meshgrid(*(np.arange(n + 1) for n in sizes), indexing="ij"), axis=-1).reshape(-1, 2)
    return grid, np.broadcast_to(sizes, grid.shape)


def chance(event, sizes, accuracies):
    first, second = (binom.pmf(np.arange(n + 1), n, a) for n, a in zip(sizes, accuracies, strict=True))
    return first @ event.reshape(len(first), len(second)) @ second


@pytest.mark.parametrize("sizes", [(20, 20), (20, 200), (200, 20), (23, 61), (50, 50), (37, 150)])
@pytest.mark.parametrize("tau", [0.05, 0.0])
def test_the_test_keeps_its_level_at_the_edge_of_the_null_far_into_the_tail(sizes, tau):
    # no simulation: every outcome of two cells, at true accuracies that differ by exactly tau
    p = bias_score_p_values(*every_outcome(sizes), tau)[:, 0]
    for accuracy in (0.5, 0.7, 0.85, 0.9, 0.94, 0.96, 0.98, 0.99, 1.0):
        for level, most in ((0.05, 1.2), (0.001, 1.5), (1e-4, 2)):
            assert chance(p <= level, sizes, (accuracy - tau, accuracy)) <= most * level
            assert chance(p <= level, sizes, (accuracy, accuracy - tau)) <= most * level


def test_the_test_has_the_power_of_an_interval_null():
    # counting both tails of |phi| <= tau it was .30
    p = bias_score_p_values(*every_outcome((100, 100)), 0.05)[:, 0]
    assert chance(p <= 0.05, (100, 100), (0.8, 0.65)) >= 0.46


@pytest.mark.parametrize("sizes", [(20, 20), (20, 90), (60, 60)])
def test_the_interval_holds_the_truth(sizes):
    low, high = (limits[:, 0] for limits in bias_score_interval(*every_outcome(sizes)))
    for accuracies in ((0.5, 0.5), (0.9, 0.85), (0.85, 0.9), (0.99, 0.99), (1.0, 0.95), (0.95, 1.0), (0.97, 0.7)):
        truth = accuracies[0] - accuracies[1]
        assert chance((low <= truth + 1e-9) & (high >= truth - 1e-9), sizes, accuracies) > 0.94


def test_none_keeps_its_level_where_a_cell_is_biased_by_tau():
    sizes = (150, 300)
    p = equivalence_p_values(*every_outcome(sizes), 0.1)[:, 0]
    for accuracies in ((0.9, 0.8), (0.8, 0.9), (1.0, 0.9), (0.9, 1.0), (0.6, 0.5)):
        assert chance(p <= 0.05, sizes, accuracies) <= 0.06
    assert chance(p <= 0.05, sizes, (0.95, 0.95)) > 0.9
    assert equivalence_p_values([9, 9], [10, 10], 0.0).tolist() == [1, 1]


def test_the_test_keeps_its_level_with_four_unequal_cells():
    # true accuracies .85, .8, .8, .8: phi of the first is exactly tau = .05, that of the others -.05/3
    totals = np.array([30, 80, 50, 20])
    correct = np.random.default_rng(8).binomial(totals, [0.85, 0.8, 0.8, 0.8], size=(2000, 4))
    p = bias_score_p_values(correct, np.broadcast_to(totals, correct.shape), 0.05)
    assert ((p <= 0.05).mean(axis=0) < 0.058).all()
    assert (p[:, 0] <= 0.05).mean() > 0.035
    low, high = bias_score_interval(correct, np.broadcast_to(totals, correct.shape))
    assert 0.94 < ((low[:, 0] <= 0.05) & (high[:, 0] >= 0.05)).mean() < 0.975


def test_a_contrast_test_of_whole_images_is_the_tests_of_their_counts():
    correct, total = np.array([[45, 30, 0, 44], [7, 0, 3, 9]]), np.array([[50, 50, 0, 50], [9, 0, 4, 9]])
    accuracy = np.divide(correct, total, out=np.full(total.shape, np.nan), where=total > 0)
    found = contrast_test(accuracy, total, 0.05, 0.9)
    np.testing.assert_allclose(found.phi, bias_scores(correct, total))
    np.testing.assert_allclose((found.phi_low, found.phi_high), bias_score_interval(correct, total, 0.9), atol=1e-7)
    np.testing.assert_allclose(found.p_value, bias_score_p_values(correct, total, 0.05))
    np.testing.assert_allclose(found.none_p_value, equivalence_p_values(correct, total, 0.05))


def test_fewer_effective_images_tell_less():
    known, less = (contrast_test([0.9, 0.7, 0.8], [n, n, n], 0.05) for n in (100, 60.5))
    assert (less.phi_low < known.phi_low).all()
    assert (less.phi_high > known.phi_high).all()
    assert less.p_value[1] > known.p_value[1]
    for accuracy, effective in (([1.2, 0.5], [5, 5]), ([0.5, 0.5], [-1, 5]), ([0.5, 0.5], [5])):
        with pytest.raises(ValueError, match="effective"):
            contrast_test(accuracy, effective, 0.05)


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
