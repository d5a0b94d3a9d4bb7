"""Balanced accuracy against scikit-learn's, and its interval by groups."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from c2b_ray.stats.gains import balanced_accuracy


def test_it_is_that_of_scikit_learn() -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 3, 200)
    answers = np.where(random.random(200) < 0.7, truth, random.integers(0, 3, 200))
    result = balanced_accuracy(truth, answers, np.arange(200), 3)
    assert result.value == pytest.approx(balanced_accuracy_score(truth, answers), abs=1e-9)
    assert result.low < result.value < result.high
    assert result.chance == pytest.approx(1 / 3)


def test_images_of_one_group_count_together() -> None:
    truth, answers = np.tile([0, 1], 50), np.tile([0, 1, 0, 0], 25)
    apart = balanced_accuracy(truth, answers, np.arange(100), 2)
    together = balanced_accuracy(truth, answers, np.arange(100) // 20, 2)
    assert together.value == apart.value == 0.75
    alike = balanced_accuracy(truth, np.repeat([0, 1], 50), np.repeat([0, 1], 50), 2)
    assert alike.low <= 0.5 <= alike.high


@pytest.mark.parametrize(("groups", "accuracy"), [(4, 0.99), (10, 0.99), (10, 0.9), (36, 0.97), (36, 0.8)])
def test_limits_hold_the_truth_also_where_nearly_all_images_are_right(groups: int, accuracy: float) -> None:
    random, held, runs, images = np.random.default_rng(2), 0, 200, 4
    group = np.repeat(np.arange(groups), images)
    for _ in range(runs):
        truth = np.resize([0, 1, 2], groups * images)
        right = random.random(len(group)) < random.beta(6 * accuracy, 6 * (1 - accuracy), groups)[group]
        found = balanced_accuracy(truth, np.where(right, truth, (truth + 1) % 3), group, 3)
        assert found.low < found.high
        held += found.low <= accuracy <= found.high
    assert held >= 0.92 * runs


def test_nothing_is_known_without_images() -> None:
    assert np.isnan(balanced_accuracy([], [], [], 2).value)
    with pytest.raises(ValueError, match="must lie in"):
        balanced_accuracy([2], [0], [0], 2)
