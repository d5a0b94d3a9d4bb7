"""Decides from the evidence of every hypothesis how many draws each caption and each baseline gets next.

A hypothesis says that a classifier fails more often on a caption than on its label's baseline (any failure, or towards
one target). Several may share a caption's draws, and all of a label share its baseline's. It knows counts and evidence,
and nothing of images, of seeds, or of who draws.

The course of a run: `Race.start`, then `next_draws` → draw → `Race.after`, until `next_draws` is all zeros; then
`measure_draws`, numbers of draws that are fixed in advance, for rates and intervals. The size of each batch is chosen
before its draws, from earlier draws only: the evidence requires no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.stats.rate_evidence import RateBatch, RateEvidence, e_q_values, more_evidence, no_evidence
from c2b_ray.stats.roots import checked_levels
from c2b_ray.stats.scores import Floats, Ints

__all__ = ["DrawCounts", "Race", "RaceTerms", "measure_draws", "next_draws"]


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
        is_open = self.standing == "open"
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
    def standing(self) -> NDArray[np.str_]:
        """The `Standing` of each hypothesis, str (hypotheses,).

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
    open_rows = np.flatnonzero(race.standing == "open")
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
    is_failure = race.standing == "failure"
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
