"""k-means clustering of vectors.

Knows vectors; knows nothing of what they embed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.stats.scores import Floats, Ints

__all__ = ["MatchedClusters", "Reuse", "intersections", "kmeans", "matched_groups"]


ROUNDS = 200


def kmeans(vectors: ArrayLike, k: int, seed: int = 0, starts: int = 10) -> Ints:
    """Assigns each vector to a cluster by Lloyd's algorithm from k-means++ centres, the best of several starts.

    minimises sum over vectors of min over centres of |x - c|^2   (Lloyd 1982; Arthur & Vassilvitskii 2007)

    Args: vectors: (items, dimension), finite; k: 1 or more; starts: 1 or more.
    Returns: int64 (items,) in 0 .. k - 1; the same input gives the same result. Clusters are numbered by size, the
    largest 0. No items in, none out.
    Raises: ValueError for k or starts below 1, fewer items than k, or values that are not finite.
    """
    x = np.asarray(vectors, np.float64)
    if x.ndim != 2 or not np.isfinite(x).all():
        raise ValueError(f"vectors must be finite, of shape (items, dimension), got {x.shape}")
    if k < 1 or starts < 1:
        raise ValueError(f"k = {k} and starts = {starts} must be 1 or more")
    if not len(x):
        return np.zeros(0, np.int64)
    if len(x) < k:
        raise ValueError(f"{len(x)} items cannot make {k} clusters")
    x = x - x.mean(axis=0)
    squares = (x**2).sum(axis=1)
    random = np.random.default_rng(seed)
    runs = [_lloyd(x, squares, _plus_plus(x, squares, k, random)) for _ in range(starts)]
    labels = min(runs, key=lambda result: result[1])[0]
    order = np.argsort(-np.bincount(labels, minlength=k), kind="stable")
    rank = np.empty(k, np.int64)
    rank[order] = np.arange(k)
    return rank[labels]


def _distances(x: Floats, squares: Floats, centres: Floats) -> Floats:
    result: Floats = np.maximum(squares[:, None] - 2 * (x @ centres.T) + (centres**2).sum(axis=1), 0.0)
    return result


def _plus_plus(x: Floats, squares: Floats, k: int, random: np.random.Generator) -> Floats:
    centres = x[[random.integers(len(x))]]
    nearest = _distances(x, squares, centres)[:, 0]
    while len(centres) < k:
        total = nearest.sum()
        chances = nearest / total if total > 0 else None
        centres = np.concatenate([centres, x[[random.choice(len(x), p=chances)]]])
        nearest = np.minimum(nearest, _distances(x, squares, centres[-1:])[:, 0])
    return centres


def _lloyd(x: Floats, squares: Floats, centres: Floats) -> tuple[Ints, float]:
    labels = np.full(len(x), -1)
    distances = _distances(x, squares, centres)
    for _ in range(ROUNDS):
        new = distances.argmin(axis=1)
        if (new == labels).all():
            break
        labels = new
        counts = np.bincount(labels, minlength=len(centres))
        sums = np.eye(len(centres))[labels].T @ x
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        distances = _distances(x, squares, centres)
    return distances.argmin(axis=1), float(distances.min(axis=1).sum())


# Clusters of several clusterings of the same items, matched: which combinations of clusters share the most items.


Reuse = Literal["shared", "once"]


@dataclass(frozen=True)
class MatchedClusters:
    """Matched clusters. `clusters`: one of each clustering; `members`: the items that lie in all of them, ascending."""

    clusters: tuple[int, ...]
    members: NDArray[np.int64]


def intersections(labels: ArrayLike) -> list[MatchedClusters]:
    """Finds every combination of clusters, one of each clustering, whose intersection is not empty; the largest first.

    An item lies in exactly one cluster of each clustering, so in the intersection of exactly one combination: that of
    its own labels. Of the k^M combinations at most as many as there are items hold any, and sorting the items by their
    labels finds them all, exactly, in O(M n log n): nothing has to be searched. Ties: the lower labels first.

    Args: labels: integers (clusterings, items).
    Returns: a list of `MatchedClusters`, whose members together are all items, each once. Empty for no items.
    Raises: ValueError for an input without two axes or without clusterings.
    """
    table = np.asarray(labels, np.int64)
    if table.ndim != 2 or not len(table):
        raise ValueError(f"labels need axes of clusterings and items, got shape {table.shape}")
    if not table.shape[1]:
        return []
    combinations, inverse, counts = np.unique(table.T, axis=0, return_inverse=True, return_counts=True)
    members = np.split(np.argsort(inverse.ravel(), kind="stable"), np.cumsum(counts)[:-1])
    order = np.argsort(-counts, kind="stable")
    return [MatchedClusters(tuple(combinations[i].tolist()), members[i]) for i in order.tolist()]


def matched_groups(labels: ArrayLike, least: int = 1, reuse: Reuse = "shared") -> list[MatchedClusters]:
    """Returns the combinations that share `least` items or more, the largest first.

    `shared`: all of them: a cluster of one clustering may serve two groups (its items are still in one group each).
    `once`: a set of them in which no two have a cluster in common, with the most items in all; found exactly by branch
    and bound over combinations in order of size. The bound on the remaining gain: for each clustering, the sum over its
    clusters of the largest combination that is still free there; the least of these sums.

    Ramos et al. 2025, section 4.1: "the combination of clusters across different clusterings that provide the maximal
    cardinality over the intersection"; "at least 100 images". The paper does not say whether clusters are used again.

    Args: labels: integers (clusterings, items); least: 1 or more; reuse.
    Returns: a list of `MatchedClusters`. Empty where no combination has that many items.
    Raises: ValueError as `intersections` does, or for least < 1.
    """
    if least < 1:
        raise ValueError(f"least = {least} must be 1 or more")
    candidates = [group for group in intersections(labels) if len(group.members) >= least]
    if reuse == "shared" or not candidates:
        return candidates
    clusters = np.array([group.clusters for group in candidates], np.int64)
    sizes = np.array([len(group.members) for group in candidates], np.int64)
    return [candidates[i] for i in _packed(clusters, sizes)]


def _packed(clusters: Ints, sizes: Ints) -> list[int]:
    """Returns the rows of the packing with the largest sum of sizes; rows are in order of size, largest first.

    Sets of rows are the bits of an integer, row r the bit of value 2^r, so that the lowest bit is the largest row.
    """
    masks = [[_bits(column == cluster) for cluster in np.unique(column)] for column in clusters.T]
    weight: list[int] = sizes.tolist()
    compatible: dict[int, int] = {}
    largest_packing: list[int] = []
    largest_size = 0
    stack: list[tuple[list[int], int, int]] = [([], 0, (1 << len(weight)) - 1)]
    while stack:
        packing, total, free = stack.pop()
        if total > largest_size:
            largest_packing, largest_size = packing, total
        if not free or not _promising(free, largest_size - total, masks, weight):
            continue
        first = _lowest(free)
        if first not in compatible:
            compatible[first] = _bits((clusters != clusters[first]).all(axis=1))
        stack.append((packing, total, free ^ (1 << first)))
        stack.append(([*packing, first], total + weight[first], free & compatible[first]))
    return largest_packing


def _promising(free: int, needed: int, masks: list[list[int]], weight: list[int]) -> bool:
    """Tells whether a packing of these rows may hold more than `needed` items: in every clustering the largest free
    rows of its clusters, one per cluster, must add up to more."""
    for of_clusters in masks:
        bound = 0
        for mask in of_clusters:
            if free_rows := free & mask:
                bound += weight[_lowest(free_rows)]
                if bound > needed:
                    break
        else:
            return False
    return True


def _bits(rows: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(rows, bitorder="little").tobytes(), "little")


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1
