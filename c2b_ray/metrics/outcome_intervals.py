"""How certain HIT − FH is, and its difference between two methods: intervals and p-values over clusters of outcomes.

Knows outcomes as numbers, 1 (HIT), −1 (FH) and 0 (MISS), and the cluster of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from c2b_ray.metrics.scores import Floats

__all__ = ["Difference", "outcome_difference"]

AT_ONCE = 4_000_000
"""The most bootstrap weights that are held in memory at a time."""

ALIKE = 1e-9
"""Draws that differ by less are all one value."""


class Difference(NamedTuple):
    """A difference of two methods: `value` in [−2, 2] with its limits, and the two-sided p-value of the null that both
    are alike; NaN where a side has no biases."""

    value: float
    low: float
    high: float
    p_value: float


def outcome_difference(
    outcomes: tuple[ArrayLike, ArrayLike],
    clusters: tuple[ArrayLike, ArrayLike],
    confidence: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
    most: float = 2.0,
) -> Difference:
    """(HIT − FH of the first) − (HIT − FH of the second), with a percentile bootstrap over clusters.

    HIT − FH is the mean of outcomes. Clusters (a classifier and a class, say) are drawn with replacement, the same for
    both sides, for biases of one cluster share images and mistakes: Efron & Tibshirani 1993, section 8. Percentiles
    are expanded for few clusters (`_of_draws`).

    Where all clusters differ alike, by v, so do all draws, which shows nothing of clusters that were not seen. By
    Clopper & Pearson 1934, at most a share u of them differs otherwise, by anything in [−most, most]:

        [v − u * (most + v), v + u * (most − v)],   u = 1 − ((1 − confidence) / 2)^(1/m),   m = (Σn)² / Σn²

    where m, the number of clusters of n biases each, is smaller for unequal ones (Kish 1965). Draws that differ know
    only clusters that were seen, too: the limits hold those of `_with_unseen`.

    Args: outcomes: of the two sides, each (m,) of 1, −1, 0; clusters: the cluster of each, whole numbers ≥ 0; most: the
    largest difference of a cluster: 2, but 1 where the second side is always 0, for the interval of one HIT − FH.
    Where so few clusters differ that flipping their signs gives no p-value below 1 - confidence, the limits reach to 0.
    p is the level at which the interval reaches 0, and at least 2^(1 − m) where m clusters differ, as of sign flips.
    Returns: limits and p NaN where fewer than two clusters hold biases, or where the draws leave a side empty.
    """
    sides = _Sides.of(outcomes, clusters)
    drawn = sides.drawn(draws, seed)
    if not len(drawn):
        return Difference(sides.value, np.nan, np.nan, np.nan)
    least = 2.0 ** (1 - sides.differ)
    if np.ptp(drawn) < ALIKE:
        low, high, p_value = _of_equal_draws(sides.value, sides.worth, most, confidence)
    else:
        low, high, p_value = _of_unequal_draws(sides, drawn, most, confidence)
    if least > 1 - confidence:
        low, high = min(low, 0.0), max(high, 0.0)
    return Difference(sides.value, float(low), float(high), float(min(1.0, max(p_value, least))))


Limits = tuple[float, float, float]
"""Low, high, and the p-value."""


def _of_unequal_draws(sides: _Sides, drawn: Floats, most: float, confidence: float) -> Limits:
    """Returns the wider of two intervals: by the draws, and with clusters that were not seen."""
    one, other = _of_draws(drawn, sides.worth, confidence), _with_unseen(sides, most, confidence)
    return min(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])


def _with_unseen(sides: _Sides, most: float, confidence: float) -> Limits:
    """Returns Student's limits and p with two more clusters: one that does not differ, and one that differs half for
    and half against, by the largest difference seen. Agresti & Min 2005 do so for a difference of paired rates.

    Percentiles alone held the truth in .71 to .88 of samples of 4 and 8 clusters of rare outcomes; both together in .92
    or more of 4 to 40 clusters.
    """
    m, (apart, residual) = sides.worth, sides.apart()
    whole, freedom = m + 2, m + 1
    middle = m * sides.value / whole
    variance = (m * (residual**2).mean() + m * sides.value**2 + (apart[apart != 0] ** 2).mean()) / whole - middle**2
    error = float(np.sqrt(variance / whole))
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    p_value = float(2 * stdtr(freedom, -abs(middle) / error))
    return max(-most, middle - reach), min(most, middle + reach), p_value


def _of_draws(drawn: Floats, worth: float, confidence: float) -> Limits:
    """Returns limits and p by percentiles that are expanded as Student's t is wider than the normal distribution
    (Hesterberg 2015, section 5.3): at Φ(−sqrt(m/(m − 1)) * t of m − 1 degrees of freedom at (1 − confidence)/2).

    Of 4 to 12 clusters plain ones held the truth in as little as .76 of samples, these in .87 or more.
    """
    wider = float(np.sqrt(worth / (worth - 1)))
    edge = float(ndtr(wider * stdtrit(worth - 1, (1 - confidence) / 2)))
    low, high = np.quantile(drawn, [edge, 1 - edge])
    beyond = (min((drawn <= 0).sum(), (drawn >= 0).sum()) + 1) / (len(drawn) + 1)
    return float(low), float(high), float(2 * stdtr(worth - 1, ndtri(min(beyond, 0.5)) / wider))


def _of_equal_draws(value: float, worth: float, most: float, confidence: float) -> Limits:
    unseen = 1 - ((1 - confidence) / 2) ** (1 / worth)
    p_value = 2 * (most / (most + abs(value))) ** worth
    return value - unseen * (most + value), value + unseen * (most - value), p_value


@dataclass(frozen=True)
class _Sides:
    """By cluster and side, the sum of outcomes and their number: floats (2, clusters), of clusters that hold any."""

    sums: Floats
    sizes: Floats

    @classmethod
    def of(cls, outcomes: tuple[ArrayLike, ArrayLike], clusters: tuple[ArrayLike, ArrayLike]) -> _Sides:
        numbers = [np.asarray(c, np.int64) for c in clusters]
        count = 1 + max(int(np.max(c, initial=-1)) for c in numbers)
        sums = np.stack(
            [
                np.bincount(number, np.asarray(some, np.float64), minlength=count)
                for some, number in zip(outcomes, numbers, strict=True)
            ]
        )
        sizes = np.stack([np.bincount(number, minlength=count).astype(np.float64) for number in numbers])
        held = sizes.sum(axis=0) > 0
        return cls(np.asarray(sums[:, held], np.float64), sizes[:, held])

    @cached_property
    def value(self) -> float:
        first, second = _ratio(self.sums.sum(axis=1), self.sizes.sum(axis=1))
        return float(first - second)

    @cached_property
    def differ(self) -> int:
        """The number of clusters that differ between the sides."""
        return int(((self.sums[0] != self.sums[1]) | (self.sizes[0] != self.sizes[1])).sum())

    @cached_property
    def worth(self) -> float:
        """How many clusters of equal size they are worth."""
        of_both = self.sizes.sum(axis=0)
        return float(_ratio(of_both.sum() ** 2, (of_both**2).sum()))

    def apart(self) -> tuple[Floats, Floats]:
        """Returns how much each cluster contributes to the difference, whose mean the difference is; and the rest that
        the sides' means leave of it. Both are scaled to `worth` clusters."""
        whole = self.sizes.sum(axis=1, keepdims=True)
        means = self.sums.sum(axis=1, keepdims=True) / whole
        scale = np.sqrt(self.worth * self.sums.shape[1])
        one, other = self.sums / whole
        rest, other_rest = (self.sums - means * self.sizes) / whole
        return scale * (one - other), scale * (rest - other_rest)

    def drawn(self, draws: int, seed: int) -> Floats:
        """Returns the differences in bootstrap samples of clusters: none where fewer than two clusters hold biases, or
        a side is empty."""
        many = self.sums.shape[1]
        if many < 2 or np.isnan(self.value):
            return np.zeros(0)
        random = np.random.default_rng(seed)
        differences = []
        for start in range(0, draws, some := max(1, AT_ONCE // many)):
            weights = random.multinomial(many, np.full(many, 1 / many), size=min(some, draws - start))
            first, second = (_ratio(weights @ s, weights @ n) for s, n in zip(self.sums, self.sizes, strict=True))
            differences.append(first - second)
        drawn = np.concatenate(differences)
        kept: Floats = drawn[~np.isnan(drawn)]
        return kept


def _ratio(numerator: ArrayLike, denominator: ArrayLike) -> Floats:
    top, bottom = np.asarray(numerator, np.float64), np.asarray(denominator, np.float64)
    ratio: Floats = np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
    return ratio
