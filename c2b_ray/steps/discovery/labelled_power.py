"""Computes which cause of failures a search of labelled images, as it was run, would have found.

A cause that a share s of a label's images show, and that makes them fail at a rate r while the others fail at the rate
p0, is found where two things happen, on different images:

    searched    its values come out as one of the search's sets     P(f >= k1),  f ~ binomial(s*N of the search, r)
    tested      its evidence reaches what e-BH requires             P(f >= k2),  f ~ binomial(s*N of the test, r)

k1 is the least number of failures with which the set is promising, and stands out: its excess is above log K, that of
the best of K sets without effect, and above that of the weakest set that the search put forward, where it put forward
as many as it may. k2 is that with which the e-value reaches m/(alpha*(R + 1)) for one more than the run's m hypotheses,
R of them confirmed. Both depend on how many images show the cause and how many others fail, both binomial: the
probabilities are averaged over quantiles of these. It is assumed that no other set of values has nearly the same
images: where one has, it may be chosen in the cause's place, so that the probabilities are upper limits.

It knows counts and rates, not images or captions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from c2b_ray.metrics.rate_evidence import RateBatch, more_evidence, no_evidence
from c2b_ray.metrics.scores import Floats, Ints
from c2b_ray.steps.discovery.value_sets import FEWEST, Mask, excess

__all__ = ["POWERS", "SHARES", "Searched", "least_rates"]

POWERS = (0.8, 0.95)
SHARES = (0.1, 0.02)
_QUANTILES = 25
_HALVINGS = 40


@dataclass(frozen=True)
class Searched:
    """What the search and the test had of one label. searched, tested: its images with an answer. usual: the label's
    failure rate, above 0. penalty: log K of the sets of most columns (`value_sets.Search`). least_excess: of the
    weakest set that was put forward, less its own log K; -inf where there was room for more sets."""

    searched: int
    tested: int
    usual: float
    penalty: float
    least_excess: float = -np.inf


def least_rates(
    labels: Sequence[Searched], share: float, hypotheses: int, findings: int, alpha: float, smallest_ratio: float
) -> Floats:
    """Returns the least failure rate of a cause that is found with each of `POWERS`, float64 (labels, powers).

    share, in (0, 1): of the label's images, those that show the cause. hypotheses, findings: of the run. NaN where not
    even a cause that always fails is found so surely. By bisection, over the label's own rate to 1.
    """
    if not labels:
        return np.zeros((0, len(POWERS)))
    usual = np.array([one.usual for one in labels])
    least = np.array([one.penalty + max(one.least_excess, 0.0) for one in labels])
    needed = (hypotheses + 1) / (alpha * (findings + 1))
    sides = [
        _Sides.of(share, np.array(images), usual)
        for images in ([one.searched for one in labels], [one.tested for one in labels])
    ]
    of_search = _fewest(sides[0], lambda f: _is_chosen(f, sides[0], least, smallest_ratio))
    of_test = _fewest(sides[1], lambda f: _e_values(f, sides[1], needed, smallest_ratio) >= needed)

    def power(rates: Floats) -> Floats:
        found: Floats = np.ones(len(labels))
        for fewest, side in zip((of_search, of_test), sides, strict=True):
            found = found * binom.sf(fewest - 1, side.images, rates[:, None]).mean(axis=1)
        return found

    result = np.full((len(labels), len(POWERS)), np.nan)
    for at, wanted in enumerate(POWERS):
        low, high = np.log(usual), np.zeros(len(labels))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = power(np.exp(middle)) >= wanted
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        result[:, at] = np.where(power(np.ones(len(labels))) >= wanted, np.exp(high), np.nan)
    return result


@dataclass(frozen=True)
class _Sides:
    """Images of one part that show the cause, and the others with quantiles of their failures: (labels, quantiles)."""

    images: Floats
    others: Floats
    other_failures: Floats

    @classmethod
    def of(cls, share: float, images: Ints, usual: Floats) -> _Sides:
        levels = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        mine = binom.ppf(np.random.default_rng(0).permutation(levels), images[:, None], share)
        others = images[:, None] - mine
        return cls(mine, others, binom.ppf(levels, others, usual[:, None]))


def _fewest(side: _Sides, is_enough: Callable[[Floats], Mask]) -> Floats:
    """Returns the least failures of 0 to all images that are enough, by bisection; more than the images where none
    are."""
    low, high = np.zeros(side.images.shape), side.images + 1
    while (low < high).any():
        middle = np.floor((low + high) / 2)
        enough = is_enough(np.minimum(middle, side.images)) & (middle <= side.images)
        low, high = np.where(enough | (low >= high), low, middle + 1), np.where(enough, middle, high)
    return high


def _is_chosen(failures: Floats, side: _Sides, least: Floats, smallest_ratio: float) -> Mask:
    usual = (side.other_failures + 0.5) / (side.others + 1)
    promising = (failures >= FEWEST) & (failures > (1 + smallest_ratio) / 2 * usual * side.images)
    gain = excess(failures, side.images, failures + side.other_failures, side.images + side.others)
    chosen: Mask = promising & (gain >= least[:, None])
    return chosen


def _e_values(failures: Floats, side: _Sides, needed: float, smallest_ratio: float) -> Floats:
    """Returns the e-values of a test of these counts, with the bet on their own ratio that a search would suggest."""
    f, n, f0, n0 = (x.ravel() for x in (failures, side.images, side.other_failures, side.others))
    expected = np.divide(f, n, out=np.zeros(len(f)), where=n > 0) * (n0 + 1) / (f0 + 0.5)
    start = no_evidence(len(f), smallest_ratio, expected=expected)
    return more_evidence(start, RateBatch.of(f, n, f0, n0), needed, np.inf).e_values.reshape(failures.shape)
