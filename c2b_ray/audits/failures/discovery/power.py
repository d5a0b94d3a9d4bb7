"""Computes from a budget the least rate at which a failure is likely to be found, before anything is drawn.

A failure that occurs at a rate r on images with a certain content, which a share s of a label's images have, is found
where three conditions hold, each about rare events (Poisson):

    seen         one of the b baseline images that discovery draws of the label fails this way     1 - exp(-b*r*s)
    promising    the caption made from its description fails twice in c draws                      P(Poisson(c*r) >= 2)
    confirmed    its fresh draws, t of the caption, fail as often as the test requires             P(Poisson(t*r) >= k)

k is `race.expected_draws` at these rates, times r. It is assumed that the captioner describes the failing image
correctly, and that no other failure takes the draws: so this is an upper limit of what a budget achieves. In
simulations, a test decides in time as often as computed where that is four times in five.

It knows rates and numbers of draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, poisson

from c2b_ray.audits.failures.discovery.race import baseline_share, expected_draws
from c2b_ray.audits.failures.discovery.value_sets import FEWEST, Mask, excess
from c2b_ray.stats.rate_evidence import RateBatch, more_evidence, no_evidence
from c2b_ray.stats.scores import Floats, Ints

__all__ = [
    "COMMON_RATE",
    "POWER",
    "POWERS",
    "SHARES",
    "Confirming",
    "FailureReach",
    "LabelSearch",
    "Screening",
    "least_caption_rate",
    "least_rate",
    "least_rates",
]


POWER = 0.8
TWICE = 2
COMMON_RATE = 0.01
"""The bare prompt's failure rate for which people are told what a caption of the smallest ratio takes."""
_HALVINGS = 60


@dataclass(frozen=True)
class FailureReach:
    """A run's draws for one failure of each label.

    seen: baseline images of a label among which discovery looks for failures; None where the config has the captions,
    so that none has to be discovered. screened: draws of one caption in discovery. tested: draws of a caption and its
    baseline together on fresh seeds. hypotheses: the number that share the false discovery rate alpha. worth: the least
    ratio of rates that is searched for.
    """

    seen: float | None
    screened: float
    tested: float
    hypotheses: float
    alpha: float = 0.05
    worth: float = 2.0

    def power(self, rates: ArrayLike, share: float) -> Floats:
        """Returns the probability that a failure is found, float64 of the shape of `rates`, each in (0, 1].

        share, in (0, 1): the share of the label's images that show what the failure needs. The caption then fails
        1/share times as often as the baseline; where that is less than `worth`, it is given up.
        """
        if share * self.worth > 1:
            return np.zeros(np.shape(rates))
        r = np.asarray(rates, np.float64)
        baseline_draws = baseline_share(1)
        failures_needed = expected_draws(r, r * share, baseline_draws, self.hypotheses / self.alpha, self.worth) * r
        tested = poisson.sf(
            np.ceil(np.where(np.isfinite(failures_needed), failures_needed, 0)) - 1,
            self.tested / (1 + baseline_draws) * r,
        )
        confirmed = np.where(np.isfinite(failures_needed), tested, 0.0)
        promising = poisson.sf(TWICE - 1, self.screened * r)
        is_seen = 1.0 if self.seen is None else -np.expm1(-self.seen * r * share)
        probability: Floats = is_seen * promising * confirmed
        return probability

    def draws_to_confirm(self, baseline_rate: float) -> float:
        """Returns the draws, baseline's included, that are expected to confirm a caption that fails `worth` times as
        often as a baseline with this rate, in (0, 1).

        In simulated races of one caption and of three it takes .7 to 1 times as many on average.
        """
        baseline_draws = baseline_share(1)
        rate = min(1.0, self.worth * baseline_rate)
        draws_needed = expected_draws([rate], [baseline_rate], baseline_draws, self.hypotheses / self.alpha, self.worth)
        return float(draws_needed[0] * (1 + baseline_draws))


def least_rate(reach: FailureReach, share: float, power: float = POWER) -> float | None:
    """Returns the least rate that is found with probability `power`; None where not even a rate of 1 is.

    share, in (0, 1): as in `FailureReach.power`. By bisection: the power grows with the rate, except for steps of whole
    failures.
    """
    if reach.power(1.0, share) < power:
        return None
    low, high = -12.0, 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if reach.power(10**middle, share) >= power else (middle, high)
    return float(10**high)


@dataclass(frozen=True)
class Screening:
    """How a run draws one caption in discovery: `first` draws, then `growth` times as many, until it has `goal`
    failures, cannot fail `worth` times as often as the baseline, or has had `most` draws. It is promising with more
    failures than that ratio makes expected, at least `fewest`; or one, where one is a surprise: where the probability
    of any, at that ratio, is below `surprise`."""

    most: int
    first: int
    growth: float
    goal: int
    fewest: int
    surprise: float

    def power(self, rate: float, baseline_rate: float, worth: float) -> float:
        """Returns the probability that a caption that fails at `rate`, in [0, 1], is promising. Exact for a known rate
        of the baseline: binomial counts, batch by batch."""
        open_, draws, promising_share = np.array([1.0]), 0, 0.0
        while len(open_) and open_.sum() > 0:
            additional = min(max(self.first, int(draws * (self.growth - 1))), self.most - draws)
            draws += additional
            after_batch = np.convolve(open_, binom.pmf(np.arange(additional + 1), additional, rate))
            failures, expected = np.arange(len(after_batch)), draws * worth * baseline_rate
            is_convincing = (failures >= self.fewest) | (-math.expm1(-expected) < self.surprise)
            promising = (failures > 0) & (failures > expected) & is_convincing
            ended = (failures >= self.goal) | (expected >= failures + 3) | (draws >= self.most)
            promising_share += float(after_batch[ended & promising].sum())
            open_ = np.where(ended, 0.0, after_batch)[: self.goal]
        return min(promising_share, 1.0)


@dataclass(frozen=True)
class Confirming:
    """The test on fresh seeds: `draws` of a caption and its baseline together; the others are as in `FailureReach`."""

    draws: float
    hypotheses: float
    alpha: float
    worth: float


def least_caption_rate(
    baseline_rate: float, screening: Screening, tested: Confirming, power: float = POWER
) -> float | None:
    """Returns the least failure rate of a caption, of a label with this rate of the baseline, in (0, 1), at which the
    caption is promising and then confirmed with probability `power`, if it is drawn; None where not even a rate of 1
    is. The test is that of `FailureReach`."""
    reach = FailureReach(None, np.inf, tested.draws, tested.hypotheses, tested.alpha, tested.worth)

    def found(rate: float) -> bool:
        confirmed = float(reach.power(rate, baseline_rate / rate))
        return confirmed >= power and confirmed * screening.power(rate, baseline_rate, tested.worth) >= power

    if baseline_rate >= 1 or not found(1.0):
        return None
    low, high = math.log(baseline_rate), 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if found(math.exp(middle)) else (middle, high)
    return math.exp(high)


# Computes which cause of failures a search of labelled images, as it was run, would have found.


POWERS = (0.8, 0.95)
SHARES = (0.1, 0.02)
_QUANTILES = 25
_HALVINGS_of_labelled_power = 40


@dataclass(frozen=True)
class LabelSearch:
    """What the search and the test had of one label. searched, tested: its images with an answer. usual: the label's
    failure rate, above 0. penalty: log K of the sets of most columns (`value_sets.Search`). least_excess: of the
    weakest set that was put forward, less its own log K; -inf where there was room for more sets."""

    searched: int
    tested: int
    usual: float
    penalty: float
    least_excess: float = -np.inf


def least_rates(
    labels: Sequence[LabelSearch], share: float, hypotheses: int, findings: int, alpha: float, smallest_ratio: float
) -> Floats:
    """Returns the least failure rate of a cause that is found with each of `POWERS`, float64 (labels, powers).

    share, in (0, 1): of the label's images, those that show the cause. hypotheses, findings: of the run. NaN where not
    even a cause that always fails is found so surely. By bisection, over the label's own rate to 1.
    """
    if not labels:
        return np.zeros((0, len(POWERS)))
    usual = np.array([search.usual for search in labels])
    least = np.array([search.penalty + max(search.least_excess, 0.0) for search in labels])
    threshold = (hypotheses + 1) / (alpha * (findings + 1))
    sides = [
        _Sides.of(share, np.array(images), usual)
        for images in ([search.searched for search in labels], [search.tested for search in labels])
    ]
    of_search = _fewest(sides[0], lambda f: _is_chosen(f, sides[0], least, smallest_ratio))
    of_test = _fewest(sides[1], lambda f: _e_values(f, sides[1], threshold, smallest_ratio) >= threshold)

    def power(rates: Floats) -> Floats:
        probability: Floats = np.ones(len(labels))
        for fewest, side in zip((of_search, of_test), sides, strict=True):
            probability = probability * binom.sf(fewest - 1, side.images, rates[:, None]).mean(axis=1)
        return probability

    result = np.full((len(labels), len(POWERS)), np.nan)
    for column, target_power in enumerate(POWERS):
        low, high = np.log(usual), np.zeros(len(labels))
        for _ in range(_HALVINGS_of_labelled_power):
            middle = (low + high) / 2
            is_powerful = power(np.exp(middle)) >= target_power
            low, high = np.where(is_powerful, low, middle), np.where(is_powerful, middle, high)
        result[:, column] = np.where(power(np.ones(len(labels))) >= target_power, np.exp(high), np.nan)
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
        with_cause = binom.ppf(np.random.default_rng(0).permutation(levels), images[:, None], share)
        without_cause = images[:, None] - with_cause
        return cls(with_cause, without_cause, binom.ppf(levels, without_cause, usual[:, None]))


def _fewest(side: _Sides, is_enough: Callable[[Floats], Mask]) -> Floats:
    """Returns the least failures of 0 to all images that are enough, by bisection; more than the images where none
    are."""
    low, high = np.zeros(side.images.shape), side.images + 1
    while (low < high).any():
        middle = np.floor((low + high) / 2)
        is_met = is_enough(np.minimum(middle, side.images)) & (middle <= side.images)
        low, high = np.where(is_met | (low >= high), low, middle + 1), np.where(is_met, middle, high)
    return high


def _is_chosen(failures: Floats, side: _Sides, least: Floats, smallest_ratio: float) -> Mask:
    usual = (side.other_failures + 0.5) / (side.others + 1)
    promising = (failures >= FEWEST) & (failures > (1 + smallest_ratio) / 2 * usual * side.images)
    gain = excess(failures, side.images, failures + side.other_failures, side.images + side.others)
    result: Mask = promising & (gain >= least[:, None])
    return result


def _e_values(failures: Floats, side: _Sides, threshold: float, smallest_ratio: float) -> Floats:
    """Returns the e-values of a test of these counts, with the bet on their own ratio that a search would suggest."""
    f, n, f0, n0 = (x.ravel() for x in (failures, side.images, side.other_failures, side.others))
    expected = np.divide(f, n, out=np.zeros(len(f)), where=n > 0) * (n0 + 1) / (f0 + 0.5)
    start = no_evidence(len(f), smallest_ratio, expected=expected)
    return more_evidence(start, RateBatch.of(f, n, f0, n0), threshold, np.inf).e_values.reshape(failures.shape)
