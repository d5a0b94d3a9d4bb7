"""The test of the calibration: its size where it holds, its power where it does not, and what it cannot tell."""

import numpy as np
import pytest

from c2b_ray.stats.noisy_labels import Known, misfit_p_value

ACCURACY = np.array([0.95, 0.95, 0.65])


def noisy(n, share):
    return np.full((n, n), (1 - share) / (n - 1)) * (1 - np.eye(n)) + np.eye(n) * share


def run_of(random, verifier, claimed, together=0.0, images=200):
    """Right and wrong answers on images of three values, nine in ten of which show what they were drawn for.

    verifier, claimed: how often it is right on the run, and on 100 known images of each value. together: how much less
    often the classifier is right where the verifier errs.
    """
    n, counts = len(ACCURACY), np.zeros((2, 3, 3))
    for j in range(n):
        content = random.choice(n, images, p=noisy(n, 0.9)[j])
        said = np.array([random.choice(n, p=noisy(n, verifier)[k]) for k in content])
        rate = ACCURACY[content] - together * (said != content)
        np.add.at(counts, ((random.random(images) >= rate).astype(int), j, said), 1)
    return counts, Known(np.stack([random.multinomial(100, row) for row in noisy(n, claimed)]).astype(float))


def warned(runs, **how):
    random = np.random.default_rng(5)
    p_values = []
    for _ in range(runs):
        counts, known = run_of(random, **how)
        p_values.append(misfit_p_value(*counts, known))
    return np.mean(np.array(p_values) <= 0.05)


@pytest.mark.long
@pytest.mark.parametrize("verifier", [0.8, 0.98])
def test_a_calibration_that_holds_is_seldom_refused(verifier):
    assert warned(60, verifier=verifier, claimed=verifier) <= 0.12  # .05 and 2.5 standard errors of 60 runs


@pytest.mark.long
def test_one_that_does_not_hold_is_refused_and_so_are_errors_that_come_together():
    assert warned(20, verifier=0.6, claimed=0.98) >= 0.9
    assert warned(20, verifier=0.85, claimed=0.85, together=0.4) >= 0.9


def test_the_class_is_tested_too():
    # Images that were said to show no bus are right as often as others: it is the verifier that does not know buses.
    known = Known(np.eye(2) * 500, np.array([[495.0, 5], [5, 495]]))
    right, wrong = np.array([[60, 40, 20], [40, 60, 20]]), np.array([[10, 20, 5], [20, 10, 5]])
    assert misfit_p_value(right, wrong, known) < 0.01


def test_nothing_can_be_told_where_one_answer_alone_was_classified():
    right, left = np.diag([80, 60]), np.array([[0, 30], [40, 0]])
    known = np.array([[90, 10], [20, 80]])
    assert misfit_p_value(right, np.diag([20, 40]), known, unclassified=left) == 1
    assert misfit_p_value(np.zeros((2, 2)), np.zeros((2, 2)), known) == 1
    assert misfit_p_value(right * 3, np.diag([20, 40]) * 3, known, 3.0, left * 3) == 1


def test_it_says_the_same_twice():
    counts, known = run_of(np.random.default_rng(1), 0.8, 0.9)
    assert misfit_p_value(*counts, known) == misfit_p_value(*counts, known)


def test_a_rough_test_spares_the_simulation_where_the_calibration_fits_well():
    counts, known = run_of(np.random.default_rng(1), 0.9, 0.9)
    assert misfit_p_value(*counts, known, rough=True) == 1
    assert 0.05 < misfit_p_value(*counts, known) < 1
    wrong, known = run_of(np.random.default_rng(1), 0.6, 0.98)
    assert misfit_p_value(*wrong, known, rough=True) == misfit_p_value(*wrong, known) <= 0.05
