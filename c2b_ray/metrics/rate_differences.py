"""Two failure rates: how far apart they are, and whether they differ. Both are from fixed numbers of draws."""

from __future__ import annotations

import numpy as np
from scipy.stats import fisher_exact

from c2b_ray.metrics.rates import RateEstimate, Trials, failure_rates
from c2b_ray.metrics.scores import Floats


def rate_differences(a: Trials, b: Trials, confidence: float = 0.95) -> RateEstimate:
    """Rate of B minus rate of A, with limits.

    low = d - sqrt((p_b - low_b)^2 + (high_a - p_a)^2),  high = d + sqrt((high_b - p_b)^2 + (p_a - low_a)^2)

    Newcombe 1998 (method 10), with the mid-P limits of `failure_rates` in the place of Wilson's, which are wide at rare
    failures. Of images that both share, rates go up and down together, and the limits are wider than need be.

    Args: a, b: `Trials` of one shape; confidence: in (0, 1).
    Returns: `RateEstimate` of that shape in [-1, 1]; NaN within (-1, 1) where a side has no draws.
    Raises: ValueError where shapes differ, or for the confidence.
    """
    _check(a, b)
    of_a, of_b = failure_rates(a.failures, a.draws, confidence), failure_rates(b.failures, b.draws, confidence)
    difference = of_b.value - of_a.value
    low = difference - np.hypot(of_b.value - of_b.low, of_a.high - of_a.value)
    high = difference + np.hypot(of_b.high - of_b.value, of_a.value - of_a.low)
    known = np.isfinite(difference)
    return RateEstimate(difference, np.where(known, low, -1.0), np.where(known, high, 1.0))


def rate_difference_p_values(a: Trials, b: Trials) -> Floats:
    """Two-sided p-values of "both fail equally often", by Fisher's exact test.

    Args: a, b: `Trials` of one shape. Returns: float64 of that shape in (0, 1]; 1 where a side has no draws.
    Raises: ValueError where shapes differ.
    """
    _check(a, b)
    tables = np.stack([a.failures, a.draws - a.failures, b.failures, b.draws - b.failures], axis=-1).reshape(-1, 2, 2)
    values = [fisher_exact(table.astype(np.int64)).pvalue if table.sum(axis=1).all() else 1.0 for table in tables]
    return np.array(values, np.float64).reshape(a.draws.shape)


def _check(a: Trials, b: Trials) -> None:
    if a.draws.shape != b.draws.shape:
        raise ValueError(f"a has shape {a.draws.shape}, b has shape {b.draws.shape}")
