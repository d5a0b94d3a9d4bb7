from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from c2b_ray.metrics.cuts import FARTHEST, assigned, quantile_edges, shortest_between

NUMBERS = st.lists(st.floats(-1e6, 1e6) | st.integers(0, 5).map(float) | st.just(math.nan), max_size=60)


def test_edges_of_distinct_numbers_are_their_quantiles():
    numbers = np.random.default_rng(0).permutation(np.arange(100.0))
    edges = quantile_edges(numbers, (0.2, 0.8))
    assert edges.tolist() == [20, 80]
    assert np.bincount(assigned(numbers, edges)).tolist() == [20, 60, 20]


def test_an_edge_is_the_number_of_fewest_digits_between_its_neighbours():
    assert shortest_between(60.7, 61.4) == 61
    assert shortest_between(0.1234, 0.1291) == pytest.approx(0.125, abs=0.0021)
    assert shortest_between(999, 1500) == 1000
    assert shortest_between(-3.5, -3.1) == -3.3  # the one next to the middle, of those with one decimal place
    assert shortest_between(5, 6) == 6  # 5 itself belongs below
    with pytest.raises(ValueError, match="nothing lies above 5"):
        shortest_between(5, 5)


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_an_edge_always_separates_its_neighbours(a: float, b: float):
    low, high = sorted((a, b))
    if low < high:
        edge = shortest_between(low, high)
        assert low < edge <= high


def test_equal_numbers_stay_together_and_an_edge_that_ties_move_far_is_left_out():
    # 70 % of the pictures are 500 wide: the upper edge would part off nobody, the lower one 30 % for 20 %.
    assert assigned([375, 500], quantile_edges([375] * 30 + [500] * 70, (0.2, 0.8))).tolist() == [0, 1]
    # 5 % in place of 20 % is another question; and so is 95 % in place of 80 %.
    assert len(quantile_edges([375] * 5 + [500] * 95, (0.2, 0.8))) == 0
    assert len(quantile_edges([1.0] * 9, (0.2, 0.8))) == 0


@pytest.mark.parametrize("numbers", [[], [math.nan], [3.0]])
def test_too_few_numbers_have_no_edge(numbers: list[float]):
    assert quantile_edges(numbers, (0.2, 0.8)).shape == (0,)


@given(NUMBERS)
def test_groups_are_ordered_and_about_as_large_as_intended(numbers: list[float]):
    edges = quantile_edges(numbers, (0.2, 0.8))
    x = np.array(numbers)
    places = assigned(x, edges)
    assert np.all((places == -1) == np.isnan(x))
    for edge in range(len(edges)):  # nobody above an edge is smaller than anybody below it
        below, above = x[(places >= 0) & (places <= edge)], x[places > edge]
        assert below.max() < above.min()
    known = places[places >= 0]
    for smallest in (np.mean(known == 0), np.mean(known == len(edges))) if len(edges) == 2 else ():
        assert smallest + 1e-9 >= 0.2 / FARTHEST
        assert smallest <= 0.2 * FARTHEST + 1e-9


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.0, 0.5), (0.5, 1.0), (0.5, 0.5)])
def test_shares_must_ascend_within_their_range(shares: tuple[float, ...]):
    with pytest.raises(ValueError, match="must ascend"):
        quantile_edges([1.0, 2.0], shares)


def test_an_infinite_number_is_refused():
    with pytest.raises(ValueError, match="finite"):
        quantile_edges([1.0, math.inf], (0.5,))
