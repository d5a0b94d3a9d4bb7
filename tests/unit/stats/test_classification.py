"""Metrics of one class, and confusions."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from sklearn import metrics
from sklearn import metrics as oracle

from c2b_ray.stats.classification import (
    METRICS,
    ClassMetric,
    Outcomes,
    area_under_roc,
    area_under_roc_variance,
    balanced_accuracy,
    calibration_error,
    f1_score,
    precision,
    precision_recall_f1,
    recall,
    reliability,
    top_k_accuracy,
    two_class_curves,
    wrong_answers_named,
)
from c2b_ray.stats.intervals import wilson

EXACT = 1e-12


def outcomes(seed: int, images: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truth, answers and probabilities with ties, of a classifier that is mostly right."""
    random = np.random.default_rng(seed)
    truth = random.random(images) < 0.3
    probabilities = np.round(np.clip(random.normal(0.35 + 0.3 * truth, 0.2), 0, 1), 2)
    return truth, probabilities > 0.5, probabilities


@pytest.mark.parametrize("seed", range(5))
def test_metrics_are_those_of_scikit_learn(seed: int) -> None:
    truth, answers, probabilities = outcomes(seed)
    assert recall(truth, answers) == pytest.approx(oracle.recall_score(truth, answers), abs=EXACT)
    assert precision(truth, answers) == pytest.approx(oracle.precision_score(truth, answers), abs=EXACT)
    assert f1_score(truth, answers) == pytest.approx(oracle.f1_score(truth, answers), abs=EXACT)
    assert area_under_roc(truth, probabilities) == pytest.approx(oracle.roc_auc_score(truth, probabilities), abs=EXACT)
    expected = oracle.balanced_accuracy_score(truth, answers)
    assert balanced_accuracy(truth, answers) == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_top_k_accuracy_is_that_of_scikit_learn(k: int) -> None:
    random = np.random.default_rng(k)
    truth, scores = random.integers(0, 6, 400), random.random((400, 6))
    expected = oracle.top_k_accuracy_score(truth, scores, k=k, labels=range(6))
    assert top_k_accuracy(truth, scores, k) == pytest.approx(expected, abs=EXACT)


def test_a_tie_at_the_last_rank_is_right() -> None:
    assert top_k_accuracy([1, 2], [[0.4, 0.4, 0.2], [0.4, 0.4, 0.2]], 1) == 0.5


def test_calibration_error_by_hand() -> None:
    # Ten bins: 0.05 and 0.10 lie in the first (mean 0.075, no image of the class), 0.95 in the last (share 1).
    # 2/3 * 0.075 + 1/3 * 0.05 = 0.0667
    assert calibration_error([0, 0, 1], [0.05, 0.10, 0.95], bins=10) == pytest.approx(0.2 / 3, abs=EXACT)


def test_calibration_error_of_a_calibrated_classifier_falls_with_images() -> None:
    random = np.random.default_rng(0)
    errors = []
    for images in (100, 100_000):
        probabilities = random.random(images)
        errors.append(calibration_error(random.random(images) < probabilities, probabilities))
    assert errors[0] > 0.05 > 0.01 > errors[1]


def test_what_is_not_defined_is_nan() -> None:
    none, some = [False, False], [True, False]
    assert np.isnan([recall(none, some), precision(some, none), f1_score(none, none)]).all()
    assert np.isnan(
        [area_under_roc(none, [0.1, 0.2]), calibration_error([], []), top_k_accuracy([], np.ones((0, 2)), 1)]
    ).all()
    assert f1_score(some, none) == 0


def test_where_a_probability_is_not_known_nothing_is_said() -> None:
    truth, probabilities = [True, False, True], [0.9, np.nan, 0.8]
    assert np.isnan(top_k_accuracy([0, 1], [[0.9, 0.1], [np.nan, np.nan]], 1))
    assert np.isnan([calibration_error(truth, probabilities), area_under_roc(truth, probabilities)]).all()
    for name in ("calibration", "auroc"):
        groups = np.array([0, 1, 0])
        both = METRICS[name].estimate(Outcomes.of([True, False, False], truth, probabilities), groups, 2)
        assert np.isnan(METRICS[name].value(Outcomes.of(truth, truth, probabilities)))
        assert np.isfinite(both.value).tolist() == [True, False]


def test_delongs_variance_is_that_of_resampling() -> None:
    truth, _, probabilities = outcomes(7, 400)
    random = np.random.default_rng(0)
    rows = [np.flatnonzero(truth), np.flatnonzero(~truth)]
    areas = []
    for _ in range(3000):
        drawn = np.concatenate([random.choice(some, len(some)) for some in rows])
        areas.append(area_under_roc(truth[drawn], probabilities[drawn]))
    assert area_under_roc_variance(truth, probabilities) == pytest.approx(np.var(areas), rel=0.1)


def test_delongs_variance_by_hand() -> None:
    # Placements of 0.4 and 0.9 among (0.3, 0.5): 1/2 and 1, variance 1/8; of 0.3 and 0.5 among (0.4, 0.9): 1 and 1/2.
    assert area_under_roc_variance([1, 1, 0, 0], [0.4, 0.9, 0.3, 0.5]) == pytest.approx(
        1 / 8 / 2 + 1 / 8 / 2, abs=EXACT
    )


@pytest.mark.parametrize("name", ["f1", "confidence", "auroc"])
def test_the_effective_number_has_the_variance_of_the_metric(name: str) -> None:
    random, values, effective = np.random.default_rng(1), [], []
    for _ in range(2000):
        truth = random.permutation(300) < 100 if name == "auroc" else random.random(300) < 1 / 3
        probabilities = random.beta(1 + 2 * truth, 2)
        known = METRICS[name].estimate(Outcomes.of(truth, probabilities > 0.55, probabilities), np.zeros(300, int), 1)
        values.append(known.value[0])
        effective.append(known.effective[0])
    mean = np.mean(values)
    assert np.mean(effective) == pytest.approx(mean * (1 - mean) / np.var(values), rel=0.1)


def test_classes_that_are_apart_do_not_make_a_sure_area() -> None:
    known = METRICS["auroc"].estimate(
        Outcomes.of([1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0.9, 0.8, 0.7, 0.1, 0.2]), np.zeros(5, int), 1
    )
    assert known.value[0] == 1
    assert known.effective[0] == 2


def test_a_function_of_ones_own_is_asked_per_group_and_its_number_checked() -> None:
    truth, answers, probabilities = outcomes(3)
    own = ClassMetric.from_function("matthews", lambda t, a, p: oracle.matthews_corrcoef(t, a))
    groups = np.arange(300) % 2
    known = own.estimate(Outcomes.of(truth, answers, probabilities), groups, 2)
    expected = [oracle.matthews_corrcoef(truth[groups == g], answers[groups == g]) for g in (0, 1)]
    assert known.value == pytest.approx(expected, abs=EXACT)
    broken = ClassMetric.from_function("broken", lambda t, a, p: float("nan"))
    with pytest.raises(ValueError, match="'broken' gives nan on 300 images"):
        broken.value(Outcomes.of(truth, answers, probabilities))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([True], [True, False], None), "one shape"),
        (([2, 0], [1, 0], None), r"truth\[0\] = 2"),
        (([1, 0], [1, 0], [0.5, 1.2]), r"probabilities\[1\] = 1.2"),
    ],
)
def test_other_values_are_refused_with_their_row(arrays: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Outcomes.of(*arrays)


@pytest.mark.parametrize(
    ("positive", "negative", "sensitivity", "specificity"),
    [(5, 50, 0.9, 0.9), (20, 200, 0.8, 0.95), (10, 1000, 0.6, 0.999), (30, 30, 0.5, 0.5), (50, 2000, 0.95, 0.999)],
)
def test_limits_of_balanced_accuracy_hold(positive: int, negative: int, sensitivity: float, specificity: float) -> None:
    draws = 2000
    random = np.random.default_rng(positive)
    groups = np.repeat(np.arange(draws), positive + negative)
    truth = np.tile(np.r_[np.ones(positive, bool), np.zeros(negative, bool)], draws)
    answers = random.random(len(truth)) < np.where(truth, sensitivity, 1 - specificity)
    found = METRICS["balanced_accuracy"].estimate(Outcomes(truth, answers, np.zeros(len(truth))), groups, draws)
    low, high = wilson(found.value * found.effective, found.effective, np.float64(1.959964))
    real = (sensitivity + specificity) / 2
    assert 0.935 <= np.mean((low <= real) & (real <= high)) <= 0.995


def test_balanced_accuracy_needs_both_kinds_of_images() -> None:
    assert np.isnan(balanced_accuracy([True, True], [True, False]))
    # All right: 4 of 4 and 9 of 9. Wilson's lower limits at 95 % are 4 / (4 + z²) = .5101 and 9 / (9 + z²) = .7009, so
    # MOVER's is 1 - sqrt(.4899² + .2991²) / 2 = .7130, which is n / (n + z²) at n = 9.54.
    of = Outcomes.of([True] * 4 + [False] * 9, [True] * 4 + [False] * 9)
    found = METRICS["balanced_accuracy"].estimate(of, np.zeros(13, np.int64), 1)
    assert (found.value[0], found.effective[0]) == (1, pytest.approx(9.54, abs=0.01))


def test_precision_recall_and_f1_are_those_of_scikit_learn():
    random = np.random.default_rng(3)
    truth, answer = random.integers(0, 5, 400), random.integers(0, 6, 400)  # 5: an answer that is no class
    table = np.zeros((5, 6), int)
    np.add.at(table, (truth, answer), 1)
    expected = metrics.precision_recall_fscore_support(truth, answer, labels=range(5))
    np.testing.assert_allclose(precision_recall_f1(table), expected[:3], rtol=1e-12)


def test_what_cannot_be_divided_is_not_zero():
    of = precision_recall_f1([[0, 4, 0], [0, 3, 0], [0, 0, 0]])
    assert math.isnan(of.precision[0])  # never answered
    assert of.recall[0] == 0
    assert of.precision[1] == 3 / 7
    assert math.isnan(of.recall[2])  # no image
    assert math.isnan(of.f1[2])
    with pytest.raises(ValueError, match="answers ≥ classes"):
        precision_recall_f1([[1], [2]])


def test_reliability_by_hand():
    # Bins of a tenth: 0.05 and 0.1 share the first, mean 0.075, one of two right; 1.0 and 0.95 the last, both wrong.
    of = reliability([0.05, 0.1, 0.95, 1.0, 0.0], [True, False, False, False, False])
    assert of.answers.tolist() == [3, 2]
    np.testing.assert_allclose(of.confidence, [0.05, 0.975])
    np.testing.assert_allclose(of.accuracy, [1 / 3, 0])
    assert of.error == pytest.approx(3 / 5 * (1 / 3 - 0.05) + 2 / 5 * 0.975)
    assert math.isnan(reliability([], []).error)
    with pytest.raises(ValueError, match="0 to 1"):
        reliability([1.2], [True])


def test_curves_are_those_of_scikit_learn_with_ties():
    random = np.random.default_rng(5)
    score, positive = random.integers(0, 12, 300) / 12, random.random(300) < 0.3
    of = two_class_curves(score, positive)
    assert of.auroc == pytest.approx(metrics.roc_auc_score(positive, score), abs=1e-12)
    assert of.average_precision == pytest.approx(metrics.average_precision_score(positive, score), abs=1e-12)
    rate, recall, _ = metrics.roc_curve(positive, score, drop_intermediate=False)
    np.testing.assert_allclose(np.r_[0, of.false_positive_rate], rate)
    np.testing.assert_allclose(np.r_[0, of.recall], recall)
    with pytest.raises(ValueError, match="both classes"):
        two_class_curves([0.1, 0.2], [True, True])


def test_named_answers_against_every_permutation():
    truth = np.zeros(6, int)
    value, answer = np.array([1, 1, 2, 2, 3, 3]), np.array([1, 1, 2, 3, 3, 1])
    of = wrong_answers_named(truth, value, answer)
    hits = [sum(np.array(order) == answer) for order in permutations(value)]
    assert (of.named, of.wrong) == (4, 6)
    assert of.expected == pytest.approx(np.mean(hits), abs=1e-12)
    assert of.p_value == pytest.approx(np.mean(np.array(hits) >= 4), abs=0.01)


def test_right_answers_and_columns_that_agree_with_the_class_do_not_count():
    of = wrong_answers_named([0, 0, 0, 1], [0, 1, 1, -1], [2, 1, 0, 0])
    assert (of.named, of.wrong) == (1, 1)
    assert wrong_answers_named([], [], []).p_value == 1


def test_a_column_that_has_no_part_in_the_answers_is_rarely_found():
    random = np.random.default_rng(11)
    found = 0
    for trial in range(200):
        truth = random.integers(0, 4, 60)
        value = random.choice(4, 60, p=[0.6, 0.2, 0.1, 0.1])  # answers favour the column's commonest value, too
        answer = random.choice(4, 60, p=[0.5, 0.3, 0.1, 0.1])
        found += wrong_answers_named(truth, value, answer, seed=trial).p_value <= 0.05
    assert found <= 20  # 5 % of 200 is 10, its standard deviation 3
