"""Balanced accuracy of a classifier of several values, with an interval over groups of images.

Images of one prompt share what makes them easy or hard, so prompts are the sampling unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from c2b_ray.stats.distances import clustered_rate
from c2b_ray.stats.roots import checked_levels
from c2b_ray.stats.scores import Floats, Ints


@dataclass(frozen=True)
class BalancedAccuracy:
    """`value` with the limits of its interval; `chance`: the balanced accuracy of guessing, 1 / values. NaN without any
    image."""

    value: float
    low: float
    high: float
    chance: float


def balanced_accuracy(
    truth: ArrayLike, answers: ArrayLike, groups: ArrayLike, values: int, confidence: float = 0.95
) -> BalancedAccuracy:
    """Computes the mean over values of the share of a value's images that are classified correctly.

    mean over the values v that occur of  #(answer = v and truth = v) / #(truth = v)

    (balanced accuracy, Brodersen et al. 2010): a rate over images of which each value has the same weight in all, with
    the interval of `distances.clustered_rate`, groups for captions. Chance is 1 over the number of values that occur.
    Percentiles of a bootstrap over groups were a point where all images of 4 to 25 groups were right, and held an
    accuracy of .99 in .14 to .69 of samples.

    Args: truth, answers: whole numbers in [0, values), (images,). groups: the group of each image, (images,).
    Returns: all in [0, 1]; 1: every image right. NaN where there is no image.
    Raises: ValueError for shapes that differ, numbers out of range, or the confidence.
    """
    t, a, g = (np.asarray(x, np.int64) for x in (truth, answers, np.unique(np.asarray(groups), return_inverse=True)[1]))
    if not t.shape == a.shape == g.shape or t.ndim != 1:
        raise ValueError(f"need truth, answers and groups of one shape (images,): {t.shape}, {a.shape}, {g.shape}")
    if values < 1 or ((t < 0) | (t >= values) | (a < 0) | (a >= values)).any():
        raise ValueError(f"truth and answers must lie in [0, {values})")
    checked_levels(confidence=confidence)
    if not len(t):
        nan = float("nan")
        return BalancedAccuracy(nan, nan, nan, 1 / values)
    images_of_value = np.bincount(t, minlength=values)
    present = int((images_of_value > 0).sum())
    weight = len(t) / present / images_of_value[t]  # each value has the same weight in all
    right, total = (np.bincount(g, weight * counted) for counted in (t == a, np.ones(len(t))))
    estimate = clustered_rate(right, total, confidence)
    return BalancedAccuracy(float(estimate.value), float(estimate.low), float(estimate.high), 1 / present)


# How far the means of some groups lie above those of others, where the sampling unit is a cluster of values.
#
# A search returns several prompts at once, and one prompt of a language model covers all values of an attribute. Such
# prompts err together, so an interval that treats each as independent is too narrow.


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
    margin = float(stdtrit(freedom, (1 + confidence) / 2)) * np.sqrt(total)
    return Gain(gain, gain - margin, gain + margin, freedom)


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
    floor = np.zeros(len(labels))
    np.maximum.at(floor, numbers, steps[clusters] ** 2)
    count = np.bincount(numbers).astype(np.float64)
    return count / np.maximum(count - 1, 1) * np.maximum(squares, floor), count - 1


def _blocks(groups: Ints, clusters: Ints) -> Ints:
    """Returns for each cluster the lowest number among the clusters connected to it by shared groups."""
    label = np.arange(int(clusters.max()) + 1)
    while True:
        lowest = np.full(int(groups.max()) + 1, len(label))
        np.minimum.at(lowest, groups, label[clusters])
        lower = label.copy()
        np.minimum.at(lower, clusters, lowest[groups])
        if (lower == label).all():
            return label
        label = lower
