"""Ranks attributes by their importance over all classes (section 3.5), and describes who proposed them (App. J).

It knows scores and proposals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from c2b_ray.tables.evaluate import PROPOSERS, RANKING

DRAWS = 2000
SAME = 1e-12
"""Strengths that differ by less are equal."""


@dataclass(frozen=True)
class _Strength:
    """A row of `RANKING` without its rank."""

    method: str
    classifier: str
    attribute: str
    classes: int
    strength: float
    strength_low: float | None
    strength_high: float | None
    biased: int


def ranking(biases: pa.Table, alpha: float, seed: int) -> pa.Table:
    """Returns a table of `RANKING`: each attribute's mean |φ| over its values, then over classes, the strongest first.

    Classifier-to-Bias, section 3.5: "bias class scores can also be aggregated across bias attributes". The interval is
    a percentile bootstrap over classes; null for fewer than two classes.
    """
    cells: dict[tuple[str, str, str], dict[str, list[tuple[float, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in biases.to_pylist():
        if row["score"] is not None and not np.isnan(row["score"]):
            key = (row["source"], row["classifier"], row["attribute"])
            cells[key][row["target_class"]].append((abs(row["score"]), abs(row["tested"])))
    rows = [_strength(key, classes, alpha, seed) for key, classes in cells.items()]
    rows.sort(key=lambda row: (row.method, row.classifier, -row.strength, row.attribute))
    strengths: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        strengths[row.method, row.classifier].append(row.strength)
    ranked = [
        # Of equal strength none is before the other: 1, 1, 3.
        vars(row) | {"rank": 1 + sum(other > row.strength + SAME for other in strengths[row.method, row.classifier])}
        for row in rows
    ]
    return pa.Table.from_pylist(ranked, RANKING)


def _strength(
    key: tuple[str, str, str], classes: Mapping[str, list[tuple[float, int]]], alpha: float, seed: int
) -> _Strength:
    means = np.array([np.mean([size for size, _ in values]) for values in classes.values()])
    low = high = None
    if len(means) > 1:
        drawn = np.random.default_rng(seed).integers(0, len(means), (DRAWS, len(means)))
        low, high = np.quantile(means[drawn].mean(axis=1), [alpha / 2, 1 - alpha / 2]).tolist()
    biased = sum(sign for values in classes.values() for _, sign in values)
    return _Strength(*key, len(means), float(means.mean()), low, high, biased)


def proposers(methods: Mapping[str, tuple[str | None, pa.Table, int, int, pa.Table]]) -> pa.Table:
    """Returns a table of `PROPOSERS`. `methods`: by method, its language model, proposals, rejected replies, captions,
    and biases."""
    rows = []
    for method, (model, proposals, rejected, captions, biases) in methods.items():
        wanted = proposals.to_pylist()
        classes = {row["target_class"] for row in wanted}
        values = {(row["attribute"], value) for row in wanted for value in row["bias_classes"]}
        rows.append(
            {
                "method": method,
                "language_model": model,
                "classes": len(classes),
                "attributes": len({row["attribute"] for row in wanted}),
                "values": len(values),
                "rejected": rejected,
                "captions": captions,
                "biased": int(np.count_nonzero(biases["tested"].to_numpy())),
                "per_class": len(wanted) / len(classes) if classes else float("nan"),
            }
        )
    return pa.Table.from_pylist(rows, PROPOSERS)
