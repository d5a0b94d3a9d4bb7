"""Compares outcomes of two evaluations over one ground truth: whose methods hit more and have fewer false hits.

It knows rows of `tables.evaluate.OUTCOMES`, not runs or pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray import stats
from c2b_ray.audits.evaluate.steps.outcomes import WORDS
from c2b_ray.audits.kit.comparison import BETTER, compared, decide, importance
from c2b_ray.tables.evaluate import EVALUATION_COMPARISON, ComparisonRow

Row = Mapping[str, Any]
OF = ("rule", "threshold_kind", "direction")
_NUMBERS = {word: number for number, word in WORDS.items()}


@dataclass(frozen=True)
class Levels:
    """The evaluations' levels."""

    alpha: float
    seed: int


def compare(a: Sequence[Row], b: Sequence[Row], pairs: Iterable[tuple[str, str]], levels: Levels) -> pa.Table:
    """Returns a table of `EVALUATION_COMPARISON`, B minus A: changed rows first, smallest q first.

    `a`, `b`: outcomes of both sides. `pairs`: methods of A and B to compare. The bootstrap draws classes of
    classifiers, the same for both sides (`stats.outcome_difference`); q is computed over all comparable rows
    (Benjamini & Hochberg 1995).
    """
    sides = [_by_method(rows) for rows in (a, b)]
    rows = [
        _row(
            methods,
            comparison_key,
            [side.get((name, *comparison_key), []) for side, name in zip(sides, methods, strict=True)],
            levels,
        )
        for methods in pairs
        for comparison_key in dict.fromkeys(key[1:] for side in sides for key in side if key[0] in methods)
    ]
    decide(rows, levels.alpha, rising=BETTER)
    rows.sort(key=importance)
    return pa.Table.from_pylist(rows, EVALUATION_COMPARISON)


def _by_method(rows: Iterable[Row]) -> dict[tuple[str, ...], list[Row]]:
    result: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        result.setdefault((row["method"], *(row[name] for name in OF)), []).append(row)
    return result


def _row(
    methods: tuple[str, str], comparison_key: tuple[str, ...], sides: Sequence[Sequence[Row]], levels: Levels
) -> ComparisonRow:
    number_of = {group: number for number, group in enumerate(sorted({_group(row) for side in sides for row in side}))}
    outcomes = [np.array([_NUMBERS[row["outcome"]] for row in side], np.int64) for side in sides]
    clusters = [np.array([number_of[_group(row)] for row in side], np.int64) for side in sides]
    # B first: the difference is B's less A's.
    b_then_a = (outcomes[1], outcomes[0]), (clusters[1], clusters[0])
    difference = stats.outcome_difference(*b_then_a, 1 - levels.alpha, seed=levels.seed)
    rule, threshold_kind, direction = comparison_key
    means = [float(values.mean()) if len(values) else None for values in outcomes]
    return {
        "method_a": methods[0],
        "method_b": methods[1],
        "rule": rule,
        "threshold_kind": threshold_kind,
        "direction": direction,
        "biases_a": len(outcomes[0]),
        "biases_b": len(outcomes[1]),
        "hit_minus_false_a": means[0],
        "hit_minus_false_b": means[1],
        **(compared(*difference) if np.isfinite(difference.p_value) else compared()),
    }


def _group(row: Row) -> tuple[str, str]:
    return row["classifier"], row["target_class"]
