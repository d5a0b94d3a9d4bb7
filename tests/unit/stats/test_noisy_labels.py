"""Scores corrected for what images show, and the test of the calibration that the correction rests on."""

import numpy as np
import pytest

from c2b_ray.stats import bias_score_interval, bias_score_p_values, bias_scores, contrast_test, rogan_gladen
from c2b_ray.stats.noisy_labels import (
    CalibrationCounts,
    Run,
    corrected,
    corrected_runs,
    misfit_p_value,
    misfit_p_values,
)

SURE = np.eye(3) * 1e6


def scored(scores):
    return contrast_test(scores.accuracy, scores.effective, 0.05, covariance=scores.covariance)


def simulated(random, accuracy, purity, verifier, images, known, pool):
    """Right, wrong and unclassified images (3, n, n + 1) of one run, and what is known of its verifier.

    A tenth of the images show another value. pool: of three times as many images, the classifier sees those that the
    verifier accepts alone, and so many of them.
    """
    n = len(accuracy)
    answers = np.zeros((n + 1, n + 1))
    answers[:n, :n], answers[:n, n] = _noisy(n, verifier) * verifier, 1 - verifier
    answers[n] = [*np.full(n, (1 - verifier) / n), verifier]
    shown = np.hstack([_noisy(n, 0.9) * purity[:, None], 1 - purity[:, None]])
    counts, rate = np.zeros((3, n, n + 1)), np.append(accuracy, 0.1)
    for j in range(n):
        size = images * 3 if pool else images
        content = random.choice(n + 1, size, p=shown[j])
        said = np.array([random.choice(n + 1, p=answers[k]) for k in content])
        outcome = np.where(random.random(size) < rate[content], 0, 1)
        if pool:
            outcome[~np.isin(np.arange(size), np.flatnonzero(said == j)[:images])] = 2
        np.add.at(counts, (outcome, j, said), 1)
    values = np.stack([random.multinomial(known, row) for row in _noisy(n, verifier)])
    classes = np.stack([random.multinomial(known, row) for row in ([verifier, 1 - verifier], [1 - verifier, verifier])])
    return counts, CalibrationCounts(values.astype(float), classes.astype(float))


def test_runs_estimated_together_are_estimated_as_each_by_itself():
    random = np.random.default_rng(8)
    runs = []
    for n, verifier, images, pool in (
        (2, 0.95, 40, False),
        (4, 0.7, 300, True),
        (2, 0.6, 500, True),
        (3, 0.9, 60, False),
    ):
        accuracy, purity = random.uniform(0.5, 1.0, n), random.uniform(0.5, 1.0, n)
        (right, wrong, left), known = simulated(random, accuracy, purity, verifier, images, 30, pool)
        runs.append(Run(right, wrong, known, (1.0, 1.5), left))
    right, wrong = np.array([[30, 5], [4, 40]]), np.array([[6, 2], [1, 3]])
    runs += [Run(right, wrong, np.array([[40, 4], [6, 50]])), Run(np.zeros((2, 2)), np.zeros((2, 2)), np.eye(2))]
    for run, together in zip(runs, corrected_runs(runs, 0.9), strict=True):
        for name, value in vars(corrected(run.right, run.wrong, run.calibration, 0.9, *run[3:])).items():
            # The order in which NumPy adds differs with the number of fits.
            np.testing.assert_allclose(getattr(together, name), value, rtol=1e-6, atol=1e-9, err_msg=name)
    assert misfit_p_values(runs) == [misfit_p_value(*run) for run in runs]
    assert corrected_runs([]) == misfit_p_values([]) == []


def test_sure_labels_leave_everything_as_it_was():
    right, wrong = np.diag([190, 180, 120]), np.diag([10, 20, 80])
    found = scored(corrected(right, wrong, SURE))
    correct, total = [190, 180, 120], [200, 200, 200]
    low, high = bias_score_interval(correct, total)
    # The half image of even content that keeps shares off 0 is worth under a hundredth.
    np.testing.assert_allclose(found.phi, bias_scores(correct, total), atol=0.003)
    np.testing.assert_allclose(found.phi_low, low, atol=0.01)
    np.testing.assert_allclose(found.phi_high, high, atol=0.01)
    np.testing.assert_allclose(np.log(found.p_value[2]), np.log(bias_score_p_values(correct, total, 0.05)[2]), rtol=0.1)


def test_shares_of_two_classes_are_rogan_and_gladens():
    # Of 1,000 images drawn for the first, 700 are called so; sensitivity 0.9, specificity 0.8, known from many images.
    right = np.array([[350, 150], [150, 350]])
    found = corrected(right, right, np.array([[9e5, 1e5], [2e5, 8e5]]))
    assert found.shown[0, 0] == pytest.approx(rogan_gladen(0.7, 0.9, 0.8), abs=0.01)
    assert found.shown[1, 0] == pytest.approx(rogan_gladen(0.3, 0.9, 0.8), abs=0.01)
    assert found.sensitivity[0] == pytest.approx(0.9, abs=0.01)
    assert found.specificity[0] == pytest.approx(0.8, abs=0.01)


@pytest.mark.long
def test_intervals_cover_where_a_fifth_shows_something_else_and_the_observed_ones_do_not():
    random, runs = np.random.default_rng(0), 60
    accuracy = np.array([0.98, 0.98, 0.7])
    phi = bias_scores((accuracy * 1000).astype(int), [1000] * 3)
    shown, answers = _noisy(3, 0.8), _noisy(3, 0.95)
    covered, observed = np.zeros(3), np.zeros(3)
    for _ in range(runs):
        right, wrong, known = _drawn(random, accuracy, shown, answers, 200, 50)
        found = scored(corrected(right, wrong, known))
        covered += (found.phi_low <= phi) & (phi <= found.phi_high)
        low, high = bias_score_interval(right.sum(axis=1), (right + wrong).sum(axis=1))
        observed += (low <= phi) & (phi <= high)
    assert (covered / runs >= 0.85).all()  # 0.95 less 3.5 standard errors of 60 runs
    assert observed[2] / runs < 0.5


def test_a_smaller_calibration_means_wider_limits():
    # The counts that 300 images a class would give on average, accuracies 0.95 and 0.7.
    joint = np.einsum("jk,kw->jkw", _noisy(2, 0.8), _noisy(2, 0.85)) * 300
    right = np.round(np.einsum("jkw,k->jw", joint, [0.95, 0.7]))
    wrong = np.round(np.einsum("jkw,k->jw", joint, [0.05, 0.3]))
    wide = corrected(right, wrong, _noisy(2, 0.85) * 10)
    narrow = corrected(right, wrong, _noisy(2, 0.85) * 1000)
    limits = [(scores.phi_high - scores.phi_low) for scores in (scored(narrow), scored(wide))]
    assert (limits[0] < limits[1]).all()
    assert (narrow.shown_high - narrow.shown_low < wide.shown_high - wide.shown_low).all()


def test_a_verifier_that_guesses_leaves_no_claim():
    random = np.random.default_rng(2)
    right, wrong, known = _drawn(random, np.array([0.95, 0.6]), _noisy(2, 0.8), np.full((2, 2), 0.5), 200, 100)
    found = corrected(right, wrong, known)
    assert (scored(found).p_value > 0.05).all()
    assert (found.sensitivity + found.specificity - 1 < 0.3).all()


def test_what_was_not_drawn_is_unknown():
    right, wrong = np.diag([50, 40, 0]), np.diag([0, 10, 0])
    found = corrected(right, wrong, SURE)
    assert np.isnan(found.accuracy[2])
    assert scored(found).phi == pytest.approx([0.2, -0.2, np.nan], abs=0.01, nan_ok=True)
    nothing = corrected(np.zeros((2, 2)), np.zeros((2, 2)), np.eye(2))
    assert np.isnan(nothing.accuracy).all()
    assert nothing.effective.tolist() == [0, 0]


def test_nothing_is_known_of_a_value_of_which_no_image_was_accepted():
    known = CalibrationCounts(np.eye(2) * 1000, np.array([[1000.0, 0], [5, 4995]]))
    found = corrected(np.array([[5, 0, 0], [0, 0, 0]]), np.zeros((2, 3)), known, unclassified=np.diag([0, 0, 2])[1:])
    assert found.accuracy == pytest.approx([1, np.nan], abs=0.01, nan_ok=True)
    assert np.isnan([found.shown[1, 1], found.shown_low[1], found.class_shown[1]]).all()


@pytest.mark.parametrize(
    ("right", "calibration", "words"),
    [([[1, 0]], np.eye(2), "square"), ([[0.5, 0], [0, 1]], np.eye(2), "whole"), (np.eye(2), -np.eye(2), "calibration")],
)
def test_bad_input_is_named(right, calibration, words):
    with pytest.raises(ValueError, match=words):
        corrected(right, np.zeros_like(np.asarray(right, float)), calibration)


def _noisy(n: int, share: float) -> np.ndarray:
    return np.full((n, n), (1 - share) / (n - 1)) * (1 - np.eye(n)) + np.eye(n) * share


def _drawn(random, accuracy, shown, answers, images, known):
    n = len(accuracy)
    right, wrong = np.zeros((n, n)), np.zeros((n, n))
    for j in range(n):
        content = random.choice(n, images, p=shown[j])
        said = np.array([random.choice(n, p=answers[k]) for k in content])
        hit = random.random(images) < accuracy[content]
        np.add.at(right, (j, said[hit]), 1)
        np.add.at(wrong, (j, said[~hit]), 1)
    return right, wrong, np.stack([random.multinomial(known, answers[k]) for k in range(n)])


def test_images_that_were_counted_twice_tell_no_more_than_once():
    right, wrong, known = np.array([[90, 12], [8, 60]]), np.array([[20, 4], [4, 42]]), np.array([[90.0, 10], [10, 90]])
    once, twice = corrected(right, wrong, known), corrected(2 * right, 2 * wrong, known, copies=2)
    for name in ("accuracy", "shown_low", "shown_high", "effective"):
        np.testing.assert_allclose(getattr(twice, name), getattr(once, name), rtol=0.02)
    assert (corrected(2 * right, 2 * wrong, known).effective > 1.8 * once.effective).all()
    with pytest.raises(ValueError, match="copies"):
        corrected(right, wrong, known, copies=0.5)


SURE_CLASS = np.eye(2) * 1e6


def test_images_that_do_not_show_the_class_are_no_images_of_a_value():
    # Of 200 images each, 20 and 2 show no bus; the classifier takes 1 in 10 of these for one, and 9 in 10 buses.
    right = np.array([[162, 0, 2], [0, 178, 0]])
    wrong = np.array([[18, 0, 18], [0, 20, 2]])
    found = corrected(right, wrong, CalibrationCounts(np.eye(2) * 1e6, SURE_CLASS))
    assert found.accuracy == pytest.approx([0.9, 178 / 198], abs=0.005)
    assert scored(found).phi == pytest.approx([0, 0], abs=0.01)
    assert found.class_shown == pytest.approx([0.9, 0.99], abs=0.005)
    assert (found.class_low < [0.9, 0.99]).all()
    assert (found.class_high > [0.9, 0.99]).all()
    assert np.diag(found.shown) == pytest.approx([1, 1], abs=0.005)  # of those that show the class
    plain = corrected(right[:, :2] + np.diag(right[:, 2]), wrong[:, :2] + np.diag(wrong[:, 2]), np.eye(2) * 1e6)
    assert scored(plain).phi[0] == pytest.approx(164 / 200 - 178 / 200, abs=0.01)
    assert np.isnan(plain.class_shown).all()


def test_unclassified_images_tell_what_the_verifier_chose_from():
    # It accepts 95 of 100 images of a value and 5 of the other: of 300 accepted of each pool, 285 show the value where
    # half of the pool does, and 33 in 34 where seven in eight do.
    answers = np.array([[0.95, 0.05], [0.05, 0.95]])
    pool = np.array([[0.5, 0.5], [0.125, 0.875]]) @ answers * 1200
    drawn = np.diag([300.0, 300.0])
    purity = np.array([0.5, 0.875]) * 0.95 * 1200 / np.diag(pool)
    accuracy = purity * [0.6, 0.9] + (1 - purity) * [0.9, 0.6]
    right = np.round(drawn * accuracy)
    found = corrected(right, drawn - right, answers * 2000, unclassified=np.round(pool - drawn))
    assert np.diag(found.shown) == pytest.approx(purity, abs=0.01)
    assert found.accuracy == pytest.approx([0.6, 0.9], abs=0.01)
    with pytest.raises(ValueError, match="whole"):
        corrected(right, drawn - right, answers, unclassified=-pool)


@pytest.mark.long
@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize("verifier", [1.0, 0.9])
def test_intervals_cover_where_purity_differs_by_value(verifier, pool):
    random, covered, false, runs = np.random.default_rng(1), [], [], 40
    for _ in range(runs):
        accuracy = np.array([0.9, 0.9, 0.9])
        counts, known = simulated(random, accuracy, np.array([0.8, 0.9, 0.99]), verifier, 200, 100, pool)
        found = scored(corrected(counts[0], counts[1], known, unclassified=counts[2]))
        covered.append((found.phi_low <= 0) & (found.phi_high >= 0))
        false.append(found.p_value.min() * 3 <= 0.05)
    assert np.mean(covered) >= 0.9
    assert np.mean(false) <= 0.1


def test_rounding_makes_no_accuracy_of_more_than_one():
    # Every image of four values right, by counts whose shares round up: 1 + 2e-16 is no accuracy.
    random = np.random.default_rng(0)
    for _ in range(40):
        right, _, known = _drawn(random, np.ones(4), _noisy(4, 0.8), _noisy(4, 0.7), 50, 20)
        assert (corrected(right, np.zeros((4, 4)), known).accuracy <= 1).all()


def test_the_verifiers_part_of_the_covariance_falls_with_its_calibration_and_leaves_what_a_known_verifier_gives():
    right, wrong = np.array([[80, 10], [10, 80]]), np.array([[8, 2], [1, 9]])
    shares = np.array([[0.9, 0.1], [0.1, 0.9]])
    few, many, known = (corrected(right, wrong, shares * images) for images in (50, 500, 1e9))
    parts = [np.diag(one.from_verifier) for one in (few, many, known)]
    assert (parts[0] > 2 * parts[1]).all()
    assert (parts[1] > 0).all()
    assert parts[2] == pytest.approx([0, 0], abs=1e-9)
    assert np.linalg.eigvalsh(few.from_verifier).min() > -1e-12


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
    return counts, CalibrationCounts(
        np.stack([random.multinomial(100, row) for row in noisy(n, claimed)]).astype(float)
    )


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
    known = CalibrationCounts(np.eye(2) * 500, np.array([[495.0, 5], [5, 495]]))
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
