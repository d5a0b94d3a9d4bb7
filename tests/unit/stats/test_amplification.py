import numpy as np
import pytest

from c2b_ray.stats import directional_bias_amplification, leakage


def rows(counts):
    """One-hot attributes and targets of a table of counts, attribute by attribute."""
    table = np.asarray(counts)
    cells = np.repeat(np.arange(table.size), table.ravel())
    attribute, target = np.unravel_index(cells, table.shape)
    return np.eye(table.shape[0], dtype=int)[attribute], np.eye(table.shape[1], dtype=int)[target]


def amplification(truth, predicted):
    attributes, targets = rows(truth)
    predicted_attributes, predictions = rows(predicted)
    assert (attributes == predicted_attributes).all()
    return directional_bias_amplification(attributes, targets, predictions)


def test_predicting_the_truth_amplifies_nothing():
    assert amplification([[30, 10], [10, 30]], [[30, 10], [10, 30]]) == 0


def test_predicting_by_the_attribute_amplifies_and_ignoring_it_dampens():
    # P(t0 | a0) goes from .75 to 1, and each of the 4 pairs moves by .25 in its own direction
    assert amplification([[30, 10], [10, 30]], [[40, 0], [0, 40]]) == pytest.approx(0.25)
    assert amplification([[30, 10], [10, 30]], [[20, 20], [20, 20]]) == pytest.approx(-0.25)


def test_an_independent_pair_counts_as_nothing():
    # t0 is independent of a0 (20/80 = 40/80 * 40/80), t1 is not. Changes for a0: -.25, +.25, 0.
    # the code's rule: (0 * -.25 + 1 * .25)/6; the papers' formula: (-1 * -.25 + 1 * .25)/6 = 1/12
    assert amplification([[20, 15, 5], [20, 5, 15]], [[10, 25, 5], [20, 5, 15]]) == pytest.approx(1 / 24)


def test_independence_is_decided_in_integers():
    # 3 of 5 and 6 of 10: all pairs independent, yet 3/15 differs from 5/15 * 9/15 in floats
    assert 3 / 15 != (5 / 15) * (9 / 15)
    assert amplification([[3, 2], [6, 4]], [[5, 0], [6, 4]]) == 0


def test_attribute_values_that_never_occur_are_left_out():
    attributes, targets = rows([[30, 10], [10, 30]])
    _, predictions = rows([[40, 0], [0, 40]])
    padded = np.pad(attributes, ((0, 0), (0, 1)))
    assert directional_bias_amplification(padded, targets, predictions) == pytest.approx(0.25)
    assert np.isnan(directional_bias_amplification(np.zeros_like(attributes), targets, predictions))
    assert np.isnan(directional_bias_amplification(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros((0, 2))))


def test_relabelling_changes_nothing():
    attributes, targets = rows([[7, 2, 4], [3, 8, 1]])
    predictions = targets[np.random.default_rng(1).permutation(len(targets))]
    value = directional_bias_amplification(attributes, targets, predictions)
    swapped = directional_bias_amplification(attributes[:, ::-1], targets[:, [2, 0, 1]], predictions[:, [2, 0, 1]])
    assert value == pytest.approx(swapped, abs=1e-15)
    assert -1 <= value <= 1
    assert value != 0


@pytest.mark.parametrize(
    ("attributes", "targets", "predictions", "said"),
    [
        ([[1, 0]], [[2, 0]], [[1, 0]], "targets must hold 0 and 1"),
        ([[1, 0]], [[1, 0]], [[0.5, 0.5]], "predictions must hold 0 and 1"),
        ([[1, 0]], [[1, 0], [0, 1]], [[1, 0], [0, 1]], "need"),
        ([[1, 0]], [[1, 0]], [[1, 0, 0]], "need"),
        ([1, 0], [[1, 0]], [[1, 0]], "two axes"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(attributes, targets, predictions, said):
    with pytest.raises(ValueError, match=said):
        directional_bias_amplification(attributes, targets, predictions)


def test_leakage_of_the_worked_example():
    # (.9 + .6 + .7)/4: the wrong guess's .8 counts 0, but its row counts in N
    assert leakage([0.9, 0.6, 0.8, 0.7], [True, True, False, True]) == pytest.approx(0.55)
    assert leakage([0.9], [0]) == 0
    assert np.isnan(leakage([], []))
    for confidence, correct in (([0.5, 0.5], [1]), ([1.5], [1]), ([0.5], [2]), ([np.nan], [1])):
        with pytest.raises(ValueError, match="confidence"):
            leakage(confidence, correct)
