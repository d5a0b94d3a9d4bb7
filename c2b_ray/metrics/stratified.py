"""Differences in accuracy between images that are alike in something else: what is left once it is held fixed.

Knows counts by cell and stratum; knows nothing of what the strata are, nor of what follows from a difference that
vanishes within them.
"""

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.metrics.scores import Floats, checked_counts

__all__ = ["stratified_differences"]


def stratified_differences(correct: ArrayLike, total: ArrayLike) -> tuple[Floats, Floats]:
    """Accuracy of each cell minus that of the other cells together, compared within strata only.

    RD_j = sum over u of w_u * (A_ju - A_ou) / sum of w_u,   w_u = n_ju * n_ou / (n_ju + n_ou)

    with o the other cells' images taken together: the risk difference of Mantel and Haenszel (Greenland & Robins,
    Biometrics 41, 1985, Eq. 2). Where strata tell nothing about cells or nothing about accuracy it is the plain
    difference; where a cell's images differ from the others' in nothing but the strata, it is 0.

    Args: correct, total: integers of shape (cells, strata).
    Returns: (differences, overlap), float64 (cells,). Differences in [-1, 1], NaN where no stratum holds images of the
    cell and of others. Overlap: the sum of weights over what it would be in one stratum, in [0, 1]; 0 where no stratum
    is shared, 1 where cell and others are spread over the strata alike.
    Raises: ValueError as `bias_scores` does, and where there are not two axes.
    """
    c, t = checked_counts(correct, total)
    if c.ndim != 2:
        raise ValueError(f"need a table of cells and strata, got shape {c.shape}")
    others, right_others = t.sum(axis=0) - t, c.sum(axis=0) - c
    weights = _over(t * others, t + others)
    gaps = _over(c, t) - _over(right_others, others)
    whole = weights.sum(axis=1)
    differences = np.divide((weights * gaps).sum(axis=1), whole, out=np.full(len(c), np.nan), where=whole > 0)
    own, rest = t.sum(axis=1), others.sum(axis=1)
    return differences, _over(whole, _over(own * rest, own + rest))


def _over(above: ArrayLike, below: ArrayLike) -> Floats:
    """The ratio, 0 where there is nothing to divide by."""
    a, b = np.asarray(above, np.float64), np.asarray(below, np.float64)
    ratio: Floats = np.divide(a, b, out=np.zeros(np.broadcast_shapes(a.shape, b.shape)), where=b > 0)
    return ratio
