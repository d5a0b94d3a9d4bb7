"""k-means clustering of vectors.

Knows vectors; knows nothing of what they embed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.metrics.scores import Floats, Ints

__all__ = ["kmeans"]

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
