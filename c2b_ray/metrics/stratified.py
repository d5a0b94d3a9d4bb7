"""Differences in accuracy between images that are alike in something else: what is left once it is held fixed.

Knows counts by cell and stratum; knows nothing of what the strata are, nor of what follows from a difference that
vanishes within them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.metrics.scores import Floats, Ints, checked_counts

__all__ = ["Stratified", "stratified_differences"]


@dataclass(frozen=True)
class Stratified:
    """Differences of n cells; every array is float64 (n,).

    `plain`, `alike`: the cell's accuracy minus that of the other cells together, over all and within strata only; NaN
    where there is nothing to compare. `overlap`: what is left of the comparison within strata, in [0, 1]: 0 where no
    stratum is shared, 1 where cell and others are spread over the strata alike. `noise`: the standard error of
    `plain` - `alike` where the strata make no difference.
    """

    plain: Floats
    alike: Floats
    overlap: Floats
    noise: Floats


def stratified_differences(correct: ArrayLike, total: ArrayLike) -> Stratified:
    """Accuracy of each cell minus that of the other cells together, as it is and compared within strata only.

    alike_j = sum over u of w_u * (A_ju - A_ou) / sum of w_u,   w_u = n_ju * n_ou / (n_ju + n_ou)

    with o the other cells' images taken together: the risk difference of Mantel and Haenszel (Greenland & Robins,
    Biometrics 41, 1985, Eq. 2). Where strata tell nothing about cells or nothing about accuracy it is the plain
    difference; where a cell's images differ from the others' in nothing but the strata, it is 0. `overlap` is the sum
    of weights over what it would be in one stratum, and as both estimates rest on the same images, the variance of
    their difference is that of the plain one times 1/overlap - 1 (Hausman, Econometrica 46, 1978).

    Args: correct, total: integers of shape (cells, strata).
    Returns: `Stratified`.
    Raises: ValueError as `bias_scores` does, and where there are not two axes.
    """
    c, t = checked_counts(correct, total)
    if c.ndim != 2:
        raise ValueError(f"need a table of cells and strata, got shape {c.shape}")
    weights, gaps = _compared(c, t)
    whole, alone = weights.sum(axis=1), _compared(c.sum(axis=1, keepdims=True), t.sum(axis=1, keepdims=True))
    plain = np.where(alone[0][:, 0] > 0, alone[1][:, 0], np.nan)
    alike = np.divide((weights * gaps).sum(axis=1), whole, out=np.full(len(c), np.nan), where=whole > 0)
    overlap = _over(whole, alone[0][:, 0])
    own, right = t.sum(axis=1), c.sum(axis=1)
    variance = sum(_variance(r, n) for r, n in ((right, own), (right.sum() - right, own.sum() - own)))
    more = np.divide(1, overlap, out=np.full(len(c), np.inf), where=overlap > 0) - 1
    return Stratified(plain, alike, overlap, np.sqrt(variance * np.maximum(more, 0.0)))


def _compared(c: Ints, t: Ints) -> tuple[Floats, Floats]:
    """Weight and accuracy gap of each cell and stratum, against the other cells of the stratum."""
    others, right_others = t.sum(axis=0) - t, c.sum(axis=0) - c
    return _over(t * others, t + others), _over(c, t) - _over(right_others, others)


def _variance(right: Ints, seen: Ints) -> Floats:
    """Of an accuracy, smoothed as Agresti & Coull's: at 1 exactly there would be none."""
    smooth = (right + 2) / (seen + 4)
    found: Floats = smooth * (1 - smooth) / np.maximum(seen, 1)
    return found


def _over(above: ArrayLike, below: ArrayLike) -> Floats:
    """The ratio, 0 where there is nothing to divide by."""
    a, b = np.asarray(above, np.float64), np.asarray(below, np.float64)
    ratio: Floats = np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b > 0)
    return ratio
