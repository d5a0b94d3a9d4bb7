"""Permutation p-values with tail approximation, and bootstrap weights.

Knows arrays of statistics; knows nothing of what they measure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import permutations

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, ndtri, stdtr

from c2b_ray.stats.scores import Floats

FEW = 10
LEAST_SAMPLED = 5
"""Of fewer items in a group, a bootstrap says little: of one item, every sample has the same score."""


def upper_tail(observed: ArrayLike, permuted: ArrayLike) -> Floats:
    """Computes one-sided p-values of statistics from their permuted values, also far below 1 / number of permutations.

    p = (1 + #{permuted >= observed}) / (1 + B);   where fewer than 10 are as large, the tail of the gamma distribution
    with the permuted values' mean, variance and skewness (Pearson III) instead, at most the former

    Winkler et al. 2016, "Faster permutation inference in brain imaging", section 2.5. A family of a thousand tests
    needs p-values of 1e-5, which B = 1000 cannot give by counting.

    Args: observed: shape (...,); permuted: shape (B, ...).
    Returns: float64 (...,) in (0, 1]; 1 where all permuted values are alike and the observed one is no larger. NaN
    where observed is NaN.
    """
    observed_values, permuted_values = np.asarray(observed, np.float64), np.asarray(permuted, np.float64)
    tolerance = 1e-12 * (1 + np.abs(observed_values))
    count = (permuted_values >= observed_values - tolerance).sum(axis=0)
    exact = (1.0 + count) / (1.0 + len(permuted_values))
    mean, spread = permuted_values.mean(axis=0), permuted_values.std(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        skewness = np.clip((((permuted_values - mean) / spread) ** 3).mean(axis=0), 1e-3, None)
        shape = 4 / skewness**2
        tail = scipy.stats.gamma.sf(shape + (observed_values - mean) / spread * np.sqrt(shape), shape)
    use = (count < FEW) & (spread > 0) & np.isfinite(tail)
    result = np.where(use, np.clip(np.minimum(np.where(use, tail, 1.0), exact), 1e-300, 1), exact)
    return np.where(np.isnan(observed_values), np.nan, result)


def bootstrap_weights(items: int, resamples: int, seed: int) -> Floats:
    """Draws how often each of `items` occurs in each bootstrap sample: float64 (resamples, items), every row summing to
    items."""
    random = np.random.default_rng(seed)
    return random.multinomial(items, np.full(items, 1 / items), size=resamples).astype(np.float64)


def difference_of(
    a: Floats, b: Floats, values: tuple[float, float], confidence: float, margin: float = 0.0
) -> tuple[float, float, float]:
    """Computes the interval and two-sided p-value of a difference of two statistics from their paired bootstrap
    replicates.

    (a - b) -+ z * s,   s the standard deviation of a*_i - b*_i
    p = P(Z > (|a - b| - margin) / s) + P(Z > (|a - b| + margin) / s)

    Near 0, statistics that are never negative scatter more in bootstrap samples than in truth; the test is then
    conservative.

    Args: a, b: shape (B,), replicates of the same samples; values: both statistics; confidence: in (0, 1); margin: at
        least 0. p is of the hypothesis that they differ by no more than this.
    Returns: (low, high, p_value); p is 1 where both are alike in every sample, NaN where either is NaN.
    """
    change = a - b
    is_finite = np.isfinite(change)
    if is_finite.sum() < 2:
        return float("nan"), float("nan"), float("nan")
    return normal_difference(values[0] - values[1], float(change[is_finite].std(ddof=1)), confidence, margin)


def independent_difference_of(
    a: Floats, b: Floats, values: tuple[float, float], confidence: float, margin: float = 0.0
) -> tuple[float, float, float]:
    """Like `difference_of`, for replicates of two independent sets of samples: s^2 = var(a*) + var(b*)."""
    finite_a, finite_b = a[np.isfinite(a)], b[np.isfinite(b)]
    if min(len(finite_a), len(finite_b)) < 2:
        return float("nan"), float("nan"), float("nan")
    return normal_difference(
        values[0] - values[1], float(np.hypot(finite_a.std(ddof=1), finite_b.std(ddof=1))), confidence, margin
    )


def normal_difference(gap: float, spread: float, confidence: float, margin: float) -> tuple[float, float, float]:
    if not np.isfinite(gap):
        return float("nan"), float("nan"), float("nan")
    half_width = float(scipy.stats.norm.ppf((1 + confidence) / 2)) * spread
    if spread:
        p_value = float(
            scipy.stats.norm.sf((abs(gap) - margin) / spread) + scipy.stats.norm.sf((abs(gap) + margin) / spread)
        )
    else:
        p_value = 1.0 if abs(gap) <= margin else 0.0
    return gap - half_width, gap + half_width, p_value


# Whether two estimates differ: by their bootstrap samples, or by their intervals where samples say little.


@dataclass(frozen=True)
class SampledEstimate:
    """A statistic, its interval, and its values in bootstrap samples: all NaN where these say little of it."""

    value: float
    low: float
    high: float
    replicates: Floats

    @property
    def told(self) -> bool:
        return bool(np.isfinite(self.replicates).any())


def difference_of_estimates(
    a: SampledEstimate, b: SampledEstimate, confidence: float, margin: float = 0.0, *, paired: bool = True
) -> tuple[float, float, float]:
    """Computes the interval and two-sided p-value of a - b.

    By bootstrap samples (`resampling.difference_of`; of independent samples where not `paired`). Where those of either
    say little, by both intervals:

    low = a - b - sqrt((a - a_low)^2 + (b_high - b)^2),   high = a - b + sqrt((a_high - a)^2 + (b - b_low)^2)

    Zou & Donner 2008 (MOVER), for independent estimates; conservative for two that err alike, such as those of the same
    items. p is the normal one with the half-width towards the other estimate.

    Args: both estimates, with intervals of this confidence in (0, 1); margin: at least 0. p is of the hypothesis that
    they differ by no more than this.
    Returns: (low, high, p_value); NaN where either value is NaN.
    """
    values = (a.value, b.value)
    if a.told and b.told:
        difference = difference_of if paired else independent_difference_of
        return difference(a.replicates, b.replicates, values, confidence, margin)
    gap = a.value - b.value
    lower_distance = float(np.hypot(a.value - a.low, b.high - b.value))
    upper_distance = float(np.hypot(a.high - a.value, b.value - b.low))
    spread = (lower_distance if gap > 0 else upper_distance) / float(scipy.stats.norm.ppf((1 + confidence) / 2))
    p_value = normal_difference(gap, spread, confidence, margin)[2]
    return (
        (gap - lower_distance, gap + upper_distance, p_value) if np.isfinite(p_value) else (p_value, p_value, p_value)
    )


# Spearman's rank correlation with an interval and a p-value that holds for few pairs.


MOST_EXACT = 8
"""The largest number of pairs for which all orders are tried; above it random orders are drawn."""
DRAWS = 19_999
LEAST = 3
SAME = 1e-12
"""Values that differ by less are ties: 0.1 + 0.2 + 0.3 is 0.3 + 0.2 + 0.1."""


@dataclass(frozen=True)
class RankCorrelation:
    """Correlations with limits and p-values, arrays of one shape. `p_value`: by permutation, two-sided; `t_p_value`: by
    Student's t, as in the paper."""

    rho: Floats
    low: Floats
    high: Floats
    p_value: Floats
    t_p_value: Floats


def rank_correlation(x: ArrayLike, y: ArrayLike, confidence: float = 0.95) -> RankCorrelation:
    """Like `rank_correlations`, for one pair of variables, each (items,); the result's arrays have no axes."""
    correlations = rank_correlations(np.asarray(x)[None], np.asarray(y)[None], confidence)
    return RankCorrelation(*(getattr(correlations, name)[0, 0] for name in RankCorrelation.__dataclass_fields__))


def rank_correlations(x: ArrayLike, y: ArrayLike, confidence: float = 0.95) -> RankCorrelation:
    """Computes Spearman's rho of every row of x with every row of y.

    rho = Pearson's correlation of the ranks (ties, to `SAME`, share their mean rank)

    Ramos et al. 2025, section 4 and Table 2. p: the share of rearrangements of y's items with an |rho| at least as
    large: all orders up to 8 items, else 19,999 random ones and rho itself; where fewer than 10 of these are as large,
    a symmetric beta of rho's own variance and fourth moment over all orders (`_tail`), at most the former. Student's t
    is no such tail: of 10 models in perfect order it gives 0, where 2/10! is right. The interval is Fisher's,
    tanh(atanh(rho) -+ z * s), with s^2 = (1 + rho^2/2)/(n - 3) (Bonett & Wright 2000); it holds for items drawn at
    random from more like them.

    Args: x (variables, items), y (others, items), finite; confidence in (0, 1).
    Returns: `RankCorrelation`, arrays (variables, others). NaN where a row is constant or there are fewer than 3 items;
    the limits are -1 and 1 with 3 items.
    Raises: ValueError for values that are not finite, or unequal numbers of items.
    """
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ValueError(f"need (variables, items) and (others, items), got {a.shape} and {b.shape}")
    if not np.isfinite(a).all() or not np.isfinite(b).all():
        raise ValueError("values must be finite; leave items without one out first")
    items = a.shape[1]
    if items < LEAST:
        undefined = np.full((len(a), len(b)), np.nan)
        return RankCorrelation(undefined, undefined, undefined, undefined, undefined)
    u, v = _standardised(a), _standardised(b)
    rho = np.clip(u @ v.T, -1, 1)
    low, high = _interval(rho, items, confidence)
    return RankCorrelation(rho, low, high, _permutation(u, v, rho), _student(rho, items))


def _standardised(values: Floats) -> Floats:
    """Returns ranks with mean 0 and length 1; NaN where all are tied."""
    ranks = scipy.stats.rankdata(_levels(values), axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    length = np.sqrt((ranks**2).sum(axis=1, keepdims=True))
    result: Floats = np.divide(ranks, length, out=np.full_like(ranks, np.nan), where=length > 0)
    return result


def _levels(values: Floats) -> NDArray[np.int64]:
    """Numbers the distinct values of each row, the smallest 0; values that float noise tells apart are one."""
    order = np.argsort(values, axis=1)
    rises = np.diff(np.take_along_axis(values, order, axis=1), axis=1, prepend=-np.inf) > SAME
    result = np.empty(values.shape, np.int64)
    np.put_along_axis(result, order, np.cumsum(rises, axis=1) - 1, axis=1)
    return result


def _interval(rho: Floats, items: int, confidence: float) -> tuple[Floats, Floats]:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence} must lie strictly between 0 and 1")
    if items == LEAST:
        return np.where(np.isnan(rho), np.nan, -1.0), np.where(np.isnan(rho), np.nan, 1.0)
    half_width = ndtri((1 + confidence) / 2) * np.sqrt((1 + rho**2 / 2) / (items - 3))
    centre = np.arctanh(np.clip(rho, -1 + 1e-12, 1 - 1e-12))
    # Few items in perfect order are no proof of a perfect order: the centre is at most that of one swap short of it.
    largest = np.arctanh(1 - 6 / (items * (items**2 - 1)))
    bounded = np.clip(centre, -largest, largest)
    low, high = np.tanh(bounded - half_width), np.tanh(bounded + half_width)
    return np.minimum(low, rho), np.maximum(high, rho)


def _student(rho: Floats, items: int) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(rho) * np.sqrt((items - 2) / np.maximum(1 - rho**2, 0.0))
    result: Floats = 2 * stdtr(items - 2, -t)
    return np.where(np.abs(rho) > 1 - 1e-12, 0.0, result)


def _tail(u: Floats, v: Floats, rho: Floats) -> Floats:
    """Two-sided p-values from a symmetric beta on [-c, c] with E rho^2 = 1/(n - 1) and, over all orders,

    E rho^4 = 3/(n^2 - 1) * (1 + (n - 2)(n - 3)/(3 n (n - 1)^2) * g(u) g(v)),   g = k_4/k_2^2 (Fisher's k-statistics)

    Pitman 1937, part II. Below 1e-3 it is above the exact p (2 times at 1e-4, 5 times at 1e-5, of 13 untied items).
    """
    n = u.shape[1]
    shapes = ((_excess(u)[:, None] * _excess(v)) * (n - 2) * (n - 3) / (3 * n * (n - 1) ** 2) + 1) * 3 / (n**2 - 1)
    kurtosis = np.clip(shapes * (n - 1) ** 2, 1.01, 2.99)
    shape = (3 * kurtosis - 3) / (6 - 2 * kurtosis)
    bound = np.sqrt((2 * shape + 1) / (n - 1))
    result: Floats = 2 * betainc(shape, shape, np.maximum(1 - np.abs(rho) / bound, 0) / 2)
    return result


def _excess(x: Floats) -> Floats:
    """k_4/k_2^2 of rows of mean 0 and length 1."""
    n = x.shape[1]
    fourth = (x**4).sum(axis=1)
    result: Floats = (n - 1) * (n * (n + 1) * fourth - 3 * (n - 1)) / ((n - 2) * (n - 3))
    return result


def _permutation(u: Floats, v: Floats, rho: Floats) -> Floats:
    items = u.shape[1]
    orders, exact = _orders(items)
    tail = rho if exact else _tail(u, v, rho)
    result = np.full(rho.shape, np.nan)
    for column, v_row in enumerate(v):
        permuted = np.abs(v_row[orders] @ u.T)  # (orders, variables)
        count = (permuted >= np.abs(rho[:, column]) - 1e-9).sum(axis=0)
        p = count / len(orders) if exact else (count + 1) / (len(orders) + 1)
        if not exact:
            p = np.where(count < FEW, np.minimum(p, tail[:, column]), p)
        result[:, column] = np.where(np.isnan(rho[:, column]), np.nan, p)
    return result


@cache
def _orders(items: int) -> tuple[np.ndarray[tuple[int, int], np.dtype[np.int64]], bool]:
    if items <= MOST_EXACT:
        return np.array(list(permutations(range(items))), np.int64), True
    random = np.random.default_rng(items)
    return np.argsort(random.random((DRAWS, items)), axis=1), False
