"""Failure rates of two classifiers: how far apart they are, and whether they differ, for fixed numbers of draws.

Two classifiers may have answered about the same images, and then their failures need not be independent. Where they
fail on the same ones, a difference is surer than of independent images; where one fails on what the other has right, it
is less sure. Counts do not tell which, so everything here covers the worst case, failures that never coincide. Where
failures are rare this costs nothing.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from c2b_ray.metrics.rates import RateEstimate, Trials, failure_rates, rate_ratios
from c2b_ray.metrics.scores import Floats


def rate_differences(a: Trials, b: Trials, confidence: float = 0.95) -> RateEstimate:
    """Computes the rate of B minus the rate of A, with limits.

    low = d - sqrt(x^2 + y^2 + 2*c*x*y),  x = p_b - low_b,  y = high_a - p_a;  high likewise, with the other limits

    Newcombe 1998 (Statistics in Medicine 17: 2635-2650, method 10, for pairs), with the mid-P limits of `failure_rates`
    in place of Wilson's, which are wide at rare failures; -c is the least correlation that the rates allow.

    Args: a, b: `Trials` of one shape; confidence: in (0, 1).
    Returns: `RateEstimate` of that shape in [-1, 1]; NaN within (-1, 1) where a side has no draws.
    Raises: ValueError where shapes differ, or for the confidence.
    """
    _check(a, b)
    of_a, of_b = failure_rates(a.failures, a.draws, confidence), failure_rates(b.failures, b.draws, confidence)
    difference, apart = of_b.value - of_a.value, _most_apart(a, b)
    low = difference - _together(of_b.value - of_b.low, of_a.high - of_a.value, apart)
    high = difference + _together(of_b.high - of_b.value, of_a.value - of_a.low, apart)
    known = np.isfinite(difference)
    return RateEstimate(
        difference, np.where(known, np.maximum(low, -1.0), -1.0), np.where(known, np.minimum(high, 1.0), 1.0)
    )


def rate_difference_ratios(a: Trials, b: Trials, confidence: float = 0.95) -> RateEstimate:
    """Computes the rate of B over the rate of A. Uses `rate_ratios`, whose limits are moved apart, in logarithms, as
    those of `rate_differences` are: by sqrt(1 + 2*c*s_a*s_b/(s_a^2 + s_b^2)), s the rates' coefficients of variation.
    """
    _check(a, b)
    ratios = rate_ratios(b, a, confidence)
    spread_a, spread_b = _variation(a), _variation(b)
    wider = _together(spread_a, spread_b, _most_apart(a, b)) / np.hypot(spread_a, spread_b)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = (ratios.value * (limit / ratios.value) ** wider for limit in (ratios.low, ratios.high))
    usual = np.isfinite(ratios.value) & (ratios.value > 0)
    return RateEstimate(ratios.value, np.where(usual, low, ratios.low), np.where(usual, high, ratios.high))


def rate_difference_p_values(a: Trials, b: Trials) -> Floats:
    """Computes two-sided p-values of "both fail equally often".

    Of f failures in all, those of B are binomial(f, n_b/(n_a + n_b)) where failures are rare or never coincide, and
    vary less otherwise: twice the smaller tail, at most 1 (Przyborowski & Wilenski 1940). Where more than half of all
    draws fail, successes are counted instead. On the same images, of which f_a and f_b are failed, McNemar's test of
    the images that one alone fails has the same difference among fewer, so that its p-value is smaller.

    Args: a, b: `Trials` of one shape. Returns: float64 of that shape in (0, 1]; 1 where a side has no draws.
    Raises: ValueError where shapes differ.
    """
    _check(a, b)
    draws = np.maximum(a.draws + b.draws, 1.0)
    mostly = 2 * (a.failures + b.failures) > draws
    of_a, of_b = (np.where(mostly, side.draws - side.failures, side.failures) for side in (a, b))
    share = b.draws / draws
    below, above = binom.cdf(of_b, of_a + of_b, share), binom.sf(of_b - 1, of_a + of_b, share)
    known = (a.draws > 0) & (b.draws > 0)
    p_values: Floats = np.where(known, np.minimum(1.0, 2 * np.minimum(below, above)), 1.0)
    return p_values


def _most_apart(a: Trials, b: Trials) -> Floats:
    """Returns how far below 0 the correlation of both rates can be: with failures, or successes, that never coincide on
    the images that both may share."""
    p, q = ((side.failures + 0.5) / (side.draws + 1) for side in (a, b))
    odds = p * q / ((1 - p) * (1 - q))
    shared = np.minimum(a.draws, b.draws) / np.maximum(np.maximum(a.draws, b.draws), 1.0)
    apart: Floats = np.sqrt(np.minimum(odds, 1 / odds) * shared)
    return apart


def _variation(side: Trials) -> Floats:
    p = (side.failures + 0.5) / (side.draws + 1)
    variation: Floats = np.sqrt((1 - p) / (p * np.maximum(side.draws, 1.0)))
    return variation


def _together(x: Floats, y: Floats, apart: Floats) -> Floats:
    both: Floats = np.sqrt(x * x + y * y + 2 * apart * x * y)
    return both


def _check(a: Trials, b: Trials) -> None:
    if a.draws.shape != b.draws.shape:
        raise ValueError(f"a has shape {a.draws.shape}, b has shape {b.draws.shape}")
