"""Totals over rounds: for each caption, classifier, generator and stage the draws, failures and wrong answers.

Rates of confirmation come from the part `measure` alone, whose draws were fixed beforehand; where that part was drawn,
wrong answers are counted in it too. Knows the columns of `schemas.ROUNDS` but its pictures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from c2b_ray.report.failures.rows import CONFIRMATION, MEASURE

COLUMNS = [
    "caption_id", "stage", "part", "generator", "classifier", "first", "draws", "unusable", "reasons", "failures",
    "predicted", "counts", "seconds",
]  # fmt: skip
UNDECIDED = "no single label"


def share(part: int, whole: int) -> float:
    """Returns part / whole; NaN where `whole` is 0."""
    return part / whole if whole else math.nan


@dataclass
class Tally:
    """A total. `taken`: the number of failures by wrong answer; failures without a single likeliest label are
    `UNDECIDED`."""

    draws: int = 0
    failures: int = 0
    taken: Counter[str] = field(default_factory=Counter)

    def towards(self, target: str | None) -> int:
        return self.failures if target is None else self.taken[target]

    def add(self, row: Mapping[str, Any]) -> None:
        counted = dict(zip(row["predicted"], row["counts"], strict=True))
        self.draws += row["draws"]
        self.failures += row["failures"]
        self.taken.update(counted)
        if rest := row["failures"] - sum(counted.values()):
            self.taken[UNDECIDED] += rest


@dataclass(frozen=True)
class Effort:
    """Images drawn of a stage and part, each counted once for all classifiers; `reasons`: why some were unusable."""

    images: int
    unusable: int
    seconds: float
    reasons: tuple[str, ...]


NOTHING = Effort(0, 0, 0.0, ())

TallyKey = tuple[str, str, str]


@dataclass(frozen=True)
class Tallies:
    """By (caption, classifier, generator)."""

    confirmed: Mapping[TallyKey, Tally]
    discovered: Mapping[TallyKey, Tally]
    efforts: Mapping[tuple[str, str], Effort]

    def of(self, caption_id: str, classifier: str, generator: str) -> Tally:
        """Returns the tally of confirmation; an empty one where a caption was not drawn there."""
        return self.confirmed.get((caption_id, classifier, generator), Tally())


def tallies_of(rounds: pa.Table, counted: Collection[str] | None = None) -> Tallies:
    """`rounds`: of `COLUMNS`; `counted`: captions whose images count as effort, by default all."""
    measured: dict[TallyKey, Tally] = {}
    confirmed: dict[TallyKey, Tally] = {}
    discovered: dict[TallyKey, Tally] = {}
    drawn: dict[tuple[str, str, str, str, int], Effort] = {}
    for row in _rows(rounds):
        key = row["caption_id"], row["classifier"], row["generator"]
        (confirmed if row["stage"] == CONFIRMATION else discovered).setdefault(key, Tally()).add(row)
        if row["part"] == MEASURE:
            measured.setdefault(key, Tally()).add(row)
        if counted is None or row["caption_id"] in counted:
            images = row["stage"], row["part"], row["caption_id"], row["generator"], row["first"]
            drawn[images] = _larger(drawn.get(images, NOTHING), _effort(row))
    return Tallies({**confirmed, **measured}, discovered, _efforts(drawn))


def _rows(rounds: pa.Table) -> Iterable[Mapping[str, Any]]:
    for batch in rounds.select(COLUMNS).to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def _effort(row: Mapping[str, Any]) -> Effort:
    return Effort(row["draws"] + row["unusable"], row["unusable"], row["seconds"], tuple(row["reasons"]))


def _larger(a: Effort, b: Effort) -> Effort:
    """Returns the larger of two efforts on the same images, as classifiers differ in the images that they can use."""
    reasons = tuple(dict.fromkeys((*a.reasons, *b.reasons)))
    return Effort(max(a.images, b.images), max(a.unusable, b.unusable), max(a.seconds, b.seconds), reasons)


def _efforts(drawn: Mapping[tuple[str, str, str, str, int], Effort]) -> dict[tuple[str, str], Effort]:
    efforts: dict[tuple[str, str], Effort] = {}
    for (stage, part, *_), one in drawn.items():
        so_far = efforts.get((stage, part), NOTHING)
        efforts[stage, part] = Effort(
            so_far.images + one.images,
            so_far.unusable + one.unusable,
            so_far.seconds + one.seconds,
            tuple(dict.fromkeys((*so_far.reasons, *one.reasons))),
        )
    return efforts
