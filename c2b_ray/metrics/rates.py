"""Rates of rare events: how often a classifier fails, with limits.

Knows counts of failures and of draws; does not know what was drawn. Every interval here is for draws whose number was
fixed before they were drawn.

Limits of a rate are those of Clopper & Pearson (1934) with half the probability of what was observed (mid-P, Lancaster
1961). By exact enumeration at rates from 1e-5 to .5, with draws for 10 to 40 expected failures, an interval of .95
holds the rate in .934 to .965 (Jeffreys' in .930 to .965). With 3 and 5 expected failures it is .917 and .928, as with
Jeffreys'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc

from c2b_ray.metrics.levels import checked_levels
from c2b_ray.metrics.scores import Floats

__all__ = ["RateEstimate", "Trials", "failure_rates", "rate_ratios", "ratios_of"]

HALVINGS = 80
LEAST_LOG = -60.0  # of a rate, or of a share: exp(-60) is far below one failure in any number of draws


class RateEstimate(NamedTuple):
    """Estimates with limits, float64 of one shape. NaN (limits: the whole range) without draws."""

    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Trials:
    """Failures among draws: whole numbers of one shape, 0 <= failures <= draws."""

    failures: Floats
    draws: Floats

    @classmethod
    def of(cls, failures: ArrayLike, draws: ArrayLike) -> Trials:
        """Builds checked trials. Raises: ValueError with index and values where counts are invalid."""
        f, n = np.asarray(failures, dtype=np.float64), np.asarray(draws, dtype=np.float64)
        if f.shape != n.shape:
            raise ValueError(f"failures has shape {f.shape}, draws has shape {n.shape}")
        for index in np.argwhere(~((np.floor(f) == f) & (np.floor(n) == n) & (f >= 0) & (f <= n) & (n < np.inf))):
            at = tuple(index.tolist())
            raise ValueError(
                f"at {at}: failures={f[at]}, draws={n[at]}; need whole numbers with 0 <= failures <= draws"
            )
        return cls(f, n)

    @property
    def rates(self) -> Floats:
        rates: Floats = np.divide(
            self.failures, self.draws, out=np.full(self.draws.shape, np.nan), where=self.draws > 0
        )
        return rates


def failure_rates(failures: ArrayLike, draws: ArrayLike, confidence: float = 0.95) -> RateEstimate:
    """Computes a failure rate with limits, from a number of draws that was fixed beforehand.

    rate = f/n;  low: P(X > f | low) + P(X = f | low)/2 = (1 - confidence)/2,  high likewise with P(X < f)

    Args: failures, draws: whole numbers of one shape; confidence: in (0, 1).
    Returns: `RateEstimate` of that shape in [0, 1]; low is 0 without failures, high 1 where all draws failed. No draws:
    NaN within (0, 1). Empty in, empty out.
    Raises: ValueError where not 0 <= failures <= draws in whole numbers, where shapes differ, or for the confidence.
    """
    checked_levels(confidence=confidence)
    trials = Trials.of(failures, draws)
    low, high = binomial_limits(trials, (1 - confidence) / 2)
    return RateEstimate(trials.rates, low, high)


def rate_ratios(failed: Trials, baseline: Trials, confidence: float = 0.95) -> RateEstimate:
    """Computes the ratio of two failure rates with limits, both from numbers of draws that were fixed beforehand.

    ratio = p1/p0;  low: the lesser r with (p1 - r*p0)^2 = (p1 - l1)^2 + r^2*(u0 - p0)^2;  high: the larger r with
    (p1 - r*p0)^2 = (u1 - p1)^2 + r^2*(p0 - l0)^2;  p = f/n, (l, u) its limits by `failure_rates`

    MOVER-R: Donner & Zou 2012, "Closed-form confidence intervals for functions of the normal mean and standard
    deviation", section 2. By exact enumeration of rates from 1e-5 to .95 with 5 to 40 expected failures, an interval
    of .95 holds the ratio in .94 to .96 where 3 to 100 failures are expected at baseline, each side missing in .02 to
    .03; in .957 to .995 where fewer are, because low is then never too high. Koopman's (1984), by the score, holds it
    in .86 to .91 where .1 to .2 are expected at baseline: after one failure its upper limit is too low. Where the
    caption fails always, 3 to 5 expected failures of the baseline make it .917 to .95, as with the rate itself.

    Args: failed, baseline: `Trials` of one shape; confidence: in (0, 1).
    Returns: `RateEstimate` of that shape, 0 or more. Without a failure of the baseline the ratio is infinite and high
    too, low is finite; without one of the caption ratio and low are 0; without either, NaN within (0, infinity).
    Raises: ValueError where shapes differ, or for the confidence.
    """
    checked_levels(confidence=confidence)
    if failed.draws.shape != baseline.draws.shape:
        raise ValueError(f"failed has shape {failed.draws.shape}, baseline has shape {baseline.draws.shape}")
    tail = (1 - confidence) / 2
    own, others = (RateEstimate(side.rates, *binomial_limits(side, tail)) for side in (failed, baseline))
    return ratios_of(own, others)


def ratios_of(own: RateEstimate, others: RateEstimate) -> RateEstimate:
    """Computes the ratio of two rates with limits, from independent estimates: the formula of `rate_ratios`.

    Args: rates with limits, of one shape; NaN without draws.
    Returns: `RateEstimate` of that shape, as `rate_ratios`.
    """
    (p1, low1, high1), (p0, low0, high0) = own, others
    known = ~np.isnan(p1) & ~np.isnan(p0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = p1 / p0
        least, beside = low1 * (2 * p1 - low1), high0 * (2 * p0 - high0)
        low = least / (p1 * p0 + np.sqrt(np.maximum((p1 * p0) ** 2 - least * beside, 0.0)))
        most, beside = high1 * (2 * p1 - high1), low0 * (2 * p0 - low0)
        high = (p1 * p0 + np.sqrt(np.maximum((p1 * p0) ** 2 - most * beside, 0.0))) / beside
    low = np.where(known & (p1 > 0), low, 0.0)
    high = np.where(known & (p0 > 0), high, np.inf)
    return RateEstimate(value, low, high)


def binomial_limits(trials: Trials, tail: float) -> tuple[Floats, Floats]:
    """Computes mid-P limits of a binomial share, each missing with probability `tail`; (0, 1) without draws."""
    f, n = trials.failures, trials.draws

    def more(p: Floats) -> Floats:  # P(X > f) + P(X = f)/2, rising in p
        at_least = np.where(f > 0, betainc(np.maximum(f, 1.0), n - f + 1, p), 1.0)
        above = np.where(f < n, betainc(f + 1, np.maximum(n - f, 1.0), p), 0.0)
        chance: Floats = (at_least + above) / 2
        return chance

    low = np.where(f > 0, rising_root(more, np.full(f.shape, tail)), 0.0)
    high = np.where(f < n, rising_root(more, np.full(f.shape, 1 - tail)), 1.0)
    return low, high


def rising_root(chance: Callable[[Floats], Floats], level: Floats) -> Floats:
    """Finds, by bisection on its logarithm, the rate at which a probability that rises with the rate reaches a
    level."""
    low, high = np.full(level.shape, LEAST_LOG), np.zeros(level.shape)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = chance(np.exp(middle)) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    rates: Floats = np.exp((low + high) / 2)
    return rates
