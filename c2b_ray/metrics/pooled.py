"""Bias scores of an attribute's values pooled over all classes.

Knows accuracies and how many images they rest on, a row per class; knows nothing of images or of what classes are.
Classes and cells are taken as independent samples.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.metrics.contrasts import contrast_interval, contrast_none_p_values, contrast_p_values
from c2b_ray.metrics.scores import Floats

__all__ = ["Pooled", "pooled_bias_scores"]


@dataclass(frozen=True)
class Pooled:
    """Pooled scores, float64 (values,): φ over all classes with limits, p-values of |φ| ≤ τ and of |φ| ≥ τ, and
    accuracy with the weights of φ. `classes` int64: the number of classes in which the value and at least one other
    hold images; `shares` (classes, values): the weights of the classes' φ, which sum to 1. NaN for a value with no such
    class."""

    phi: Floats
    low: Floats
    high: Floats
    p_value: Floats
    none_p_value: Floats
    accuracy: Floats
    classes: NDArray[np.int64]
    shares: Floats


def pooled_bias_scores(accuracy: ArrayLike, images: ArrayLike, tau: float = 0.0, confidence: float = 0.95) -> Pooled:
    """Computes φ of every value of an attribute, stratified by class.

    phi_j = sum over classes c of w_cj * phi_cj / sum of w_cj,   1/w_cj = 1/n_cj + 1/m^2 * sum of 1/n_ck over k != j

    phi_cj is C2B's Eq. 1 within class c. A class's weight depends on its numbers of images and not on its accuracy:
    with two values w is Mantel and Haenszel's weight of a risk difference (Greenland & Robins 1985). Values are
    compared only within a class, so a hard class with many images of one value does not feign an effect. Limits and
    p-values are those of the weighted sum of all cells' accuracies (`contrasts`).

    Args: accuracy: (classes, values) in [0, 1], NaN where a cell holds no image; images: (classes, values), 0 or more,
    need not be whole. tau: 0 or more. confidence: in (0, 1).
    Returns: `Pooled`. 0: no class-stratified difference. No classes in: NaN.
    Raises: ValueError where shapes differ or are not two-dimensional, or for tau or the confidence.
    """
    a, n = np.asarray(accuracy, np.float64), np.asarray(images, np.float64)
    if a.ndim != 2 or a.shape != n.shape:
        raise ValueError(f"accuracy and images must have one shape (classes, values), got {a.shape} and {n.shape}")
    if not a.size:
        gap, nowhere = np.full(a.shape[1], np.nan), np.zeros(a.shape[1], np.int64)
        return Pooled(gap, gap, gap, gap, gap, gap, nowhere, np.zeros(a.shape))
    held = (n > 0) & ~np.isnan(a)
    weights, classes = _weights(np.where(held, n, 0.0), held)
    rates, images_held = np.where(held, a, 0.0), np.where(held, n, 0.0)
    rows = weights.reshape(a.shape[1], -1)
    rows[classes == 0] = np.nan
    cells = (rates * images_held).reshape(1, -1), images_held.reshape(1, -1), rows
    low, high = contrast_interval(*cells, confidence)
    itself = np.einsum("jcj->jc", weights)
    return Pooled(
        rows @ rates.ravel(),
        low,
        high,
        contrast_p_values(*cells, tau),
        contrast_none_p_values(*cells, tau),
        np.where(classes > 0, (itself * rates.T).sum(axis=1), np.nan),
        classes,
        itself.T,
    )


def _weights(n: Floats, held: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.int64]]:
    """Returns the weight of each cell's accuracy in each pooled φ, (j, c, k), and each φ's number of classes."""
    values = n.shape[1]
    itself = np.eye(values, dtype=bool)
    others = np.maximum(held.sum(axis=1, keepdims=True) - held, 0)  # (c, j)
    spread = np.divide(1.0, n, out=np.zeros(n.shape), where=held)
    of_others = (spread.sum(axis=1, keepdims=True) - spread) / np.maximum(others, 1) ** 2
    usable = held & (others > 0)
    telling = np.divide(1.0, spread + of_others, out=np.zeros(n.shape), where=usable)
    whole = telling.sum(axis=0)
    share = np.divide(telling, whole, out=np.zeros(n.shape), where=whole > 0)  # (c, j)
    within = np.where(itself[:, None, :], 1.0, -(held[None] / np.maximum(others.T, 1)[:, :, None]))  # (j, c, k)
    result: Floats = share.T[:, :, None] * within
    return result, usable.sum(axis=0)
