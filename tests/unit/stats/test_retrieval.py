import numpy as np
import pytest

from c2b_ray.stats import recall_at


def test_recall_is_the_share_of_the_relevant_not_a_hit():
    # of b, d, z the first three hold b: 1/3; the first four hold b and d: 2/3; z is never ranked
    assert recall_at("abcd", {"b", "d", "z"}, 3) == pytest.approx(1 / 3)
    assert recall_at(np.array(list("abcd")), ["b", "d", "z", "d"], 4) == pytest.approx(2 / 3)
    assert recall_at("abcd", {"b", "d", "z"}, 99) == pytest.approx(2 / 3)


def test_a_repeat_in_the_ranking_takes_a_place_and_counts_once():
    assert recall_at([1, 1, 2], [1, 2], 2) == 0.5
    assert recall_at(np.array([1, 1, 2]), np.array([1, 2]), 3) == 1


def test_recall_without_relevant_items_is_unknown_and_without_a_ranking_zero():
    assert np.isnan(recall_at([1, 2], [], 1))
    assert recall_at([], [1], 5) == 0
    with pytest.raises(ValueError, match="k = 0"):
        recall_at([1], [1], 0)
