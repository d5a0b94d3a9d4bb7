"""Accuracies corrected for a reader's errors, against the matrix method, counts, and simulated truth."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray import stats
from c2b_ray.stats.read_values import read_accuracies

CONFUSION = np.array([[0.9, 0.06, 0.04], [0.1, 0.8, 0.1], [0.02, 0.08, 0.9]])


def test_with_rates_that_are_known_it_is_the_matrix_method():
    shares, accuracy = np.array([0.5, 0.3, 0.2]), np.array([0.9, 0.6, 0.75])
    whole = np.round(1e6 * shares @ CONFUSION)
    right = np.round(1e6 * (shares * accuracy) @ CONFUSION)
    found = read_accuracies(right, whole - right, 1e9 * CONFUSION)
    # right = C' (pi A) and whole = C' pi: solving both and dividing gives A (Barron 1977).
    inverse = np.linalg.inv(CONFUSION.T)
    assert found.accuracy == pytest.approx((inverse @ right) / (inverse @ whole), abs=2e-4)
    assert found.accuracy == pytest.approx(accuracy, abs=2e-4)
    # Of those read as the first value: .5 * .9 of .5 * .9 + .3 * .1 + .2 * .02.
    assert found.shown[0] == pytest.approx(0.45 / 0.484, abs=1e-4)
    assert found.sensitivity == pytest.approx(np.diag(CONFUSION), abs=1e-4)
    # Of those that do not show it: (.3 * .1 + .2 * .02) / .5 are read as it.
    assert found.specificity[0] == pytest.approx(1 - 0.034 / 0.5, abs=1e-4)


def test_a_reader_that_never_errs_gives_the_counts():
    found = read_accuracies([40, 30], [10, 30], 1e7 * np.eye(2))
    assert found.accuracy == pytest.approx([0.8, 0.5], abs=1e-3)
    assert found.effective == pytest.approx([50, 60], rel=0.05)
    assert found.shown == pytest.approx([1, 1], abs=1e-4)


def test_a_smaller_calibration_leaves_more_doubt():
    wide, narrow = (
        read_accuracies([80, 60], [20, 40], images * np.array([[0.9, 0.1], [0.2, 0.8]])) for images in (30, 3000)
    )
    assert (wide.effective < narrow.effective).all()
    assert (wide.shown_high - wide.shown_low > narrow.shown_high - narrow.shown_low).all()
    assert (np.diag(wide.from_reader) > 3 * np.diag(narrow.from_reader)).all()


def test_a_value_that_nothing_was_read_as_is_unknown():
    found = read_accuracies([40, 0], [10, 0], [[90, 10], [20, 80]])
    assert np.isnan(found.accuracy[1])
    assert found.effective[1] == 0
    nothing = read_accuracies([0, 0], [0, 0], np.eye(2))
    assert np.isnan(nothing.accuracy).all()
    assert (nothing.effective == 0).all()


def test_intervals_hold_the_truth_that_counts_miss():
    random = np.random.default_rng(3)
    confusion, accuracy, shares = np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([0.9, 0.5]), np.array([0.5, 0.5])
    held = plain = 0
    for _ in range(120):
        shown = random.choice(2, 600, p=shares)
        read = np.array([random.choice(2, p=confusion[k]) for k in shown])
        right = random.random(600) < accuracy[shown]
        r, x = np.bincount(read[right], minlength=2), np.bincount(read[~right], minlength=2)
        known = np.stack([random.multinomial(120, row) for row in confusion])
        found = read_accuracies(r, x, known)
        test = stats.contrast_test(found.accuracy, found.effective, 0.05, 0.95, found.covariance)
        held += bool(test.phi_low[0] <= 0.4 <= test.phi_high[0])
        low, high = stats.bias_score_interval(r, r + x)
        plain += bool(low[0] <= 0.4 <= high[0])
    assert held >= 108, held  # .95 of 120 is 114, with a deviation of 2.4
    assert plain <= 24, plain


@pytest.mark.parametrize(
    ("right", "wrong", "calibration", "match"),
    [
        ([1, 2], [1], np.eye(2), "must be"),
        ([1, 2], [1, 1], np.eye(3), "must be"),
        ([1, 2], [1, 1], [[1, 0], [0, 0]], "an image of each value"),
        ([1, 2], [1, 1], [[1, -1], [0, 1]], "0 or more"),
        ([1, -2], [1, 1], np.eye(2), "correct"),
        ([1, 2.5], [1, 1], np.eye(2), "whole"),
    ],
)
def test_wrong_input_is_refused(right, wrong, calibration, match):
    with pytest.raises(ValueError, match=match):
        read_accuracies(right, wrong, calibration)
