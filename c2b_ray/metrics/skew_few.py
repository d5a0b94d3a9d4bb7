"""Limits of MaxSkew where a group has few items, which resampling these few does not show.

Knows ratios of shares and counts of items.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from c2b_ray.metrics.resampling import LEAST_SAMPLED
from c2b_ray.metrics.scores import Floats

__all__ = ["FEW", "with_few"]

FEW = LEAST_SAMPLED
"""With fewer items in a group, its limits are widened."""


def with_few(
    limits: tuple[float, float], ratios: Floats, of: tuple[Floats, Floats], part: float, confidence: float
) -> tuple[float, float]:
    """Widens the limits of a mean MaxSkew to what few items leave open about their group's ratios.

    A group's ratio f/f' is p/s, p the chance that one of its items is in the top k, s = k over all items. By Clopper &
    Pearson 1934, m items that are in a share x of the top k's have p between the quantiles of

        Beta(m * x, m - m * x + 1) and Beta(m * x + 1, m - m * x),   at (1 - confidence) / 2 over the number of groups

    with fewer than `FEW` items; x is a mean over rankings, which varies no more than a single one does. The lower limit
    has these groups' ratios as near to 1 as p allows, the same in all rankings, and the others' shares fill up what is
    left; the upper limit has them as large as possible, or the p spread over rankings so that the mean log is largest:
    log(p/s), or from 0 to p' = e * s in a share p/p' of them. No limit is above log(1/s).

    Args: limits: by resampling; ratios: (rankings, groups); of: each group's number of items, at least 1 (of different
    pictures, where items are copies), and its share of all items; part: k over all items; confidence.
    Returns: (low, high), low >= 0; the limits as they are where no group has few items.
    """
    counts, ideal = of
    few = counts < FEW
    if not few.any():
        return limits
    low, high = _chances(ratios[:, few].mean(axis=0) * part * counts[few], counts[few], confidence)
    lowest = _lowest(ratios, ideal, few, np.clip(1.0, low / part, high / part))
    largest = np.minimum(high / part, 1 / ideal[few])
    top = min(np.e * part, 1.0)
    spread = float(np.max(high / top * np.log(top / part), where=high < top, initial=0.0))
    highest = max(_mean_log(ratios[:, ~few], largest), spread)
    most = max(float(-np.log(part)), _mean_log(ratios, np.zeros(1)))  # the value itself may be larger by a last digit
    return max(0.0, min(limits[0], lowest)), min(max(limits[1], highest), most)


def _lowest(ratios: Floats, ideal: Floats, few: NDArray[np.bool_], nearest: Floats) -> float:
    """Returns the skew where groups of few items have the ratios `nearest`, and the others share what is left as they
    do."""
    left = max(0.0, 1 - float((nearest * ideal[few]).sum()))
    shares = ratios[:, ~few] * ideal[~few]
    held = shares.sum(axis=1, keepdims=True)
    parts = np.where(held > 0, shares, ideal[~few]) / np.where(held > 0, held, max(ideal[~few].sum(), 1e-12))
    return _mean_log(parts * left / ideal[~few], nearest)


def _chances(shown: Floats, counts: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Returns the limits of the chance of each group's items, of which `shown` are in the top k on average."""
    edge, shown = (1 - confidence) / 2 / len(counts), np.clip(shown, 0, counts)
    none, every = shown < 1e-9, shown > counts - 1e-9
    low = np.where(none, 0.0, beta.ppf(edge, np.where(none, 1, shown), counts - shown + 1))
    high = np.where(every, 1.0, beta.ppf(1 - edge, shown + 1, np.where(every, 1, counts - shown)))
    return low, high


def _mean_log(many: Floats, few: Floats) -> float:
    """Averages over rankings the log of the largest ratio: of groups; many: (rankings, groups)."""
    largest = np.maximum(many.max(axis=1, initial=0.0), few.max())
    return float(np.log(np.maximum(largest, 1e-12)).mean())
