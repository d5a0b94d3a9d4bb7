"""The number of images that would settle a verdict: it does, about as often as promised."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from c2b_ray.stats.intervals import bias_score_p_values, equivalence_p_values
from c2b_ray.stats.sample_size import MOST_IMAGES, images_to_settle


def settled(n: int, accuracy: np.ndarray, tau: float) -> float:
    """Exact chance that n images a cell settle the first of two cells at these true accuracies."""
    weights = np.outer(*(binom.pmf(np.arange(n + 1), n, a) for a in accuracy))
    outcomes = np.argwhere(weights > 1e-6)
    totals = np.full(outcomes.shape, n)
    found = bias_score_p_values(outcomes, totals, tau)[:, 0] <= 0.05
    none = equivalence_p_values(outcomes, totals, tau)[:, 0] <= 0.05
    return float(weights[tuple(outcomes[none | found].T)].sum())


@pytest.mark.parametrize(
    ("correct", "tau"), [((18, 14), 0.0), ((18, 12), 0.05), ((14, 18), 0.05), ((16, 16), 0.2), ((17, 16), 0.2)]
)
def test_that_many_images_settle_a_cell_about_as_often_as_promised(correct, tau):
    # 120 images were seen, so that smoothing hardly moves the accuracies
    counts, totals = np.array(correct) * 6, np.array([120, 120])
    n = images_to_settle(counts, totals, tau)[0]
    assert 0.75 < settled(n, counts / totals, tau) < 0.9
    assert settled(n // 2, counts / totals, tau) < 0.65


def test_a_gap_needs_the_textbooks_sample_size():
    # .7 against .5, tau 0, the test at the pooled .6 (Fleiss): (1.959964 * sqrt(2*.6*.4) + .841621 * sqrt(.46))^2 / .04
    # = 93.0, and one for the steps of the counts
    assert images_to_settle([700_000, 500_000], [10**6, 10**6], 0.0).tolist() == [94, 94]
    # both .5, tau .1: two one-sided tests share the risk, at .55 and .45: (1.644854 * sqrt(.495) + 1.281552 *
    # sqrt(.5))^2 / .01 = 425.8
    assert images_to_settle([500_000, 500_000], [10**6, 10**6], 0.1).tolist() == [427, 427]


def test_certainty_is_not_promised_after_one_image():
    assert images_to_settle([20, 20], [20, 20], 0.05)[0] > 90
    assert (images_to_settle([1, 0], [1, 1], 0.05) > 1).all()


@pytest.mark.parametrize("values", [2, 3])
def test_cells_that_are_always_right_are_settled_once_the_test_says_so(values):
    """At the observed variance of 0 a normal test settled them after 11 images, where the test itself never did."""
    correct = np.full(values, 10**6)
    n = int(images_to_settle(correct, correct, 0.05)[0])
    assert equivalence_p_values([n] * values, [n] * values, 0.05).max() <= 0.05
    few = n // 2
    assert equivalence_p_values([few] * values, [few] * values, 0.05).max() > 0.05


@pytest.mark.parametrize(
    ("accuracy", "tau", "alpha"),
    [
        ((0.93, 0.71, 0.93), 0.05, 0.004),
        ((0.88, 0.97, 0.97, 0.97), 0.0, 0.02),
        ((0.98, 0.97, 0.98), 0.1, 0.05),
        ((0.62, 0.95, 0.95), 0.0, 0.0005),
        ((0.99, 0.99), 0.05, 0.05),
    ],
)
def test_the_number_gives_the_promised_power_near_an_accuracy_of_1_and_far_out(accuracy, tau, alpha):
    """A normal test at the observed variance gave .35 to .97 for such cells; bench/settling.py has random ones."""
    seen = np.full(len(accuracy), 1000)
    n = int(images_to_settle(np.round(np.array(accuracy) * seen).astype(int), seen, tau, alpha)[0])
    draws = np.random.default_rng(20_261_123).binomial(n, accuracy, (4000, len(accuracy)))
    test = bias_score_p_values if abs(accuracy[0] - np.mean(accuracy[1:])) > tau else equivalence_p_values
    assert 0.72 < (test(draws, np.full(draws.shape, n), tau)[:, 0] <= alpha).mean() < 0.88


def test_what_no_number_of_images_settles_is_minus_one():
    # phi = tau (in floats 4e-17 above it), phi = tau = 0, an empty cell, one cell alone, a gap of 1e-6 beyond tau = 0
    assert images_to_settle([16, 15], [20, 20], 0.05).tolist() == [-1, -1]
    assert images_to_settle([5, 5], [20, 20], 0.0).tolist() == [-1, -1]
    assert images_to_settle([16, 0, 5], [20, 0, 20], 0.05)[1] == -1
    assert images_to_settle([16], [20], 0.05).tolist() == [-1]
    assert images_to_settle([500_001, 500_000], [10**6, 10**6], 0.0).tolist() == [-1, -1]
    assert 0 < images_to_settle([5_010, 5_000], [10**4, 10**4], 0.0)[0] <= MOST_IMAGES
    assert images_to_settle([], [], 0.05).size == 0
    with pytest.raises(ValueError, match="power"):
        images_to_settle([1, 2], [3, 3], 0.05, power=1.0)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 30), min_size=2, max_size=5), st.sampled_from([0.0, 0.05, 0.3]))
def test_settling_follows_its_cells_and_wants_more_for_more_power(correct, tau):
    counts, totals = np.array(correct), np.full(len(correct), 30)
    needed, surer = images_to_settle(counts, totals, tau), images_to_settle(counts, totals, tau, power=0.95)
    np.testing.assert_array_equal(images_to_settle(counts[::-1], totals, tau), needed[::-1])
    both = (needed > 0) & (surer > 0)
    assert (surer[both] >= needed[both]).all()
    assert ((needed == -1) | (needed >= 1)).all()


@pytest.mark.parametrize("alpha", [0.8, 0.9])
def test_an_error_rate_that_leaves_nothing_to_gain_is_no_division_of_nothing_by_nothing(alpha):
    # z of alpha and z of power cancel, where no number of images brings the estimate within tau.
    assert images_to_settle([9, 3], [10, 10], 0.05, alpha).min() >= 1
