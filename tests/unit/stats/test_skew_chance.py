from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.stats import max_skew
from c2b_ray.stats.disparity import Chance
from c2b_ray.stats.resampling import difference_of
from c2b_ray.stats.skew import mean_max_skew, scored_max_skew

QUICK = Chance(permutations=200, resamples=200)


def rankings(items, texts, lean, random):
    """Groups, and rankings that share a part of their noise; `lean`: how far group 1 is moved, up or down by text."""
    groups = (random.random(items) < 0.4).astype(int)
    shared = 0.5 * random.normal(size=items)
    signs = np.where(np.arange(texts) % 2, 1, -1)[:, None]
    scores = lean * signs * groups + shared + random.normal(size=(texts, items))
    return groups, np.argsort(-scores, axis=1)


def test_value_is_the_mean_of_max_skew_over_texts():
    groups, order = rankings(200, 7, 0.5, np.random.default_rng(0))
    expected = np.mean([max_skew(groups[one], 30) for one in order])
    assert mean_max_skew(order, groups, 2, 30, QUICK).value == pytest.approx(expected, abs=1e-12)


def test_rankings_that_ignore_groups_are_not_called_biased():
    random = np.random.default_rng(1)
    found = [
        mean_max_skew(order, groups, 2, 40, QUICK) for groups, order in (rankings(400, 6, 0, random) for _ in range(60))
    ]
    assert np.mean([one.value for one in found]) == pytest.approx(np.mean([one.expected for one in found]), rel=0.1)
    assert np.mean([one.value for one in found]) > 0.08  # which is what the metric alone would report
    assert np.mean([one.p_value <= 0.05 for one in found]) <= 0.125
    assert np.mean([one.low == 0 for one in found]) >= 0.9


def test_intervals_hold_the_value_of_the_population():
    random = np.random.default_rng(2)
    groups, order = rankings(200_000, 6, 0.4, random)
    true = np.mean([max_skew(groups[one], 20_000) for one in order])
    samples = [rankings(500, 6, 0.4, random) for _ in range(40)]
    found = [mean_max_skew(order, groups, 2, 50, QUICK) for groups, order in samples]
    assert np.mean([one.low <= true <= one.high for one in found]) >= 0.85
    assert np.mean([one.p_value <= 0.05 for one in found]) > 0.9


@pytest.mark.long
def test_models_that_lean_alike_on_average_are_not_told_apart_by_which_text_leans_how_far():
    """Two trainings on data of one skew: each text's lean is drawn anew, the items are the same."""
    random = np.random.default_rng(4)
    groups = (random.random(1500) < 0.5).astype(int)

    def model():
        lean = random.normal(0.7, 0.3, (16, 1)) * np.where(np.arange(16) % 2, 1, -1)[:, None]
        order = np.argsort(-(lean * groups + random.normal(size=(16, 1500))), axis=1)
        return mean_max_skew(order, groups, 2, 150, Chance(permutations=100, resamples=200))

    pairs = [(model(), model()) for _ in range(40)]
    found = [difference_of(a.replicates, b.replicates, (a.value, b.value), 0.95)[2] <= 0.05 for a, b in pairs]
    assert np.mean(found) <= 0.13
    assert all(np.std(a.replicates - b.replicates) < 0.1 for a, b in pairs)  # twice as far apart would be told


def test_the_variants_of_the_usual_code():
    groups, scores = [0, 0, 0, 1, 1, 0, 1, 1, 0, 1], [9, 8, 7, 6, 6, 5, 4, 3, 2, 1]
    assert scored_max_skew(scores, groups, 4) == pytest.approx(np.log(0.75 / 0.5), abs=1e-12)
    assert scored_max_skew(scores, groups, 4, "ties") == pytest.approx(np.log(0.75 / 0.5), abs=1e-12)  # 3 and 2 of 4
    assert scored_max_skew([3, 2, 2, 2], [0, 1, 1, 1], 2, "ties") == pytest.approx(np.log((3 / 2) / (3 / 4)), abs=1e-12)
    assert scored_max_skew([3, 2, 2, 2], [0, 1, 1, 1], 2, "ties") == pytest.approx(np.log(1.5 / 0.75), abs=1e-12)
    one_in_ten = [0] * 9 + [1]
    assert scored_max_skew(range(10, 0, -1), one_in_ten, 2, "absent_share") == pytest.approx(np.log(5), abs=1e-12)
    assert scored_max_skew(range(10, 0, -1), one_in_ten, 2) == pytest.approx(np.log(1 / 0.9), abs=1e-12)
    assert scored_max_skew([1, 1], [0, 1], 2, "from_zero") == 0.0


def test_a_group_without_items_has_no_skew():
    assert np.isnan(mean_max_skew(np.array([[0, 1, 2]]), np.array([0, 0, 0]), 2, 1, QUICK).value)


def test_texts_that_lean_apart_are_beyond_chance_and_their_leads_say_that_they_lean_both_ways():
    """A mean of .2 that no group profits from: half of the texts put the first group on top, half the second."""
    random = np.random.default_rng(4)
    groups = random.integers(0, 2, 800)
    signs = np.where(np.arange(8) % 2, 1.0, -1.0)[:, None]
    order = np.argsort(-(0.6 * signs * groups + random.normal(size=(8, 800))), axis=1)
    skew = mean_max_skew(order, groups, 2, 80, QUICK)
    assert skew.value > skew.expected_high > skew.expected > 0
    assert skew.leads.tolist() == [4, 4]
    even = np.argsort(random.normal(size=(8, 800)), axis=1)
    values = [mean_max_skew(even, random.permutation(groups), 2, 80, QUICK) for _ in range(40)]
    assert np.mean([one.value > one.expected_high for one in values]) == pytest.approx(0.05, abs=0.08)
