"""Similarity of embedding spaces: how far the same pairs of items are similar in both.

Knows embeddings of the same items; knows nothing of what is embedded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from c2b_ray.stats.scores import Floats

__all__ = ["SpaceSimilarity", "space_similarity"]

FOLDS = 20
ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class SpaceSimilarity:
    """Arrays (spaces, spaces): the similarity of every pair of spaces, and the limits of its interval."""

    value: Floats
    low: Floats
    high: Floats


def space_similarity(
    spaces: Sequence[NDArray[np.floating]], confidence: float = 0.95, centred: bool = False
) -> SpaceSimilarity:
    """Computes the cosine similarity of spaces, each taken as the vector of cosines of all D(D-1)/2 pairs of items.

    s(e, f) = sum over i < j of S_e[i, j] * S_f[i, j] / (|S_e| |S_f|),   S[i, j] the cosine of items i and j

    Ramos et al. 2025, section 4.4 and Figure 8. Where all of a space's items are alike (one narrow cone) every entry of
    S is near 1, and so is s to any other such space, whichever pairs are similar in them: `centred` subtracts each
    space's mean pair first (Pearson's correlation of the vectors), which removes this effect. The paper's is the
    default. The interval is the jackknife's over 20 parts of the items (a pair is left out where either of its items
    is).

    Args: spaces: float arrays (items, dimension of the space), the same items in each; confidence: in (0, 1).
    Returns: `SpaceSimilarity`, 1 on the diagonal. NaN where a space has no direction (all zeros, or all alike where
    centred), or fewer than 2 items. Limits NaN for fewer than 40 items.
    Raises: ValueError for spaces of different numbers of items, or of items without length.
    """
    units = [_unit(space) for space in spaces]
    items = len(units[0]) if units else 0
    if any(len(unit) != items for unit in units):
        raise ValueError(f"spaces have {sorted({len(unit) for unit in units})} items; they must hold the same")
    folds = FOLDS if items >= 2 * FOLDS else 1
    of_fold = np.arange(items) * folds // max(items, 1)
    products, sums, pairs = _gathered(units, of_fold, folds)
    value = _cosine(products.sum((0, 1)), sums.sum((0, 1)), pairs.sum(), centred)
    if folds == 1:
        nothing = np.full(value.shape, np.nan)
        return SpaceSimilarity(value, nothing, nothing)
    left = []
    for fold in range(folds):
        keep = np.arange(folds) != fold
        part = np.ix_(keep, keep)
        left.append(_cosine(products[part].sum((0, 1)), sums[part].sum((0, 1)), pairs[part].sum(), centred))
    spread = np.sqrt((folds - 1) / folds * ((np.array(left) - np.mean(left, axis=0)) ** 2).sum(axis=0))
    reach = stdtrit(folds - 1, (1 + confidence) / 2) * spread
    return SpaceSimilarity(value, np.clip(value - reach, -1, 1), np.clip(value + reach, -1, 1))


def _unit(space: NDArray[np.floating]) -> Floats:
    vectors = np.asarray(space, np.float64)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(vectors).all() or (length == 0).any():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1) | (length[:, 0] == 0))[0])
        raise ValueError(f"item {row} has an embedding without length, or one that is not finite")
    result: Floats = vectors / length
    return result


def _gathered(units: Sequence[Floats], of_fold: NDArray[np.int64], folds: int) -> tuple[Floats, Floats, Floats]:
    """Sums, by the folds of both items of a pair i < j: products of cosines (folds, folds, E, E), cosines, and the
    number of pairs."""
    number, items = len(units), len(of_fold)
    products = np.zeros((folds, folds, number, number))
    sums = np.zeros((folds, folds, number))
    pairs = np.zeros((folds, folds))
    ends = np.searchsorted(of_fold, np.arange(folds + 1))
    for start in range(0, items, ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, items))
        for second in range(int(of_fold[start]), folds):
            columns = np.arange(ends[second], ends[second + 1])
            upper = columns[None, :] > rows[:, None]
            cosines = np.stack([(unit[rows] @ unit[columns].T) * upper for unit in units])  # (E, rows, columns)
            for first in np.unique(of_fold[rows]):
                some = cosines[:, of_fold[rows] == first].reshape(number, -1)
                products[first, second] += some @ some.T
                sums[first, second] += some.sum(axis=1)
                pairs[first, second] += upper[of_fold[rows] == first].sum()
    return products, sums, pairs


def _cosine(products: Floats, sums: Floats, pairs: float, centred: bool) -> Floats:
    if centred and pairs:
        products = products - np.outer(sums, sums) / pairs
    length = np.sqrt(np.maximum(np.diag(products), 0.0))
    scale = np.outer(length, length)
    result: Floats = np.divide(products, scale, out=np.full(scale.shape, np.nan), where=scale > 1e-300)
    return np.clip(result, -1, 1)
