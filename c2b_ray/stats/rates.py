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
from math import comb
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike
from scipy.special import betainc

from c2b_ray.stats.roots import checked_levels
from c2b_ray.stats.scores import Floats, Ints

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
            i = tuple(index.tolist())
            raise ValueError(f"at {i}: failures={f[i]}, draws={n[i]}; need whole numbers with 0 <= failures <= draws")
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
    estimate, baseline_estimate = (
        RateEstimate(side.rates, *binomial_limits(side, tail)) for side in (failed, baseline)
    )
    return ratios_of(estimate, baseline_estimate)


def ratios_of(numerator: RateEstimate, denominator: RateEstimate) -> RateEstimate:
    """Computes the ratio of two rates with limits, from independent estimates: the formula of `rate_ratios`.

    Args: rates with limits, of one shape; NaN without draws.
    Returns: `RateEstimate` of that shape, as `rate_ratios`.
    """
    (p1, low1, high1), (p0, low0, high0) = numerator, denominator
    measured = ~np.isnan(p1) & ~np.isnan(p0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = p1 / p0
        low_term, other_term = low1 * (2 * p1 - low1), high0 * (2 * p0 - high0)
        low = low_term / (p1 * p0 + np.sqrt(np.maximum((p1 * p0) ** 2 - low_term * other_term, 0.0)))
        high_term, other_term = high1 * (2 * p1 - high1), low0 * (2 * p0 - low0)
        high = (p1 * p0 + np.sqrt(np.maximum((p1 * p0) ** 2 - high_term * other_term, 0.0))) / other_term
    low = np.where(measured & (p1 > 0), low, 0.0)
    high = np.where(measured & (p0 > 0), high, np.inf)
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


# Failure rates of two classifiers: how far apart they are, and whether they differ, for fixed numbers of draws.
#
# Two classifiers may have answered about the same images, and then their failures need not be independent. Where they
# fail on the same ones, a difference is surer than of independent images; where one fails on what the other has right,
# it is less sure. Counts do not tell which, so everything here covers the worst case, failures that never coincide.
# Where failures are rare this costs nothing.


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
    rates_a, rates_b = failure_rates(a.failures, a.draws, confidence), failure_rates(b.failures, b.draws, confidence)
    difference, correlation = rates_b.value - rates_a.value, _most_apart(a, b)
    low = difference - _joined_rate_difference(rates_b.value - rates_b.low, rates_a.high - rates_a.value, correlation)
    high = difference + _joined_rate_difference(rates_b.high - rates_b.value, rates_a.value - rates_a.low, correlation)
    measured = np.isfinite(difference)
    return RateEstimate(
        difference, np.where(measured, np.maximum(low, -1.0), -1.0), np.where(measured, np.minimum(high, 1.0), 1.0)
    )


def rate_difference_ratios(a: Trials, b: Trials, confidence: float = 0.95) -> RateEstimate:
    """Computes the rate of B over the rate of A. Uses `rate_ratios`, whose limits are moved apart, in logarithms, as
    those of `rate_differences` are: by sqrt(1 + 2*c*s_a*s_b/(s_a^2 + s_b^2)), s the rates' coefficients of variation.
    """
    _check(a, b)
    ratios = rate_ratios(b, a, confidence)
    spread_a, spread_b = _variation(a), _variation(b)
    wider = _joined_rate_difference(spread_a, spread_b, _most_apart(a, b)) / np.hypot(spread_a, spread_b)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = (ratios.value * (limit / ratios.value) ** wider for limit in (ratios.low, ratios.high))
    positive = np.isfinite(ratios.value) & (ratios.value > 0)
    return RateEstimate(ratios.value, np.where(positive, low, ratios.low), np.where(positive, high, ratios.high))


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
    events_a, events_b = (np.where(mostly, side.draws - side.failures, side.failures) for side in (a, b))
    share = b.draws / draws
    below, above = (
        scipy.stats.binom.cdf(events_b, events_a + events_b, share),
        scipy.stats.binom.sf(events_b - 1, events_a + events_b, share),
    )
    measured = (a.draws > 0) & (b.draws > 0)
    p_values: Floats = np.where(measured, np.minimum(1.0, 2 * np.minimum(below, above)), 1.0)
    return p_values


def _most_apart(a: Trials, b: Trials) -> Floats:
    """Returns how far below 0 the correlation of both rates can be: with failures, or successes, that never coincide on
    the images that both may share."""
    p, q = ((side.failures + 0.5) / (side.draws + 1) for side in (a, b))
    odds = p * q / ((1 - p) * (1 - q))
    overlap = np.minimum(a.draws, b.draws) / np.maximum(np.maximum(a.draws, b.draws), 1.0)
    correlation: Floats = np.sqrt(np.minimum(odds, 1 / odds) * overlap)
    return correlation


def _variation(side: Trials) -> Floats:
    p = (side.failures + 0.5) / (side.draws + 1)
    variation: Floats = np.sqrt((1 - p) / (p * np.maximum(side.draws, 1.0)))
    return variation


def _joined_rate_difference(x: Floats, y: Floats, correlation: Floats) -> Floats:
    result: Floats = np.sqrt(x * x + y * y + 2 * correlation * x * y)
    return result


def _check(a: Trials, b: Trials) -> None:
    if a.draws.shape != b.draws.shape:
        raise ValueError(f"a has shape {a.draws.shape}, b has shape {b.draws.shape}")


# Whether the values of one group of runs tend to be larger than those of another: the test of Mann & Whitney.
#
# Wiles et al. 2022 (App. B, Table 6) compare the failure rates of ten runs of a caption with ten of the baseline and
# print p = 6.34e-5: the normal approximation, corrected for ties and continuity, where all ten baseline rates are 0,
# all of the caption's are larger and two of them are equal (their other one, 0.00015, is that of six baseline rates of
# 0). Here the default is exact, ties or not: 1.08e-5.


Alternative = Literal["two-sided", "greater", "less"]

MOST_EXACT = 60  # values a side: a tenth of a second


class MannWhitney(NamedTuple):
    """The test's result. u: pairs (x, y) with x > y, a tie counting half, in [0, len(x) * len(y)]; p_value in
    [0, 1]."""

    u: float
    p_value: float
    method: Literal["exact", "asymptotic"]


def mann_whitney(
    x: ArrayLike,
    y: ArrayLike,
    alternative: Alternative = "two-sided",
    method: Literal["exact", "asymptotic"] = "exact",
) -> MannWhitney:
    """Performs Mann & Whitney's (1947) test of two groups of values.

    u = number of pairs (i, j) with x_i > y_j, plus half the number of those with x_i = y_j

    exact: the share of the ways to deal all the values into groups of these sizes whose u is as far out (Pitman 1937's
    permutation test), so ties need no correction and p is never below 1/C(len(x) + len(y), len(x)); two-sided p is
    twice the smaller one-sided p, at most 1, as SciPy's. asymptotic: SciPy's normal approximation, corrected for ties
    and for continuity, which is what the paper's 6.34e-5 is.

    Args: x, y: finite floats, one-dimensional, one or more each, 60 a side at most when exact. alternative "greater": x
    tends to be larger.
    Returns: `MannWhitney`. All values equal: p = 1.
    Raises: ValueError for another shape, for values that are not finite, or too many of them.
    """
    first, second = _checked("x", x), _checked("y", y)
    if method == "asymptotic":
        if np.ptp(np.concatenate([first, second])) == 0:
            return MannWhitney(first.size * second.size / 2, 1.0, method)
        test = scipy.stats.mannwhitneyu(
            first, second, use_continuity=True, alternative=alternative, method="asymptotic"
        )
        return MannWhitney(float(test.statistic), float(test.pvalue), method)
    if max(first.size, second.size) > MOST_EXACT:
        raise ValueError(
            f"{first.size} and {second.size} values: an exact test takes at most {MOST_EXACT} a side; "
            'use method="asymptotic"'
        )
    ranks = np.rint(2 * scipy.stats.rankdata(np.concatenate([first, second]))).astype(np.int64)
    doubled = int(ranks[: first.size].sum())
    below, above = _tails(ranks, first.size, doubled)
    p = {"less": below, "greater": above, "two-sided": min(1.0, 2 * min(below, above))}[alternative]
    return MannWhitney((doubled - first.size * (first.size + 1)) / 2, p, method)


def _tails(ranks: Ints, size: int, total: int) -> tuple[float, float]:
    """Computes P(sum <= total) and P(sum >= total) for the sum of the ranks of `size` values picked at random.

    ways[k, s]: how many ways there are to pick k of the ranks so far with sum s; whole numbers up to 2^53, beyond it to
    fifteen digits.
    """
    ways = np.zeros((size + 1, int(ranks.sum()) + 1))
    ways[0, 0] = 1
    for rank in ranks.tolist():
        ways[1:, rank:] += ways[:-1, :-rank].copy()
    combinations = comb(len(ranks), size)
    below, above = float(ways[size, : total + 1].sum()), float(ways[size, total:].sum())
    return min(1.0, below / combinations), min(1.0, above / combinations)


def _checked(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise ValueError(f"{name} must be one or more finite values in one dimension, got {array.tolist()}")
    return array
