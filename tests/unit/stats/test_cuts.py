from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from c2b_ray.stats.clustering import LEAST_SHARE, assigned, quantile_edges, shortest_between

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


@pytest.mark.parametrize("narrow", [5, 30, 50, 95])
def test_pictures_of_two_widths_are_cut_between_these(narrow: int):
    edges = quantile_edges([375] * narrow + [500] * (100 - narrow), (0.2, 0.8))
    assert edges.tolist() == [400]


def test_parts_of_less_than_a_twentieth_are_not_made():
    assert len(quantile_edges([375] * 4 + [500] * 96, (0.2, 0.8))) == 0
    assert len(quantile_edges([375] * 96 + [500] * 4, (0.2, 0.8))) == 0
    assert len(quantile_edges([1.0] * 9, (0.2, 0.8))) == 0
    # 60 of 1, 3 of 2, 37 of 3: a middle of 3 % would be left between the edges, so there is one edge.
    assert quantile_edges([1] * 60 + [2] * 3 + [3] * 37, (0.2, 0.8)).tolist() == [2]


@pytest.mark.parametrize("numbers", [[], [math.nan], [3.0]])
def test_too_few_numbers_have_no_edge(numbers: list[float]):
    assert quantile_edges(numbers, (0.2, 0.8)).shape == (0,)


@given(NUMBERS)
def test_parts_are_ordered_and_none_is_small(numbers: list[float]):
    edges = quantile_edges(numbers, (0.2, 0.8))
    x = np.array(numbers)
    places = assigned(x, edges)
    assert np.all((places == -1) == np.isnan(x))
    for edge in range(len(edges)):  # nobody above an edge is smaller than anybody below it
        below, above = x[(places >= 0) & (places <= edge)], x[places > edge]
        assert below.max() < above.min()
    if len(edges):
        counts = np.bincount(places[places >= 0], minlength=len(edges) + 1)
        assert counts.min() / counts.sum() >= LEAST_SHARE - 1e-9


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.0, 0.5), (0.5, 1.0), (0.5, 0.5)])
def test_shares_must_ascend_within_their_range(shares: tuple[float, ...]):
    with pytest.raises(ValueError, match="must ascend"):
        quantile_edges([1.0, 2.0], shares)


def test_an_infinite_number_is_refused():
    with pytest.raises(ValueError, match="finite"):
        quantile_edges([1.0, math.inf], (0.5,))
