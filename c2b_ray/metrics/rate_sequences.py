"""Limits of failure rates, and of ratios of them, that hold at all times at once, so drawing may stop on seeing them.

Knows sums of failures and draws only: neither their order nor how draws were allotted matters. Limits for numbers of
draws that were fixed beforehand are narrower: `rates` has those.

With a prior Beta(a, b) of the rate, M(p) = B(f + a, n - f + b)/B(a, b) / (p^f * (1 - p)^(n - f)) is a martingale of
mean 1 at the true p, whatever decides when the next draw is made, and P(it ever reaches 1/alpha) <= alpha (Ville 1939).
The rates with M(p) < 1/alpha are a confidence sequence (Robbins 1970). The product of two arms' M is a martingale too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, xlog1py, xlogy

from c2b_ray.metrics.levels import checked_levels
from c2b_ray.metrics.rates import RateEstimate, Trials, restricted_rate
from c2b_ray.metrics.scores import Floats

__all__ = ["rate_sequence", "ratio_sequence"]

PRIOR = (0.1, 0.5)
"""Beta prior of a rate, nearly as heavy between 1e-6 and 1e-5 as between 1e-5 and 1e-4."""
HALVINGS = 60
FARTHEST = 60.0  # of a rate's or a ratio's logarithm


def rate_sequence(failures: ArrayLike, draws: ArrayLike, confidence: float = 0.95) -> RateEstimate:
    """Computes a failure rate with limits that hold, with probability `confidence`, after every draw.

    Args: failures, draws: whole numbers of one shape, totals so far; confidence: in (0, 1).
    Returns: `RateEstimate`, in [0, 1]; NaN within (0, 1) without draws. The rate itself, f/n, is biased where drawing
    stopped because of the outcomes: estimate rates from separate draws.
    Raises: ValueError as `failure_rates`.
    """
    checked_levels(confidence=confidence)
    trials = Trials.of(failures, draws)
    threshold = -np.log(1 - confidence)
    shape = trials.draws.shape
    start = np.log(np.maximum(trials.failures, 1e-6) / np.maximum(trials.draws, 1.0))

    def held(logs: Floats) -> Floats:
        kept: Floats = _log_martingale(trials, np.exp(np.minimum(logs, 0.0))) < threshold
        return kept

    low = np.exp(_edge(held, start, np.full(shape, -FARTHEST)))
    high = np.exp(_edge(held, start, np.zeros(shape)))
    low = np.where(trials.failures > 0, low, 0.0)
    return RateEstimate(trials.rates, low, np.where(trials.failures < trials.draws, high, 1.0))


def ratio_sequence(failed: Trials, baseline: Trials, confidence: float = 0.95) -> RateEstimate:
    """Computes the ratio of two failure rates with limits that hold, with probability `confidence`, after every draw.

    The limits enclose the ratios r for which some q has M(r*q) * M(q) < 1/alpha; the q with the least product is the
    most likely one.

    Args: failed, baseline: `Trials` of one shape, totals so far; confidence: in (0, 1).
    Returns: `RateEstimate`, 0 or more; (0, infinity) where nothing is known.
    Raises: ValueError where shapes differ, or for the confidence.
    """
    checked_levels(confidence=confidence)
    if failed.draws.shape != baseline.draws.shape:
        raise ValueError(f"failed has shape {failed.draws.shape}, baseline has shape {baseline.draws.shape}")
    threshold = -np.log(1 - confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = failed.rates / baseline.rates
    f1, f0 = np.maximum(failed.failures, 1e-6), np.maximum(baseline.failures, 1e-6)
    start = np.log(f1 / np.maximum(failed.draws, 1.0)) - np.log(f0 / np.maximum(baseline.draws, 1.0))

    def held(logs: Floats) -> Floats:
        ratio = np.exp(logs)
        q = restricted_rate(failed, baseline, ratio)
        both = _log_martingale(failed, ratio * q) + _log_martingale(baseline, q)
        kept: Floats = both < threshold
        return kept

    low = np.exp(_edge(held, start, np.full(start.shape, -FARTHEST)))
    high = np.exp(_edge(held, start, np.full(start.shape, FARTHEST)))
    low = np.where(failed.failures > 0, low, 0.0)
    return RateEstimate(value, low, np.where(baseline.failures > 0, high, np.inf))


def _log_martingale(trials: Trials, rate: Floats) -> Floats:
    a, b = PRIOR
    f, n = trials.failures, trials.draws
    likelihood = xlogy(f, rate) + xlog1py(n - f, -np.minimum(rate, 1.0))
    logs: Floats = betaln(f + a, n - f + b) - betaln(a, b) - likelihood
    return logs


def _edge(held: Callable[[Floats], Floats], inside: Floats, outside: Floats) -> Floats:
    """Finds by bisection where `held` ends between a point inside and one that may be outside."""
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        holds = held(middle)
        inside, outside = np.where(holds, middle, inside), np.where(holds, outside, middle)
    edge: Floats = outside
    return edge
