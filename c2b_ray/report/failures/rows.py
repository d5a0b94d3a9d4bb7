"""The hypotheses of a run as typed rows: a caption, a classifier, the target of failures, and the numbers.

Knows the tables of `schemas.failures`; null or missing numbers become NaN. Knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

DISCOVERY, CONFIRMATION = "discovery", "confirmation"
FAILURE, NOT_SHOWN, UNDETERMINED = "failure", "not_shown", "undetermined"
BASELINE = "baseline"
MEASURE = "measure"
_NUMBERS = (
    "rate", "rate_low", "rate_high", "baseline_rate", "ratio", "ratio_low", "ratio_high", "p_value", "e_value",
    "q_value",
)  # fmt: skip


@dataclass(frozen=True)
class Hypothesis:
    """A row of `schemas.HYPOTHESES`. `sentences`: what stands behind the baseline's prompt; empty where the caption is
    a text of its own. `target`: None for any failure."""

    classifier: str
    generator: str
    label: str
    target: str | None
    caption: str
    caption_id: str
    parent_caption: str | None
    origin: str
    stage: str
    sentences: tuple[str, ...]
    draws: int
    failures: int
    any_failures: int
    rate: float
    rate_low: float
    rate_high: float
    baseline_rate: float
    ratio: float
    ratio_low: float
    ratio_high: float
    p_value: float
    e_value: float
    q_value: float
    verdict: str
    baseline_draws: int
    baseline_failures: int
    spent: int
    doubts: tuple[str, ...]
    clusters: int | None = None

    @property
    def confirmed(self) -> bool:
        return self.verdict == FAILURE

    @property
    def excess(self) -> float:
        """Returns a lower bound on how much more often the caption fails than the baseline, by which findings are
        ordered."""
        low, baseline = (0.0 if value != value else value for value in (self.rate_low, self.baseline_rate))
        return low - baseline

    @property
    def length(self) -> int:
        """Returns the number of words that the caption adds to the baseline's."""
        return len(" ".join(self.sentences or (self.caption,)).split())


@dataclass(frozen=True)
class Baseline:
    """A label's baseline caption."""

    caption_id: str
    text: str


def hypotheses_of(table: pa.Table, candidates: pa.Table, stage: str = CONFIRMATION) -> list[Hypothesis]:
    """Returns the stage's hypotheses except those about the baseline itself, in the table's order."""
    sentences = dict(zip(*(candidates[name].to_pylist() for name in ("caption_id", "sentences")), strict=True))
    return [
        _hypothesis(row, tuple(sentences.get(row["caption_id"]) or ()))
        for row in table.to_pylist()
        if row["stage"] == stage and row["origin"] != BASELINE
    ]


def baselines_of(candidates: pa.Table) -> dict[str, Baseline]:
    """Returns the baseline caption of each label."""
    return {
        row["label"]: Baseline(row["caption_id"], row["text"])
        for row in candidates.to_pylist()
        if row["origin"] == BASELINE
    }


def _hypothesis(row: Mapping[str, Any], sentences: tuple[str, ...]) -> Hypothesis:
    numbers = {name: float("nan") if row[name] is None else float(row[name]) for name in _NUMBERS}
    plain = {name: row[name] for name in Hypothesis.__dataclass_fields__ if name in row and name not in _NUMBERS}
    return Hypothesis(**{**plain, **numbers, "sentences": sentences, "doubts": tuple(row["doubts"] or ())})
