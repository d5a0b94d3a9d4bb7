"""Clusters of vectors and of clusterings, mixtures of errors, cuts of numbers, and the plane."""

from __future__ import annotations

import math
import time
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from c2b_ray.stats.clustering import (
    LEAST_SHARE,
    assigned,
    error_mixture,
    intersections,
    kmeans,
    matched_groups,
    principal_plane,
    quantile_edges,
    shortest_between,
)


def noisy(clusterings, items, k, noise, seed):
    random = np.random.default_rng(seed)
    true = random.integers(0, k, items)
    moved = random.random((clusterings, items)) < noise
    names = np.stack([random.permutation(k)[true] for _ in range(clusterings)])
    return np.where(moved, random.integers(0, k, (clusterings, items)), names)


def test_every_combination_of_clusters_is_searched():
    labels = noisy(3, 60, 4, 0.3, 0)
    brute = {}
    for clusters in product(range(4), repeat=3):
        members = np.flatnonzero((labels == np.array(clusters)[:, None]).all(axis=0))
        if members.size:
            brute[clusters] = members.tolist()
    found = intersections(labels)
    assert {group.clusters: group.members.tolist() for group in found} == brute
    assert [len(group.members) for group in found] == sorted(map(len, brute.values()), reverse=True)


def test_a_cluster_serves_one_group_alone_where_so_wished_and_the_choice_is_the_best():
    random = np.random.default_rng(1)
    for _ in range(60):
        labels = random.integers(0, 3, (int(random.integers(1, 4)), int(random.integers(1, 12))))
        groups = intersections(labels)
        most = max(
            sum(len(group.members) for group in some)
            for size in range(4)
            for some in combinations(groups, size)
            if all(len(set(column)) == size for column in zip(*(group.clusters for group in some), strict=True))
        )
        once = matched_groups(labels, reuse="once")
        assert sum(len(group.members) for group in once) == most
        assert all(len(set(column)) == len(once) for column in zip(*(group.clusters for group in once), strict=True))


def test_shared_clusters_and_the_least_size():
    labels = np.array([[0] * 6 + [0] * 4 + [1] * 2, [0] * 6 + [1] * 4 + [1] * 2])
    assert [group.clusters for group in matched_groups(labels, 3)] == [(0, 0), (0, 1)]
    assert [group.clusters for group in matched_groups(labels, 3, "once")] == [(0, 0)]
    assert matched_groups(labels, 7) == []


@pytest.mark.parametrize(("items", "noise", "reuse"), [(5000, 0.3, "shared"), (5000, 0.02, "once"), (600, 0.3, "once")])
def test_29_clusterings_take_no_time(items, noise, reuse):
    labels = noisy(29, items, 6, noise, 2)
    began = time.process_time()
    groups = matched_groups(labels, 1, reuse)
    assert time.process_time() - began < 5
    assert groups


def test_clusters_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    vectors = np.concatenate([random.normal(at, 0.3, (60, 5)) for at in (0, 1, 2.5)])
    ours, theirs = kmeans(vectors, 3), KMeans(3, n_init=10, random_state=0).fit_predict(vectors)
    assert adjusted_rand_score(ours, theirs) == 1.0
    assert (kmeans(vectors, 3) == ours).all()


def test_copies_and_edges():
    assert set(kmeans(np.ones((5, 2)), 2).tolist()) <= {0, 1}
    assert kmeans(np.zeros((0, 2)), 3).tolist() == []
    with pytest.raises(ValueError, match="2 items cannot make 3 clusters"):
        kmeans(np.zeros((2, 2)), 3)


def blobs(random: np.random.Generator, centres: np.ndarray, each: int, width: float) -> tuple[np.ndarray, np.ndarray]:
    of = np.repeat(np.arange(len(centres)), each)
    return centres[of] + random.normal(0, width, (len(of), centres.shape[1])), of


def test_without_weight_it_is_a_gaussian_mixture():
    random = np.random.default_rng(0)
    x, _ = blobs(random, random.normal(0, 3, (3, 5)), 80, 0.6)
    ours = error_mixture(x, np.zeros(240, bool), 3, weight=0.0)
    theirs = GaussianMixture(3, covariance_type="diag", random_state=0).fit(x)
    assert adjusted_rand_score(ours.assigned(x), theirs.predict(x)) > 0.98
    assert np.sort(ours.shares) == pytest.approx(np.sort(theirs.weights_), abs=0.02)


def test_answers_split_what_vectors_alone_do_not():
    """Two halves of a cloud, of which one fails: k-means would cut it along its longest axis, which is another."""
    random = np.random.default_rng(1)
    x = random.normal(0, 1, (400, 4)) * np.array([2.5, 1.0, 0.3, 0.3])
    fails = x[:, 1] > 0.6
    wrong = np.where(fails, random.random(400) < 0.8, random.random(400) < 0.05)
    aware, blind = (error_mixture(x, wrong, 2, weight=weight).assigned(x) for weight in (10.0, 0.0))
    assert max(np.mean((aware == k) == fails) for k in (0, 1)) > 0.8
    assert max(np.mean((blind == k) == fails) for k in (0, 1)) < 0.7


def test_images_are_assigned_by_their_vectors_alone():
    random = np.random.default_rng(2)
    x, _ = blobs(random, np.array([[0.0, 0], [4, 0]]), 50, 0.5)
    found = error_mixture(x, random.random(100) < 0.3, 2)
    new = np.array([[0.1, 0.1], [3.9, -0.1], [0.1, 0.1]])
    assert found.assigned(new)[0] == found.assigned(new)[2] != found.assigned(new)[1]


@pytest.mark.parametrize(
    ("vectors", "wrong", "more", "match"),
    [
        (np.zeros((3, 2)), [True, False], {"k": 1}, "must be finite"),
        (np.full((2, 2), np.nan), [True, False], {"k": 1}, "must be finite"),
        (np.zeros((2, 2)), [True, False], {"k": 3}, "k = 3"),
        (np.zeros((2, 2)), [True, False], {"k": 1, "weight": -1.0}, "weight"),
        (np.zeros((2, 2)), [True, False], {"k": 1, "axes": 0}, "axes"),
    ],
)
def test_wrong_input_is_refused(vectors, wrong, more, match):
    with pytest.raises(ValueError, match=match):
        error_mixture(vectors, wrong, **more)


def test_the_plane_is_that_of_principal_components():
    vectors = np.random.default_rng(2).normal(size=(50, 7)) * np.arange(1, 8)
    plane = principal_plane(vectors)
    expected = PCA(2).fit_transform(vectors)
    np.testing.assert_allclose(np.abs(plane), np.abs(expected), atol=1e-9)
    np.testing.assert_array_equal(plane, principal_plane(vectors))
    assert principal_plane(np.ones((3, 4))).tolist() == [[0, 0]] * 3
    assert principal_plane(np.zeros((0, 4))).shape == (0, 2)


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
