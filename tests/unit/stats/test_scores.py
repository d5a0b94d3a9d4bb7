from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, entropy

from c2b_ray.stats import bias_score_deviations, bias_scores, kl_from_uniform, paper_verdicts

cells = st.lists(
    st.integers(0, 60).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))), min_size=1, max_size=7
)


def test_bias_scores_of_the_worked_example():
    # accuracies .9, .6, .3: .9 - (.6 + .3)/2 = .45; .6 - (.9 + .3)/2 = 0; .3 - (.9 + .6)/2 = -.45
    np.testing.assert_allclose(bias_scores([9, 6, 3], [10, 10, 10]), [0.45, 0, -0.45], atol=1e-15)


def test_an_empty_cell_is_nan_and_is_left_out_of_the_others_mean():
    # .9 - .3 = .6; had the empty cell counted as 0, the first score would be .9 - .15
    np.testing.assert_allclose(bias_scores([9, 0, 3], [10, 0, 10]), [0.6, np.nan, -0.6])


@pytest.mark.parametrize("total", [[], [5], [5, 0, 0], [0, 0]])
def test_fewer_than_two_cells_with_data_have_no_scores(total):
    scores = bias_scores(total, total)
    assert scores.shape == (len(total),)
    assert np.isnan(scores).all()


def test_leading_axes_are_independent_attributes():
    correct, total = np.array([[[9, 6, 3], [1, 0, 4]]]), np.array([[[10, 10, 10], [2, 0, 5]]])
    expected = [bias_scores(correct[0, i], total[0, i]) for i in range(2)]
    np.testing.assert_array_equal(bias_scores(correct, total)[0], expected)


@settings(deadline=None, max_examples=30)
@given(cells, st.randoms())
def test_scores_sum_to_zero_stay_in_range_and_follow_their_cells(rows, random):
    order = list(range(len(rows)))
    random.shuffle(order)
    correct, total = np.array(rows).T
    scores = bias_scores(correct, total)
    defined = scores[~np.isnan(scores)]
    assert abs(defined.sum()) < 1e-12
    assert (np.abs(defined) <= 1).all()
    np.testing.assert_allclose(bias_scores(correct[order], total[order]), scores[order], atol=1e-15)
    if defined.size:
        exact = paper_verdicts(correct, total, 0)
        np.testing.assert_array_equal(exact[np.abs(scores) > 1e-9], np.sign(scores)[np.abs(scores) > 1e-9])


def test_two_classes_score_the_accuracy_gap_that_fairlearn_finds():
    from fairlearn.metrics import MetricFrame
    from sklearn.metrics import accuracy_score

    rng = np.random.default_rng(3)
    truth, predicted, group = rng.integers(0, 4, 300), rng.integers(0, 4, 300), rng.integers(0, 2, 300)
    frame = MetricFrame(metrics=accuracy_score, y_true=truth, y_pred=predicted, sensitive_features=group)
    right = truth == predicted
    scores = bias_scores([right[group == g].sum() for g in (0, 1)], [(group == g).sum() for g in (0, 1)])
    assert np.abs(scores).max() == pytest.approx(frame.difference())
    assert scores[0] == pytest.approx(frame.by_group[0] - frame.by_group[1])


@pytest.mark.parametrize(
    ("correct", "total", "said"),
    [
        ([1, 5], [2, 4], r"\(1,\).*correct=5.*total=4"),
        ([-1, 1], [2, 2], r"\(0,\).*correct=-1"),
        ([0.5, 1], [2, 2], r"\(0,\).*0\.5"),
        ([1, 1], [2, np.nan], r"\(1,\).*nan"),
        ([1, 1], [np.inf, 2], r"\(0,\).*inf"),
        ([1], [2, 2], "shape"),
        (1, 2, "axis"),
    ],
)
def test_impossible_counts_are_refused_by_index_and_value(correct, total, said):
    for score in (bias_scores, lambda c, t: paper_verdicts(c, t, 0.05)):
        with pytest.raises(ValueError, match=said):
            score(correct, total)


def test_the_papers_rule_is_strict_where_floats_are_not():
    # (k+1)/20 - k/20 is exactly tau = 1/20, so nothing is biased; in floats 8 of the 20 steps come out above 0.05
    steps = np.stack([np.arange(1, 21), np.arange(20)], axis=1)
    assert (bias_scores(steps, np.full((20, 2), 20))[:, 0] > 0.05).sum() == 8
    assert not paper_verdicts(steps, np.full((20, 2), 20), 0.05).any()
    assert (paper_verdicts(steps, np.full((20, 2), 20), Fraction(1, 20) - Fraction(1, 10**30)) == [1, -1]).all()


@pytest.mark.parametrize("tau", [0.05, np.float64(0.05), np.float32(0.05), "0.05", "1/20", Fraction(1, 20)])
def test_tau_means_the_decimal_it_prints_as(tau):
    # phi of 3 classes: 13/20 - (12/20 + 12/20)/2 = 1/20 exactly; 14/20 is beyond
    assert paper_verdicts([13, 12, 12], [20] * 3, tau).tolist() == [0, 0, 0]
    assert paper_verdicts([14, 12, 12], [20] * 3, tau).tolist() == [1, 0, 0]


@pytest.mark.parametrize("tau", [-0.1, float("nan"), float("inf")])
def test_a_tau_that_is_no_threshold_is_refused(tau):
    with pytest.raises(ValueError, match="tau"):
        paper_verdicts([1, 1], [2, 2], tau)


def test_undefined_cells_are_not_biased_by_the_papers_rule():
    assert paper_verdicts([9, 0, 3], [10, 0, 10], 0.05).tolist() == [1, 0, -1]
    assert paper_verdicts([9, 0], [10, 0], 0.05).tolist() == [0, 0]
    assert paper_verdicts([], [], 0.05).size == 0


def test_the_papers_rule_calls_an_unbiased_classifier_biased_more_often_than_not():
    # every outcome of 20 and 20 draws at accuracy .8, weighted by its probability
    outcomes = np.stack(np.meshgrid(np.arange(21), np.arange(21), indexing="ij"), axis=-1)
    called = paper_verdicts(outcomes, np.full(outcomes.shape, 20), 0.05)[..., 0] != 0
    weight = np.outer(binom.pmf(np.arange(21), 20, 0.8), binom.pmf(np.arange(21), 20, 0.8))
    assert weight[called].sum() == pytest.approx(0.5502016645736, abs=1e-12)


def test_kl_from_uniform_of_the_worked_examples():
    # .6 ln 1.2 + .4 ln .8; one group alone: ln 2; equal rates: 0
    assert kl_from_uniform([0.6, 0.4]) == pytest.approx(0.020135513550688863, abs=1e-16)
    assert kl_from_uniform([1, 0]) == pytest.approx(np.log(2), abs=1e-15)
    assert kl_from_uniform([0.1, 0.1, 0.1]) == 0
    for undefined in ([0, 0], [0.5, np.nan], []):
        assert np.isnan(kl_from_uniform(undefined))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9))
def test_kl_from_uniform_is_scipys_relative_entropy(rates):
    assert kl_from_uniform(rates) == pytest.approx(entropy(rates, np.ones(len(rates))), abs=1e-12)


@pytest.mark.parametrize("rates", [[-0.1, 0.2], [np.inf, 1], [[0.1, 0.2]]])
def test_rates_that_are_none_are_refused(rates):
    with pytest.raises(ValueError, match="rate"):
        kl_from_uniform(rates)


def test_deviations_of_bias_scores_are_those_of_simulated_means():
    deviation, number = np.array([0.3, 0.1, 0.2]), np.array([9, 4, 25])
    means = np.random.default_rng(1).normal(0.8, deviation / np.sqrt(number), (100_000, 3))
    scores = means - (means.sum(axis=1, keepdims=True) - means) / 2
    assert bias_score_deviations(deviation, number) == pytest.approx(scores.std(axis=0), rel=0.02)
    # A value without numbers is no part of a score: .1 = .3 / 3 and .05 = .1 / 2.
    known = bias_score_deviations([0.3, 0.1, 0.2], [9, 4, 0])
    assert known[:2] == pytest.approx([0.0125**0.5] * 2)
    assert bias_score_deviations([np.nan, np.nan], [5, 5]).tolist() == [0, 0]
