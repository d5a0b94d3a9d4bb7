"""Error consistency: whether two classifiers fail on the same images more often than their accuracies alone explain.

Works on two aligned rows of right and wrong; the caller ensures that both are about the same images in the same order.
"""

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["error_consistency"]


def error_consistency(correct_a: ArrayLike, correct_b: ArrayLike) -> float:
    """Computes Cohen's kappa of two classifiers' correctness.

    kappa = (c_obs - c_exp) / (1 - c_exp),   c_exp = p_a p_b + (1 - p_a)(1 - p_b), c_obs = share of images on which both
    are right or both wrong, p = accuracies

    Geirhos et al. 2020 (error consistency), Eqs. 1 to 3; used by Wiles et al. 2022, Fig. 8. Where c_obs = 1 the value
    is 1 by convention, also for two classifiers that are always right or always wrong, for which the formula is 0/0.

    Args: correct_a, correct_b: shape (images,), 0/1 or bool.
    Returns: float in [-1, 1]. 1: the same images are right; 0: as independent errors would agree; below 0: they avoid
    each other's errors. NaN for no images.
    Raises: ValueError for lengths that differ, for other values than 0 and 1, or for more than one axis.
    """
    a, b = np.asarray(correct_a), np.asarray(correct_b)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"both must have the same shape (images,), got {a.shape} and {b.shape}")
    if not np.isin(a, (0, 1)).all() or not np.isin(b, (0, 1)).all():
        raise ValueError("correctness must be 0 or 1")
    if a.size == 0:
        return float("nan")
    same = int((a == b).sum())
    if same == a.size:
        return 1.0
    p, q = float(a.mean()), float(b.mean())
    expected = p * q + (1 - p) * (1 - q)
    return (same / a.size - expected) / (1 - expected)
