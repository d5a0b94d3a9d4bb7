"""evidence of every hypothesis → how many draws each caption and each baseline gets next.

A hypothesis says that a classifier fails more often on a caption than on its label's baseline (on any failure, or
towards one target). Several may share a caption's draws, and all of a label share its baseline's. It knows counts and
evidence; it knows nothing of images, of seeds, or of who draws.

The order of a run: `Race.start`, then `next_draws` → draw → `Race.after`, until `next_draws` is all zeros; then
`measure_draws`, so many as are fixed before they are drawn, for rates and intervals. The numbers of a batch are chosen
before any of its draws, from what was drawn before: that is all that the evidence asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.metrics.levels import checked_levels
from c2b_ray.metrics.rate_evidence import RateBatch, RateEvidence, e_q_values, more_evidence, no_evidence
from c2b_ray.metrics.scores import Floats, Ints

__all__ = ["Draws", "Race", "RaceTerms", "Standing", "measure_draws", "next_draws"]

Standing = Literal["failure", "hopeless", "open"]


@dataclass(frozen=True)
class RaceTerms:
    """alpha: of the false discovery rate. worth: the least ratio of rates that is drawn on for. risk: the probability
    at most of giving a caption up whose ratio is that high. first: draws of a caption in its first batch. growth: all
    draws of a caption after a batch over those before. measured: failures that the measuring part aims at."""

    alpha: float = 0.05
    worth: float = 2.0
    risk: float = 0.05
    first: int = 100
    growth: float = 1.6
    measured: int = 20

    def __post_init__(self) -> None:
        checked_levels(alpha=self.alpha, risk=self.risk)
        if self.first < 1 or self.measured < 1 or not self.growth > 1 or not self.worth > 1:
            raise ValueError(
                f"first={self.first}, measured={self.measured}, growth={self.growth}, worth={self.worth}; "
                "need first and measured of 1 or more, growth and worth above 1"
            )


@dataclass(frozen=True)
class Draws:
    """Numbers of draws, int64: of each caption and of each label's baseline."""

    captions: Ints
    baselines: Ints

    @property
    def total(self) -> int:
        return int(self.captions.sum() + self.baselines.sum())


@dataclass(frozen=True)
class Race:
    """All hypotheses of a run: of H hypotheses the number of its caption and of its label, and their evidence."""

    caption: Ints
    label: Ints
    evidence: RateEvidence
    terms: RaceTerms

    @classmethod
    def start(cls, caption: ArrayLike, label: ArrayLike, terms: RaceTerms | None = None) -> Race:
        """Before the first draw.

        Args: caption, label: whole numbers from 0, of shape (hypotheses,). A caption is of one label.
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
        return cls(of_caption, of_label, no_evidence(len(of_caption), terms.worth), terms)

    def after(
        self, failures: ArrayLike, draws: ArrayLike, baseline_failures: ArrayLike, baseline_draws: ArrayLike
    ) -> Race:
        """With one batch more: counts of shape (hypotheses,), of each one's caption and of its label's baseline.

        A hypothesis that is decided stays as it is: its evidence is that of the time when it was.
        """
        is_open = self.standing == "open"
        sides = (np.where(is_open, side, 0) for side in (failures, draws, baseline_failures, baseline_draws))
        return replace(self, evidence=more_evidence(self.evidence, RateBatch.of(*sides)))

    @property
    def q_values(self) -> Floats:
        return e_q_values(self.evidence.e_values)

    @property
    def standing(self) -> NDArray[np.str_]:
        """`Standing` of each hypothesis, str (hypotheses,).

        None ever changes once it is no longer open: evidence of the decided stays, and what e-BH rejects it goes on to
        reject whatever the others become.
        """
        hopeless = np.where(self.evidence.hopeless_e_values >= 1 / self.terms.risk, "hopeless", "open")
        return np.where(self.q_values <= self.terms.alpha, "failure", hopeless)


def next_draws(race: Race, left: int) -> Draws:
    """How many draws each caption and each baseline gets in the next batch, `left` at most in all.

    Every caption with an open hypothesis grows by `terms.growth`; where the draws left do not suffice, those come first
    whose evidence is furthest for what it has cost. A label's baseline gets `baseline_share` draws for each draw of a
    caption. All zeros: nothing is open, or too little is left.
    """
    captions = int(race.caption.max(initial=-1)) + 1
    labels = int(race.label.max(initial=-1)) + 1
    is_open = race.standing == "open"
    most = np.zeros(captions)
    np.maximum.at(most, race.caption[is_open], race.evidence.seen.failed.draws[is_open])
    wanted = np.zeros(captions, dtype=np.int64)
    has_open = np.unique(race.caption[is_open])
    grown = np.ceil(most * (race.terms.growth - 1))
    wanted[has_open] = np.maximum(grown, race.terms.first)[has_open].astype(np.int64)
    of_caption = np.zeros(captions, dtype=np.int64)
    of_caption[race.caption] = race.label
    promise = np.full(captions, -np.inf)
    np.maximum.at(promise, race.caption[is_open], np.log(np.maximum(race.evidence.e_values[is_open], 1e-300)))
    order = np.argsort(-promise, kind="stable")
    chosen = Draws(np.zeros(captions, dtype=np.int64), np.zeros(labels, dtype=np.int64))
    for number in order.tolist():
        tried = chosen.captions.copy()
        tried[number] = wanted[number]
        with_it = Draws(tried, _baseline_draws(tried, of_caption, labels))
        if with_it.total <= left:
            chosen = with_it
    return chosen


def measure_draws(race: Race, most: int) -> Draws:
    """How many draws the measuring part takes of each caption and each baseline, `most` each.

    So many that `terms.measured` failures are expected by the rate that the test saw, of the rarest of the hypotheses
    that are failures (of a caption without one: none). The numbers are fixed before the first of these draws, and the
    draws are new ones: so rates and intervals from them are unbiased, whatever chose the caption.
    """
    captions = int(race.caption.max(initial=-1)) + 1
    labels = int(race.label.max(initial=-1)) + 1
    chosen = race.standing == "failure"
    own, base = np.zeros(captions), np.zeros(labels)
    for numbers, seen, of in (
        (race.caption, race.evidence.seen.failed, own),
        (race.label, race.evidence.seen.baseline, base),
    ):
        rates = (seen.failures + 0.5) / (seen.draws + 1)
        np.maximum.at(of, numbers[chosen], np.ceil(race.terms.measured / rates[chosen]))
    return Draws(*(np.minimum(of, most).astype(np.int64) for of in (own, base)))


def baseline_share(captions: int) -> float:
    """Baseline draws for each draw of a caption when `captions` captions of its label are drawn in equal numbers."""
    return 1.2 * float(np.sqrt(max(captions, 1)))


def _baseline_draws(captions: Ints, label: Ints, labels: int) -> Ints:
    drawn = captions > 0
    number = np.bincount(label[drawn], minlength=labels)
    largest = np.zeros(labels)
    np.maximum.at(largest, label[drawn], captions[drawn].astype(np.float64))
    shares = np.array([baseline_share(int(n)) for n in number])
    baselines: Ints = np.ceil(largest * np.where(number > 0, shares, 0.0)).astype(np.int64)
    return baselines
