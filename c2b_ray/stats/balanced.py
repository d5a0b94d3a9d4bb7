"""Balanced accuracy of a classifier of several values, with an interval over groups of images.

Images of one prompt share what makes them easy or hard, so prompts are the sampling unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.stats.roots import checked_levels
from c2b_ray.stats.scores import Floats

__all__ = ["BalancedAccuracy", "balanced_accuracy"]

RESAMPLES = 2000


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

    (balanced accuracy, Brodersen et al. 2010), with the percentile interval of a bootstrap over groups (Efron &
    Tibshirani 1993, section 13.3), from a fixed seed. Chance is 1 over the number of values that occur.

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
    right, total = (np.zeros((g.max() + 1, values)) for _ in range(2))
    np.add.at(right, (g, t), t == a)
    np.add.at(total, (g, t), 1.0)
    there = total.sum(axis=0) > 0
    drawn = np.random.default_rng(0).multinomial(len(total), np.full(len(total), 1 / len(total)), size=RESAMPLES)
    resampled = _mean_recall((drawn @ right).astype(np.float64), (drawn @ total).astype(np.float64))
    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    value = float(_mean_recall(right.sum(axis=0), total.sum(axis=0)))
    return BalancedAccuracy(value, float(min(low, value)), float(max(high, value)), float(1 / there.sum()))


def _mean_recall(right: Floats, total: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        recall = np.where(total > 0, right / total, np.nan)
    result: Floats = np.nanmean(recall, axis=-1)
    return result
