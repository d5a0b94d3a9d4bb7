"""How a budget is spent on hypotheses, and the least rate of failures that it is likely to find."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, poisson

from c2b_ray.audits.failures.discovery.value_sets import FEWEST, Mask, excess
from c2b_ray.stats.rate_evidence import RateBatch, RateEvidence, e_q_values, more_evidence, no_evidence
from c2b_ray.stats.roots import checked_levels
from c2b_ray.stats.scores import Floats, Ints

__all__ = [
    "COMMON_RATE",
    "POWER",
    "POWERS",
    "SHARES",
    "Confirming",
    "DrawCounts",
    "FailureReach",
    "LabelSearch",
    "Race",
    "RaceTerms",
    "Screening",
    "least_caption_rate",
    "least_rate",
    "least_rates",
    "measure_draws",
    "next_draws",
]


# Computes from rates how many draws decide a hypothesis: how a race spends its draws, and what a run is expected to
# cost.


LARGEST_RATIO = 200.0  # that is bet on
SLACK = 1.0  # of the logarithm of capital: what betting on a ratio costs that is not known beforehand


class Growth(NamedTuple):
    """The logarithm of capital that a draw of the caption, with its share of baseline draws, is expected to add."""

    shown: Floats  # to the evidence that it fails more often
    hopeless: Floats  # to the evidence that it is not worth drawing


def baseline_share(captions: int) -> float:
    """Returns the baseline draws per draw of a caption when `captions` captions of its label are drawn in equal
    numbers.

    For one caption, the total draws of both sides are near their minimum from 1.1 (ratio 2) to 1.7 (unbounded ratio).
    Several captions share their baseline, which makes it cheaper for each; but most captions of a race are given up,
    and their share of the baseline with them: in simulated races, slightly more than the share for one caption found
    more failures than a share that grows with the square root of their number.
    """
    return 1.3 * math.pow(max(captions, 1), 0.1)


def growth(rate: Floats, baseline_rate: Floats, share: Floats, worth: float) -> Growth:
    """Returns the growth for hypotheses with these rates, bet on at their own ratio if that is at least `worth`.

    With c baseline draws for each, and a bet on the ratio r, a failure of the caption multiplies the capital by r*(1 +
    c)/(r + c) and one of the baseline by (1 + c)/(r + c). Against "worth it", the bet is on r = 1: the factors are (w +
    c)/(w*(1 + c)) and (w + c)/(1 + c).
    """
    ratio = np.clip(np.divide(rate, np.maximum(baseline_rate, 1e-300)), worth, LARGEST_RATIO)
    up = rate * np.log(ratio * (1 + share) / (ratio + share))
    up = up + share * baseline_rate * np.log((1 + share) / (ratio + share))
    away = np.log((worth + share) / (1 + share))
    return Growth(up, rate * (away - np.log(worth)) + share * baseline_rate * away)


def draws_to_decide(to_gain: Growth, growing: Growth) -> Floats:
    """Returns the draws of the caption until one of the capitals has grown by `to_gain`; infinite where neither
    grows."""
    draws_needed = [
        np.divide(gain, rate, out=np.full(rate.shape, np.inf), where=rate > 0)
        for gain, rate in zip(to_gain, growing, strict=True)
    ]
    soonest: Floats = np.minimum(*draws_needed)
    return soonest


def expected_draws(
    rates: ArrayLike, baseline_rates: ArrayLike, share: float, threshold: float, worth: float = 2.0, risk: float = 0.05
) -> Floats:
    """Returns the draws of each caption until its hypothesis is decided, if these rates are the true ones.

    Args: rates, baseline_rates: floats in [0, 1] of one shape. share: baseline draws for each (`baseline_share`).
    threshold: the e-value that decides. worth, risk: as in `RaceTerms`.

    Returns: float64 of that shape; infinite where nothing ever fails.
    """
    p1, p0 = np.asarray(rates, dtype=np.float64), np.asarray(baseline_rates, dtype=np.float64)
    to_gain = Growth(np.full(p1.shape, np.log(threshold) + SLACK), np.full(p1.shape, np.log(1 / risk)))
    return draws_to_decide(to_gain, growth(p1, p0, np.full(p1.shape, share), worth))


TOGETHER = 50.0
"""Captions are drawn together if their remaining draws are at most this multiple of the least: this takes fewer calls,
and captions of a label share one baseline."""
HOPE = 3.0
"""Additional failures with which the most hopeful rate of a caption is computed."""
SMALLEST_STEP, LARGEST_STEP = 0.35, 1.5
"""The size of a batch, relative to all earlier draws of its caption."""


@dataclass(frozen=True)
class RaceTerms:
    """alpha: the false discovery rate. worth: the least ratio of rates (strictly, of odds) for which drawing continues.
    risk: the largest probability of giving up a caption that reaches it. first: draws of a caption in its first batch.
    measured: the number of failures that the measuring part aims at."""

    alpha: float = 0.05
    worth: float = 2.0
    risk: float = 0.05
    first: int = 64
    measured: int = 20

    def __post_init__(self) -> None:
        checked_levels(alpha=self.alpha, risk=self.risk)
        if self.first < 1 or self.measured < 1 or not self.worth > 1:
            raise ValueError(
                f"first={self.first}, measured={self.measured}, worth={self.worth}; "
                "need first and measured of 1 or more, worth above 1"
            )


@dataclass(frozen=True)
class DrawCounts:
    """Numbers of draws, int64: of each caption and of each label's baseline."""

    captions: Ints
    baselines: Ints

    @property
    def total(self) -> int:
        return int(self.captions.sum() + self.baselines.sum())


@dataclass(frozen=True)
class Race:
    """All hypotheses of a run: for each of H hypotheses the number of its caption and of its label, and the
    evidence."""

    caption: Ints
    label: Ints
    evidence: RateEvidence
    terms: RaceTerms

    @classmethod
    def start(
        cls,
        caption: ArrayLike,
        label: ArrayLike,
        terms: RaceTerms | None = None,
        expected: ArrayLike | None = None,
    ) -> Race:
        """Returns the race before the first draw.

        Args: caption, label: whole numbers from 0, of shape (hypotheses,). A caption belongs to one label. expected:
        the ratio of rates that other draws (of discovery) suggest for each, (hypotheses,), NaN where none: it saves
        draws where it is right and costs some where it is wrong.

        Raises: ValueError for unequal shapes, or where a caption has two labels.
        """
        terms = terms or RaceTerms()
        of_caption, of_label = np.asarray(caption, dtype=np.int64), np.asarray(label, dtype=np.int64)
        if of_caption.ndim != 1 or of_caption.shape != of_label.shape:
            raise ValueError(f"need two arrays of one shape (hypotheses,), got {of_caption.shape} and {of_label.shape}")
        for number in np.unique(of_caption).tolist():
            labels = np.unique(of_label[of_caption == number]).tolist()
            if len(labels) > 1:
                raise ValueError(f"caption {number} has the labels {labels}: a caption is of one label")
        return cls(of_caption, of_label, no_evidence(len(of_caption), terms.worth, terms.risk, expected), terms)

    def after(
        self, failures: ArrayLike, draws: ArrayLike, baseline_failures: ArrayLike, baseline_draws: ArrayLike
    ) -> Race:
        """Returns the race after one more batch: counts of shape (hypotheses,), of each caption and of its label's
        baseline.

        A decided hypothesis stays as it is, with the evidence at its decision. Evidence may grow beyond what e-BH
        requires: batches are large, so that this costs next to nothing, and false findings become rarer.
        """
        is_open = self.verdicts == "open"
        sides = (np.where(is_open, side, 0) for side in (failures, draws, baseline_failures, baseline_draws))
        return replace(self, evidence=more_evidence(self.evidence, RateBatch.of(*sides), self.threshold, np.inf))

    @property
    def q_values(self) -> Floats:
        return e_q_values(self.evidence.e_values)

    @property
    def threshold(self) -> float:
        """The e-value at which one more hypothesis is decided: m/(alpha * (k + 1)), where k of m are failures."""
        failures_shown = int((self.q_values <= self.terms.alpha).sum())
        return len(self.caption) / (self.terms.alpha * min(failures_shown + 1, max(len(self.caption), 1)))

    @property
    def verdicts(self) -> NDArray[np.str_]:
        """The verdict on each hypothesis, str (hypotheses,).

        A failure stays one: its evidence stays as it was, and e-BH keeps rejecting it whatever the others become.
        """
        hopeless = np.where(self.evidence.abandoned, "hopeless", "open")
        return np.where(self.q_values <= self.terms.alpha, "failure", hopeless)


def next_draws(race: Race, left: int) -> DrawCounts:
    """Returns how many draws each caption and each baseline gets in the next batch, at most `left` in all.

    For each open hypothesis the remaining draws are estimated from its rates so far. Captions that need fewest go
    first, so that most is found with the draws that are left. Captions that need at most `TOGETHER` times as many join
    them; captions that cannot be decided with what is left get none. A batch is somewhat more than half of the draws
    that a caption is expected to need, within `SMALLEST_STEP` to `LARGEST_STEP` of its draws so far. All zeros: nothing
    is open, or nothing open can be decided.
    """
    captions, labels = _sizes(race)
    nothing = DrawCounts(np.zeros(captions, dtype=np.int64), np.zeros(labels, dtype=np.int64))
    open_rows = np.flatnonzero(race.verdicts == "open")
    if not len(open_rows):
        return nothing
    likely, at_best_rates = _remaining(race, open_rows)
    needs, at_best, draws_so_far = np.full(captions, np.inf), np.full(captions, np.inf), np.zeros(captions)
    np.minimum.at(needs, race.caption[open_rows], likely)
    np.minimum.at(at_best, race.caption[open_rows], at_best_rates)
    np.maximum.at(draws_so_far, race.caption[open_rows], race.evidence.seen.failed.draws[open_rows])
    steps = np.clip(
        0.6 * np.where(np.isfinite(needs), needs, 1e18), SMALLEST_STEP * draws_so_far, LARGEST_STEP * draws_so_far
    )
    steps = np.maximum(np.ceil(steps), race.terms.first).astype(np.int64)
    reached = np.flatnonzero(np.isfinite(at_best) & (at_best <= left))
    order = reached[np.lexsort((draws_so_far[reached], needs[reached]))]
    of_caption = np.zeros(captions, dtype=np.int64)
    of_caption[race.caption] = race.label
    result = nothing
    for number in order.tolist():
        if result.total and needs[number] > TOGETHER * needs[order[0]]:
            break
        captions_drawn = result.captions.copy()
        captions_drawn[number] = (
            steps[number] if result.total else min(steps[number], int(left / (1 + baseline_share(1))) - 1)
        )
        with_it = DrawCounts(captions_drawn, _baseline_draws(captions_drawn, of_caption, labels))
        if captions_drawn[number] > 0 and with_it.total <= left:
            result = with_it
    return result


def measure_draws(race: Race, most: int, left: int | None = None) -> DrawCounts:
    """Returns the draws of the measuring part for each caption and each baseline: at most `most` each, `left` in all.

    The number is chosen so that `terms.measured` failures are expected at the rate that the test saw, for the rarest of
    the caption's hypotheses that are failures; a caption without one gets none. Where `left` does not suffice, the
    largest numbers are cut to one size: the rarest rates get wider limits, not wrong ones. The numbers are fixed before
    the first of these draws, and the draws are new: so rates and intervals from them are unbiased, whatever selected
    the caption.
    """
    captions, labels = _sizes(race)
    is_failure = race.verdicts == "failure"
    tested, base = np.zeros(captions), np.zeros(labels)
    for numbers, trials, draws, stopping_failures in (
        (race.caption, race.evidence.seen.failed, tested, 1),  # the test stopped at a failure: (k - 1)/(n - 1)
        (race.label, race.evidence.seen.baseline, base, 0),
    ):
        rates = np.maximum(trials.failures - stopping_failures, 0.5) / np.maximum(trials.draws - stopping_failures, 1)
        np.maximum.at(draws, numbers[is_failure], np.ceil(race.terms.measured / rates[is_failure]))
    if left is not None:
        sizes, common_size = np.concatenate([tested, base]), 0
        while common_size < most:  # the largest size that all can be cut to
            middle = (common_size + most + 1) // 2
            common_size, most = (middle, most) if np.minimum(sizes, middle).sum() <= left else (common_size, middle - 1)
    return DrawCounts(*(np.minimum(draws, most).astype(np.int64) for draws in (tested, base)))


def _remaining(race: Race, rows: Ints) -> tuple[Floats, Floats]:
    """Returns the draws that open hypotheses still need: at their rates so far, and at the most hopeful rates."""
    trials, terms = race.evidence.seen, race.terms
    f1, n1 = trials.failed.failures[rows], trials.failed.draws[rows]
    f0, n0 = trials.baseline.failures[rows], trials.baseline.draws[rows]
    number = np.bincount(race.label[rows], minlength=_sizes(race)[1])
    share = np.array([baseline_share(int(n)) for n in number])[race.label[rows]]
    with np.errstate(divide="ignore"):
        to_show = np.log(race.threshold) - np.log(race.evidence.e_values[rows])
    to_gain = Growth(to_show, -np.log(terms.risk) - np.log(np.maximum(race.evidence.hopeless[rows], 1e-300)))
    caption_draws, drawn_base = np.maximum(n1, 1.0), np.maximum(n0, 1.0)
    likely = growth(
        np.minimum((f1 + 0.5) / caption_draws, 1.0), np.minimum((f0 + 0.5) / drawn_base, 1.0), share, terms.worth
    )
    at_best_rates = growth(
        np.minimum((f1 + HOPE) / caption_draws, 1.0), np.minimum(f0 / drawn_base, 1.0), share, terms.worth
    )
    return draws_to_decide(to_gain, likely), draws_to_decide(to_gain, at_best_rates)


def _baseline_draws(captions: Ints, label: Ints, labels: int) -> Ints:
    is_drawn = captions > 0
    number = np.bincount(label[is_drawn], minlength=labels)
    largest = np.zeros(labels)
    np.maximum.at(largest, label[is_drawn], captions[is_drawn].astype(np.float64))
    shares = np.array([baseline_share(int(n)) for n in number])
    baselines: Ints = np.ceil(largest * np.where(number > 0, shares, 0.0)).astype(np.int64)
    return baselines


def _sizes(race: Race) -> tuple[int, int]:
    return int(race.caption.max(initial=-1)) + 1, int(race.label.max(initial=-1)) + 1


# Computes from a budget the least rate at which a failure is likely to be found, before anything is drawn.


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
