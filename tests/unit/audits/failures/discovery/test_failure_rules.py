"""The failure rules against an oracle that tries every way of breaking ties."""

from __future__ import annotations

from itertools import pairwise, permutations

import numpy as np
import pytest

from c2b_ray.audits.failures.discovery.rounds import Truth, check_rule, decide
from c2b_ray.errors import ConfigError

INF, NAN = np.inf, np.nan


def mask(size, *positions):
    result = np.zeros(size, bool)
    result[list(positions)] = True
    return result


def oracle(row, own, kin, rule):
    """Fails where one order of the labels that respects their logits makes it fail."""
    good = own | kin if rule.endswith("parent") else own
    places = 3 if rule.startswith("top3") else 1
    orders = (order for order in permutations(range(len(row))) if all(row[a] >= row[b] for a, b in pairwise(order)))
    return any(not any(good[i] for i in order[:places] if row[i] > -INF) for order in orders)


@pytest.mark.parametrize("rule", ["top1", "top1_parent", "top3", "top3_parent"])
def test_rules_agree_with_trying_every_order(rule):
    random = np.random.default_rng(7)
    logits = random.choice([-INF, 0.0, 1.0, 2.0], size=(150, 5), p=[0.2, 0.3, 0.3, 0.2])
    own, kin = random.random((150, 5)) < 0.25, random.random((150, 5)) < 0.25
    own[:, 0] |= ~own.any(axis=1)
    expected = [oracle(*row, rule) for row in zip(logits, own, kin, strict=True)]
    truths = Truth.stacked([Truth(o, k) for o, k in zip(own, kin, strict=True)])
    assert decide(logits, truths, rule).failed.tolist() == expected
    assert 10 < sum(expected) < 140


def test_a_label_that_float32_softmax_would_tie_is_decided():
    logits = np.array([[20.0, 20.0 - 1e-8, 0, 0]])
    decisions = decide(logits, Truth(mask(4, 0)), "top1")
    assert (decisions.failed.tolist(), decisions.predicted.tolist()) == ([False], [0])


def test_tied_answers_have_no_predicted_label_and_fail_unless_every_tied_label_is_right():
    logits = np.array([[1.0, 1.0, 0.0, -1.0]])
    assert decide(logits, Truth(mask(4, 0)), "top1").failed.tolist() == [True]
    both = decide(logits, Truth(mask(4, 0, 1)), "top1")
    assert (both.failed.tolist(), both.predicted.tolist()) == ([False], [-1])
    # Both are among the three likeliest for certain, though neither is the likeliest.
    assert both.top3.tolist() == [[0, 1, 2]]


def test_ties_at_the_third_place_are_decided_against_the_classifier():
    logits = np.array([[5.0, 4.0, 1.0, 1.0, 0.0]])
    decisions = decide(logits, Truth(mask(5, 2)), "top3")
    assert (decisions.failed.tolist(), decisions.top3.tolist()) == ([True], [[0, 1, -1]])
    assert decide(logits, Truth(mask(5, 2, 3)), "top3").failed.tolist() == [False]
    assert decide(logits, Truth(mask(5, 2), mask(5, 3)), "top3_parent").failed.tolist() == [False]


def test_rows_that_are_no_numbers_have_no_answer_and_rows_without_probability_fail():
    logits = np.array([[NAN, 1, 0, 0], [INF, 1, 0, 0], [-INF] * 4, [-INF, 0, -INF, -INF]])
    decisions = decide(logits, Truth(mask(4, 1)), "top3")
    assert decisions.answered.tolist() == [False, False, True, True]
    assert decisions.failed.tolist() == [False, False, True, False]
    assert decisions.predicted.tolist() == [-1, -1, -1, 1]
    assert decisions.top3.tolist() == [[-1] * 3] * 3 + [[1, -1, -1]]
    np.testing.assert_array_equal(decisions.confidence, np.array([NAN, NAN, 0, 1], np.float32))


def test_a_failure_counts_from_the_threshold_on_however_its_probability_was_rounded():
    logits = np.log(np.array([[0.9, 0.05, 0.03, 0.02], [0.6, 0.3, 0.05, 0.05]], np.float32))
    truth = Truth(mask(4, 1))
    assert decide(logits, truth, "top1", confidence=0.9).failed.tolist() == [True, False]
    assert decide(logits, truth, "top1", confidence=0.6).failed.tolist() == [True, True]
    assert decide(logits, truth, "top1", true_below=0.05).failed.tolist() == [True, False]
    assert decide(logits, truth, "top1", true_below=0.04).failed.tolist() == [False, False]


def test_no_images_give_no_decisions():
    assert decide(np.empty((0, 4), np.float32), Truth(mask(4, 1)), "top3").top3.shape == (0, 3)


def test_a_rule_that_no_answer_can_break_is_refused():
    with pytest.raises(ConfigError, match="rule: top3 is always right among 3 labels"):
        check_rule("top3", Truth(mask(3, 0)), "bus")
    with pytest.raises(ConfigError, match="hierarchy: the rule top1_parent needs one"):
        check_rule("top1_parent", Truth(mask(5, 0)), "bus")
    with pytest.raises(ConfigError, match="top3_parent can never fail for 'bus': all but 2 of 5 labels"):
        check_rule("top3_parent", Truth(mask(5, 0), mask(5, 0, 1, 2)), "bus")
    check_rule("top1_parent", Truth(mask(5, 0), mask(5, 0, 1, 2)), "bus")
