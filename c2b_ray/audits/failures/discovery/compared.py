"""Compares hypotheses of two classifiers: which captions fail more often for B than for A.

Hypotheses correspond where label, target, caption and generator are equal. It knows rows, not runs or pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.stats.multiplicity import benjamini_hochberg
from c2b_ray.stats.rates import RateEstimate, Trials, rate_difference_p_values, rate_difference_ratios, rate_differences
from c2b_ray.stats.scores import Floats
from c2b_ray.tables.failures import FAILURES_COMPARISON, ComparisonRow

Side = Mapping[str, Any]
KEY = ("label", "target", "caption", "generator")
_NOTHING: Mapping[str, Any] = {"failures": 0, "draws": 0, "rate": None, "q_value": None, "verdict": None, "doubts": []}


def compare(a: Iterable[Mapping[str, Any]], b: Iterable[Mapping[str, Any]], alpha: float) -> pa.Table:
    """Returns a table of `tables.FAILURES_COMPARISON`: changed rows first, the largest difference first.

    `a`, `b`: rows with `KEY`, `failures`, `draws`, `rate`, `q_value`, `verdict`, `doubts`: hypotheses of confirmation
    and baselines of one classifier each. Both may rest on the same images: p-values and limits hold however the
    failures of the two are correlated. q is computed over all rows that both have (Benjamini & Hochberg 1995); a row is
    worse or better where it is at most alpha and nothing is in doubt.
    """
    sides_a, sides_b = _by_key(a), _by_key(b)
    keys = list(dict.fromkeys([*sides_a, *sides_b]))
    pairs = [(sides_a.get(key, _NOTHING), sides_b.get(key, _NOTHING)) for key in keys]
    trials_a, trials_b = _trials([side_a for side_a, _ in pairs]), _trials([side_b for _, side_b in pairs])
    differences, p_values = (
        rate_differences(trials_a, trials_b, 1 - alpha),
        rate_difference_p_values(trials_a, trials_b),
    )
    ratios = rate_difference_ratios(trials_a, trials_b, 1 - alpha)
    in_both = (trials_a.draws > 0) & (trials_b.draws > 0)
    q_values = benjamini_hochberg(np.where(in_both, p_values, np.nan))
    numbers = _Numbers(differences, ratios, p_values, q_values, in_both)
    rows = [numbers.row(i, key, pair, alpha) for i, (key, pair) in enumerate(zip(keys, pairs, strict=True))]
    rows.sort(key=lambda row: (row["change"] == "undetermined", -abs(row["difference"] or 0.0)))
    return pa.Table.from_pylist(rows, FAILURES_COMPARISON)


@dataclass(frozen=True)
class _Numbers:
    """The numbers of all pairs. `both`: pairs in which both sides have draws; nothing is known about other pairs."""

    differences: RateEstimate
    ratios: RateEstimate
    p_values: Floats
    q_values: Floats
    both: NDArray[np.bool_]

    def row(self, at: int, key: tuple[Any, ...], sides: tuple[Side, Side], alpha: float) -> ComparisonRow:
        (a, b), (label, target, caption, generator) = sides, key
        doubts = list(dict.fromkeys([*a["doubts"], *b["doubts"]]))
        changed = self.both[at] and not doubts and self.q_values[at] <= alpha
        return {
            "label": label,
            "target": target,
            "caption": caption,
            "generator": generator,
            "failures_a": a["failures"],
            "failures_b": b["failures"],
            "draws_a": a["draws"],
            "draws_b": b["draws"],
            "rate_a": a["rate"],
            "rate_b": b["rate"],
            "verdict_a": a["verdict"],
            "verdict_b": b["verdict"],
            "difference": self._known(self.differences.value, at),
            "difference_low": self._known(self.differences.low, at),
            "difference_high": self._known(self.differences.high, at),
            "ratio": self._known(self.ratios.value, at),
            "ratio_low": self._known(self.ratios.low, at),
            "ratio_high": self._known(self.ratios.high, at),
            "p_value": self._known(self.p_values, at),
            "q_value": self._known(self.q_values, at),
            "change": "undetermined" if not changed else "worse" if self.differences.value[at] > 0 else "better",
            "doubts": doubts,
        }

    def _known(self, values: Floats, i: int) -> float | None:
        return float(values[i]) if self.both[i] else None


def _by_key(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """Returns the rows by `KEY`; for a caption that was also drawn for a person, the row with the most draws."""
    return {tuple(row[name] for name in KEY): row for row in sorted(rows, key=lambda row: int(row["draws"]))}


def _trials(rows: list[Mapping[str, Any]]) -> Trials:
    return Trials.of([row["failures"] for row in rows], [row["draws"] for row in rows])
