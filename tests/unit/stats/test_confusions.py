"""Tables of classes and answers against scikit-learn, an exact distribution, and simulations under the null."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from sklearn import metrics

from c2b_ray.stats.classification import precision_recall_f1, reliability, two_class_curves, wrong_answers_named


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
