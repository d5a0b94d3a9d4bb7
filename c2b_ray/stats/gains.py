"""How far the means of some groups lie above those of others, where the sampling unit is a cluster of values.

A search returns several prompts at once, and one prompt of a language model covers all values of an attribute. Such
prompts err together, so an interval that treats each as independent is too narrow. Knows values, groups and clusters;
knows no prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from c2b_ray.stats.scores import Floats, Ints

__all__ = ["Gain", "mean_gain"]


@dataclass(frozen=True)
class Gain:
    """A weighted sum of group means, its limits, and their degrees of freedom; NaN: not known."""

    value: float
    low: float
    high: float
    freedom: float


def mean_gain(
    values: ArrayLike, groups: ArrayLike, weights: ArrayLike, clusters: ArrayLike, coarsest: float = 0.0,
    confidence: float = 0.95, counts: ArrayLike | None = None,
) -> Gain:  # fmt: skip
    """Computes the sum over groups g of weights[g] * mean of the group's values, with Welch's interval over clusters.

    G = sum_g a_g * mean_g,   e_c = sum over i in cluster c of a_g(i) * w_i * (y_i - mean_g(i)) / n_g(i)
    v_b = m_b / (m_b - 1) * sum over c in block b of e_c^2,   v = sum_b v_b,   freedom = v^2 / sum_b v_b^2 / (m_b - 1)

    mean_g weighs each value by w_i, and n_g is the sum of these, usually 1 each.
    Clusters that share a group are of one block, and blocks are independent: v_b is the linearised variance of a sum of
    means (Cochran 1977, Eq. 6.13), freedom Welch & Satterthwaite's. With two groups, weights (1, -1) and a cluster per
    value this is Welch's t interval. Values that all agree within a block do not show how much they vary: every |e_c|
    is then at least that of a value that is off by `coarsest`.

    Args: values: finite, (n,). groups, clusters: whole numbers from 0, (n,). weights: (groups,), each group with a
    value. coarsest: the step of a value, such as half an image's share. confidence: in (0, 1). counts: w, above 0,
    (n,).
    Returns: `Gain`; low and high are NaN where a block has a single cluster, and all is NaN without values.
    Raises: ValueError for shapes that differ, and for a group without a value.
    """
    y, g, c, w = _checked(values, groups, clusters, counts)
    a = np.asarray(weights, np.float64)
    if not len(y):
        return Gain(np.nan, np.nan, np.nan, np.nan)
    sizes = np.bincount(g, w, minlength=len(a))
    if len(sizes) > len(a) or not sizes.all():
        raise ValueError(f"need a weight for each group and a value in each, got {len(a)} weights, sizes {sizes}")
    means = np.bincount(g, w * y) / sizes
    gain, share = float(a @ means), a[g] * w / sizes[g]
    errors = np.bincount(c, share * (y - means[g])).astype(np.float64)
    steps = coarsest * np.bincount(c, np.abs(share)).astype(np.float64)
    v, freedoms = _variances(errors, steps, _blocks(g, c), np.unique(c))
    total = float(v.sum())
    if not freedoms.all():
        return Gain(gain, np.nan, np.nan, np.nan)
    freedom = total**2 / float((v**2 / freedoms).sum()) if total > 0 else float(freedoms.sum())
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * np.sqrt(total)
    return Gain(gain, gain - reach, gain + reach, freedom)


def _checked(
    values: ArrayLike, groups: ArrayLike, clusters: ArrayLike, counts: ArrayLike | None
) -> tuple[Floats, Ints, Ints, Floats]:
    y, g, c = np.asarray(values, np.float64), np.asarray(groups, np.int64), np.asarray(clusters, np.int64)
    w = np.ones(y.shape) if counts is None else np.asarray(counts, np.float64)
    if y.ndim != 1 or not y.shape == g.shape == c.shape or not np.isfinite(y).all():
        raise ValueError(f"need finite values, groups and clusters of one shape (n,): {y.shape}, {g.shape}, {c.shape}")
    if w.shape != y.shape or not (w > 0).all():
        raise ValueError(f"need counts above 0 of the values' shape {y.shape}, got {w.shape}")
    return y, g, c, w


def _variances(errors: Floats, steps: Floats, blocks: Ints, clusters: Ints) -> tuple[Floats, Floats]:
    """Returns v_b and m_b - 1 of each block, float64 (blocks,). `blocks`: the block of each cluster."""
    labels, numbers = np.unique(blocks[clusters], return_inverse=True)
    squares = np.bincount(numbers, errors[clusters] ** 2)
    least = np.zeros(len(labels))
    np.maximum.at(least, numbers, steps[clusters] ** 2)
    count = np.bincount(numbers).astype(np.float64)
    return count / np.maximum(count - 1, 1) * np.maximum(squares, least), count - 1


def _blocks(groups: Ints, clusters: Ints) -> Ints:
    """Returns for each cluster the lowest number among the clusters connected to it by shared groups."""
    label = np.arange(int(clusters.max()) + 1)
    while True:
        least = np.full(int(groups.max()) + 1, len(label))
        np.minimum.at(least, groups, label[clusters])
        lower = label.copy()
        np.minimum.at(lower, clusters, least[groups])
        if (lower == label).all():
            return label
        label = lower
