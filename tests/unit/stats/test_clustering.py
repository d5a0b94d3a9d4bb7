"""K-means, and clusterings matched with each other."""

from __future__ import annotations

import time
from itertools import combinations, product

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from c2b_ray.stats.clustering import intersections, kmeans, matched_groups


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
