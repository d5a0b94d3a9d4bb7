"""hypotheses of two classifiers → which captions fail more often for B than for A.

Hypotheses are the same where label, target, caption and generator are. It knows rows, not runs or pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from c2b_ray.metrics.rate_differences import rate_difference_p_values, rate_differences
from c2b_ray.metrics.rates import Trials, rate_ratios
from c2b_ray.metrics.testing import benjamini_hochberg
from c2b_ray.schemas.failures import FAILURES_COMPARISON

KEY = ("label", "target", "caption", "generator")
ENDS = ("", "_low", "_high")
_NOTHING: Mapping[str, Any] = {"failures": 0, "draws": 0, "rate": None, "q_value": None, "verdict": None, "doubts": []}


def compare(a: Iterable[Mapping[str, Any]], b: Iterable[Mapping[str, Any]], alpha: float) -> pa.Table:
    """A table of `schemas.FAILURES_COMPARISON`, those that changed first, the largest difference first.

    `a`, `b`: rows with `KEY`, `failures`, `draws`, `rate`, `q_value`, `verdict`, `doubts`: hypotheses of confirmation
    and baselines of one classifier each. q is over all that both have (Benjamini & Hochberg 1995); worse and better
    where it is at most alpha and nothing is in doubt.
    """
    of_a, of_b = _by_key(a), _by_key(b)
    keys = list(dict.fromkeys([*of_a, *of_b]))
    pairs = [(of_a.get(key, _NOTHING), of_b.get(key, _NOTHING)) for key in keys]
    trials_a, trials_b = _trials([left for left, _ in pairs]), _trials([right for _, right in pairs])
    differences, p_values = (
        rate_differences(trials_a, trials_b, 1 - alpha),
        rate_difference_p_values(trials_a, trials_b),
    )
    ratios = rate_ratios(trials_b, trials_a, 1 - alpha)
    both = (trials_a.draws > 0) & (trials_b.draws > 0)
    q_values = p_values.copy()
    q_values[both] = benjamini_hochberg(p_values[both])
    rows: list[dict[str, Any]] = []
    for at, (key, (left, right)) in enumerate(zip(keys, pairs, strict=True)):
        limits = {"difference": differences, "ratio": ratios}
        numbers = {
            f"{name}{end}": float(side[at]) for name, of in limits.items() for end, side in zip(ENDS, of, strict=True)
        }
        numbers |= {"p_value": float(p_values[at]), "q_value": float(q_values[at])}
        doubts = list(dict.fromkeys([*left["doubts"], *right["doubts"]]))
        known = dict.fromkeys(numbers) if not both[at] else numbers
        change = "undetermined"
        if both[at] and not doubts and numbers["q_value"] <= alpha:
            change = "worse" if numbers["difference"] > 0 else "better"
        rows.append(
            dict(zip(KEY, key, strict=True)) | _named(left, "a") | _named(right, "b") | known
            | {"change": change, "doubts": doubts}
        )  # fmt: skip
    rows.sort(key=lambda row: (row["change"] == "undetermined", -abs(row["difference"] or 0.0)))
    return pa.Table.from_pylist(rows, FAILURES_COMPARISON)


def _by_key(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], Mapping[str, Any]]:
    """Of a caption that was drawn for a person too, the row with the most draws."""
    return {tuple(row[name] for name in KEY): row for row in sorted(rows, key=lambda row: int(row["draws"]))}


def _trials(rows: list[Mapping[str, Any]]) -> Trials:
    return Trials.of([row["failures"] for row in rows], [row["draws"] for row in rows])


def _named(row: Mapping[str, Any], side: str) -> dict[str, Any]:
    return {f"{name}_{side}": row[name] for name in ("failures", "draws", "rate", "verdict")}
