"""Accuracies of read values, standardised counts, and suspected label errors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import nbinom

from c2b_ray import stats
from c2b_ray.stats.read_values import (
    LEAST_DETERMINED,
    StandardisedCount,
    confident_disagreements,
    confident_thresholds,
    neighbours,
    read_accuracies,
    rightly_refused,
    standardised_count,
    strata,
)

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


def test_a_count_is_the_odds_of_each_stratum_times_its_images():
    # 100 images * 2/50 + 30 images * 4/10 = 4 + 12
    found = standardised_count([100, 30], [50, 10], [2, 4])
    assert found.value == pytest.approx(16)
    # (2 * 2 * 2 * (1 + 2/50)) + (3 * 3 * 4 * (1 + 4/10)), the variance of counts of weights 2 and 3
    assert found.variance == pytest.approx(8.32 + 50.4)
    # 100 * .04 * 1.04 + 30 * .4 * 1.4, the variance of the numbers themselves
    assert found.chance == pytest.approx(4.16 + 16.8)
    assert found.limits()[0] < 16 < found.limits()[1]
    assert found.weight == 3  # 30 images for each of 10


@pytest.mark.parametrize("images", [500, 5000])
@pytest.mark.parametrize("taken", [0, 1, 3, 10, 40])
def test_limits_of_one_stratum_are_those_of_the_negative_binomial_that_predicts_the_count(images, taken):
    known = 1000  # of a rate that is small: odds and rate are the same
    low, high = standardised_count([images], [known], [taken]).limits(confidence=0.9)
    # Of a Poisson rate that gave `taken` on `known` images, the number on others, by gamma priors of shape 0 and 1.
    each = 1 / (1 + images / known)
    assert low == pytest.approx(nbinom.ppf(0.05, taken, each) if taken else 0, abs=1, rel=0.02)
    assert high == pytest.approx(nbinom.ppf(0.95, taken + 1, each), abs=1, rel=0.02)


@pytest.mark.parametrize("share", [0.3, 1.0, 3.0])
def test_limits_hold_the_count_itself_as_often_as_they_say(share):
    random = np.random.default_rng(5)
    images, known, rates = np.array([300, 200, 100]), np.array([400, 60, 30]), np.array([0.05, 0.2, 0.6])
    below = above = 0
    for _ in range(2000):
        pool = random.binomial((share * images).astype(int), rates)
        taken = random.binomial(known, rates)
        refused = (share * images).astype(int) - pool
        low, high = standardised_count(refused, known - taken, taken).limits(confidence=0.9)
        below, above = below + (high < pool.sum()), above + (low > pool.sum())
    # a gamma limit errs on the safe side on average, not with every rate
    assert 0.01 * 2000 <= below <= 0.065 * 2000
    assert 0.01 * 2000 <= above <= 0.065 * 2000


def test_no_known_image_taken_gives_no_lower_limit_and_an_upper_one():
    found = standardised_count([5000.0], [100], [0])
    assert found == pytest.approx((0, 0, 50, 0))
    # -log(0.05) = 3.0 images (the rule of three), each worth 50
    assert found.limits(0.9) == pytest.approx((0, -np.log(0.05) * 50), rel=0.03)
    # of four times the known images each is worth a fourth
    assert found.limits(0.9, times=4) == pytest.approx((0, -np.log(0.05) * 50 / 4), rel=0.06)


def test_more_known_images_do_not_make_the_count_itself_certain():
    low, high = standardised_count([100], [100], [50]).limits(times=1e9)
    assert low == pytest.approx(50 - 1.96 * np.sqrt(75), abs=2)  # 50 * (1 + 50/100)
    assert high == pytest.approx(50 + 1.96 * np.sqrt(75), abs=2)


def test_missed_images_of_the_class_are_taken_out_of_those_that_were_refused():
    # 200 show the class, of which 160 were accepted and 40 missed; of 150 others 90 were accepted, as 3 of 5 known ones
    images, determined = rightly_refused([60 + 40], [160 + 90], [40], [60], 0.8)
    assert images == pytest.approx([60])
    assert determined == pytest.approx([1 - 0.25 * 1.5])
    # nothing was missed; none of the others was accepted; the class explains all refused images
    assert rightly_refused([100], [250], [40], [60], 1.0) == (pytest.approx([100]), 1)
    assert rightly_refused([100], [160], [40], [0], 0.8) == (pytest.approx([60]), 1)
    assert rightly_refused([30], [160], [40], [0], 0.8) == (pytest.approx([0]), 1)
    # odds of 6 are more than the 4 at which nothing is left to solve; no known image was refused
    images, determined = rightly_refused([100, 100], [160, 160], [10, 0], [60, 0], 0.8)
    assert images == pytest.approx([100, 100])
    assert determined == pytest.approx([LEAST_DETERMINED, 1])


@pytest.mark.parametrize(("rate", "sensitivity"), [(0.1, 0.9), (0.4, 0.7), (0.3, 0.6)])
def test_limits_hold_of_a_verifier_that_misses_images_of_the_class_as_often_as_they_say(rate, sensitivity):
    random = np.random.default_rng(7)
    others, of_class, known = 300, 200, 1000
    below = above = 0
    for _ in range(1000):
        false, shown, taken = random.binomial([others, of_class, known], [rate, sensitivity, rate])
        refused, accepted = others - false + of_class - shown, false + shown
        images, determined = rightly_refused([refused], [accepted], [known - taken], [taken], sensitivity)
        low, high = standardised_count(images, [known - taken], [taken], determined).limits(confidence=0.9)
        below, above = below + (high < false), above + (low > false)
    # At .4 and .7, close to a verifier that cannot tell, these are 146 and 132 without `determined`.
    assert 0.02 * 1000 <= below <= 0.09 * 1000
    assert 0.02 * 1000 <= above <= 0.09 * 1000


def test_limits_with_more_known_images_are_those_of_so_many():
    few, many = standardised_count([50, 20], [100, 10], [4, 1]), standardised_count([50, 20], [500, 50], [20, 5])
    assert few.limits(times=5) == pytest.approx(many.limits())


def test_limits_of_several_counts_are_those_of_each():
    counts = [standardised_count([50, 20], [100, 10], [4, 1]), standardised_count([5], [3], [0])]
    unknown = standardised_count([50, 1], [100, 0], [1, 0])
    nothing = StandardisedCount(*np.full(4, np.nan))
    together = StandardisedCount(*np.array([*counts, unknown, nothing]).T)
    low, high = together.limits(0.8)
    assert low.tolist() == pytest.approx([*(one.limits(0.8)[0] for one in [*counts, unknown]), np.nan], nan_ok=True)
    assert high.tolist() == pytest.approx([*(one.limits(0.8)[1] for one in counts), np.inf, np.nan], nan_ok=True)
    with pytest.raises(ValueError, match="times must be above 0"):
        together.limits(times=0)


def test_images_of_a_stratum_without_known_images_have_no_upper_limit():
    found = standardised_count([50, 1], [100, 0], [1, 0])
    assert found.value == 0.5
    assert found.limits()[1] == np.inf
    assert found.weight == np.inf


def test_nothing_in_question_is_nothing():
    for nothing in (standardised_count([0, 0], [10, 0], [3, 0]), standardised_count([], [], [])):
        assert nothing == (0, 0, 0, 0)
        assert nothing.limits() == (0, 0)


@pytest.mark.parametrize("counts", [([1], [1, 2], [1]), ([-1], [1], [1]), ([1], [1], [-1]), ([[1]], [[1]], [[1]])])
def test_invalid_counts_are_refused(counts):
    with pytest.raises(ValueError, match="0 or more, of one shape"):
        standardised_count(*counts)


def test_strata_are_quantiles_of_the_images_that_leave_enough_known_ones():
    images = np.linspace(0, 1, 101)
    known = np.concatenate([np.linspace(0, 0.5, 100), np.linspace(0.5, 1, 15)[1:]])
    limits = strata(images, known, most=10, least=5)
    at = np.searchsorted(limits, known, side="right")
    assert np.bincount(at).min() >= 5
    # 14 known ones lie above .5, at .5 + k/28: none of the upper limits .9, .7 and .5 leaves 5 on both sides
    assert limits.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.6, 0.8])


def test_few_known_images_are_one_stratum():
    assert strata([0.1, 0.2, 0.3], [0.1] * 9, least=5).size == 0
    assert strata([], [0.1] * 90).size == 0


def test_thresholds_and_disagreements_by_hand() -> None:
    # Of the images labelled 0: mean of .9, .8, .2 = .6333; of those labelled 1: mean of .7, .5 = .6.
    labels = [0, 0, 0, 1, 1]
    probabilities = [[0.9, 0.1], [0.8, 0.2], [0.2, 0.8], [0.3, 0.7], [0.5, 0.5]]
    assert confident_thresholds(labels, probabilities) == pytest.approx([1.9 / 3, 0.6])
    # Only the third is above another class's threshold (.8 >= .6); .5 of the last is below that of class 0.
    assert confident_disagreements(labels, probabilities).tolist() == [-1, -1, 1, -1, -1]


def test_an_image_without_an_answer_and_a_class_without_images_disagree_with_nothing() -> None:
    probabilities = [[np.nan] * 3, [0.1, 0.1, 0.8], [0.9, 0.05, 0.05]]
    assert np.isnan(confident_thresholds([0, 0, 0], probabilities)[1:]).all()
    assert confident_disagreements([0, 0, 0], probabilities).tolist() == [-1, -1, -1]
    assert confident_disagreements([], np.zeros((0, 3))).tolist() == []


def test_an_image_that_is_taken_for_its_label_is_none_though_another_class_is_above_its_threshold() -> None:
    # Thresholds: mean of .95, .95, .6 = .8333, above the third's .6; mean of .3, .4 = .35, below its .4.
    probabilities = [[0.95, 0.05], [0.95, 0.05], [0.6, 0.4], [0.7, 0.3], [0.6, 0.4]]
    assert confident_disagreements([0, 0, 0, 1, 1], probabilities).tolist() == [-1] * 5


def test_flipped_labels_are_found_and_sound_ones_are_not() -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 4, 2000)
    logits = random.normal(0, 1, (2000, 4)) + 4 * np.eye(4)[truth]
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    flipped = random.random(2000) < 0.05
    labels = np.where(flipped, (truth + 1) % 4, truth)
    found = confident_disagreements(labels, probabilities)
    assert (found[flipped] == truth[flipped]).mean() > 0.85
    assert (found[~flipped] >= 0).mean() < 0.03


def test_votes_are_those_of_the_nearest_by_brute_force() -> None:
    random = np.random.default_rng(1)
    vectors = random.normal(size=(200, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labels, queries = random.integers(0, 3, 200), np.array([3, 50, 199])
    answers = (labels[queries] + 1) % 3
    votes = neighbours(vectors, labels, queries, answers, 10)
    for at, query in enumerate(queries):
        others = [row for row in np.argsort(-(vectors @ vectors[query])) if row != query][:10]
        assert votes.answer[at] == np.mean(labels[others] == answers[at])
        assert votes.label[at] == np.mean(labels[others] == labels[query])


def test_a_copy_is_no_witness_and_an_image_without_a_vector_has_no_votes() -> None:
    vectors = np.array([[1, 0], [1, 0], [0.8, 0.6], [np.nan, np.nan]], np.float32)
    votes = neighbours(vectors, [0, 0, 1, 1], [0, 3], [1, 0], 1)
    assert votes.answer[0] == 1
    assert np.isnan([votes.answer[1], votes.label[1]]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: confident_disagreements([0], [[0.5], [0.5]]), r"\(1,\) and \(2, 1\)"),
        (lambda: confident_disagreements([2], [[0.5, 0.5]]), r"labels\[0\] = 2: there are 2 classes"),
        (lambda: neighbours(np.zeros((1, 2), np.float32), [0], [0], [0], 0), "number = 0"),
    ],
)
def test_other_arrays_are_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
