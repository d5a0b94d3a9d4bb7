"""Outcomes of matching, agreement and recall, against references written as the paper words them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from c2b_ray.stats import outcomes as bm

RANDOM = np.random.default_rng(7)


def said(similar, sign, others, threshold, many):
    """As section 4.2.1 words it, bias by bias."""
    result = []
    for row, direction in zip(similar, sign, strict=True):
        matches = [(s, o) for s, o in zip(row, others, strict=True) if s >= threshold and o]
        if not matches:
            result.append(0)
        elif many == "any":
            result.append(1 if any(o == direction for _, o in matches) else -1)
        elif many == "majority":
            result.append(1 if sum(o * direction for _, o in matches) > 0 else -1)
        else:
            top = max(s for s, _ in matches)
            result.append(1 if all(o == direction for s, o in matches if s == top) else -1)
    return result


@pytest.mark.parametrize("many", ["nearest", "any", "majority"])
def test_outcomes_are_those_of_the_reference(many):
    for threshold in (0.0, 0.5, 0.9, 1.0):
        similar = RANDOM.integers(0, 11, (40, 25)) / 10  # with ties
        sign, others = RANDOM.choice([-1, 1], 40), RANDOM.choice([-1, 0, 1], 25)
        outcomes = bm.bias_outcomes(similar, sign, others, threshold, many)
        assert outcomes.tolist() == said(similar, sign, others, threshold, many)


def test_nothing_detected_is_all_missed():
    assert bm.bias_outcomes(np.ones((2, 1)), [1, -1], [0], 0.9).tolist() == [0, 0]
    assert bm.bias_outcomes(np.zeros((2, 0)), [1, -1], [], 0.9).tolist() == [0, 0]
    assert all(math.isnan(share) for share in bm.outcome_shares([]))


@pytest.mark.parametrize(
    "arguments", [([[1.0]], [0], [1]), ([[1.0]], [1], [2]), ([[1.0, 1.0]], [1], [1])]
)  # fmt: skip
def test_wrong_signs_and_shapes_are_refused(arguments):
    with pytest.raises(ValueError, match=r"sign|shape"):
        bm.bias_outcomes(*arguments, 0.9)


def test_shares():
    assert bm.outcome_shares([1, 1, -1, 0]) == (0.5, 0.25, 0.25)


def test_agreement_pays_for_the_same_case_and_shows_what_it_was():
    first, second = RANDOM.integers(-1, 2, 200), RANDOM.integers(-1, 2, 200)
    result = bm.verdict_agreement(first, second)
    points = [1 if a == b else -1 if a == -b else 0 for a, b in zip(first, second, strict=True)]
    assert result.score == pytest.approx(sum(points) / 200, abs=1e-12)
    for i, a in enumerate((-1, 0, 1)):
        for j, b in enumerate((-1, 0, 1)):
            assert result.table[i, j] == sum((x, y) == (a, b) for x, y in zip(first, second, strict=True))
    timid = bm.verdict_agreement([0] * 9 + [1], [0] * 9 + [-1])
    assert (timid.score, timid.score_of_biased) == (0.8, -1.0)
    assert math.isnan(bm.verdict_agreement([], []).score)


def test_keyword_scores_are_differences_of_means_with_welchs_test():
    wrong, right = RANDOM.normal(0.3, 0.1, (12, 5)), RANDOM.normal(0.25, 0.05, (30, 5))
    result = bm.keyword_scores(wrong, right)
    for k in range(5):
        expected = 100 * (sum(wrong[:, k]) / 12 - sum(right[:, k]) / 30)
        assert result.score[k] == pytest.approx(expected, abs=1e-9)
        standard = math.sqrt(np.var(wrong[:, k], ddof=1) / 12 + np.var(right[:, k], ddof=1) / 30)
        freedom = standard**4 / (
            np.var(wrong[:, k], ddof=1) ** 2 / 12**2 / 11 + np.var(right[:, k], ddof=1) ** 2 / 30**2 / 29
        )
        t = expected / 100 / standard
        assert result.p_value[k] == pytest.approx(2 * stats.t.sf(abs(t), freedom), abs=1e-9)
    assert np.isnan(bm.keyword_scores(wrong[:0], right).score).all()
    assert np.isnan(bm.keyword_scores(wrong[:1], right).p_value).all()
    same = bm.keyword_scores(np.ones((3, 1)), np.ones((4, 1)))
    assert (same.score[0], same.p_value[0]) == (0.0, 1.0)


def test_recall_at_a_share_of_the_relevant():
    marks = RANDOM.random(500) < 0.2
    total = int(marks.sum())
    for share in (0.01, 0.05, 0.3, 0.5, 1.0):
        result = bm.recall_of_matches(marks, share)
        k = max(1, math.ceil(share * total - 1e-9))
        hits = sum(marks[:k].tolist())
        assert result.k == k
        assert result.recall == pytest.approx(hits / total, abs=1e-12)
        assert result.reachable == pytest.approx(hits / k, abs=1e-12)
    assert math.isnan(bm.recall_of_matches([False], 0.5).recall)
    assert bm.recall_of_matches([True] * 10, 0.3).k == 3  # not 4 by a rounding of 0.3 * 10


def test_the_threshold_is_what_different_names_hardly_reach():
    values = np.linspace(0, 1, 1001)
    threshold = bm.match_threshold(values, 0.01)
    assert (values >= threshold).mean() <= 0.01
    assert threshold == pytest.approx(0.99)
    assert math.isnan(bm.match_threshold([]))
