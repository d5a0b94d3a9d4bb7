"""Compares models in pairs: whether their biases differ beyond chance, and whether gaps of one stage recur in
the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa

from c2b_ray.metrics import benjamini_hochberg
from c2b_ray.metrics.resampled_difference import SampledEstimate, difference_of_estimates
from c2b_ray.schemas.clip_bias import GAPS, MODEL_PAIRS
from c2b_ray.steps.clip_bias.attributes import GLOBAL
from c2b_ray.steps.clip_bias.rows import DOWNSTREAM, PRETRAINING, BiasRow, Key, RateRow

APART, ALIKE = "apart", "not told apart"


@dataclass(frozen=True)
class _Pair:
    """A row of `MODEL_PAIRS` before all pairs are tested together."""

    model_a: str
    model_b: str
    dataset: str
    metric: str
    attribute: str
    difference: float
    difference_low: float
    difference_high: float
    p_value: float


def pair_table(rows: Sequence[BiasRow], alpha: float, margin: float) -> pa.Table:
    """Returns for every two models, metric and attribute, over all images, whose bias is larger, and whether by more
    than a margin (`margin_of`) beyond chance.

    Both are measured on the same images, so they share bootstrap samples. Where these say little of either model, and
    for metrics without samples (LIC), both intervals decide.
    """
    of_key: dict[Key, list[BiasRow]] = {}
    for row in rows:
        if row.key.view == GLOBAL and np.isfinite(row.value):
            of_key.setdefault(row.key, []).append(row)
    pairs = []
    for key, some in of_key.items():
        for a, b in combinations(some, 2):
            least = margin_of(key.metric, margin)
            low, high, p_value = difference_of_estimates(_estimate(a), _estimate(b), 1 - alpha, least)
            of = (key.dataset, key.metric, key.attribute)
            pairs.append(_Pair(a.model, b.model, *of, a.value - b.value, low, high, p_value))
    q_values = benjamini_hochberg([pair.p_value for pair in pairs])
    judged = [
        {**vars(pair), "q_value": float(q), "verdict": APART if q <= alpha else ALIKE}
        for pair, q in zip(pairs, q_values, strict=True)
    ]
    return pa.Table.from_pylist(judged, MODEL_PAIRS)


def _estimate(row: BiasRow) -> SampledEstimate:
    drawn = np.zeros(0) if row.replicates is None else row.replicates
    return SampledEstimate(row.value, row.value_low, row.value_high, drawn)


def margin_of(metric: str, margin: float) -> float:
    """Returns the difference of a metric above which one model counts as more biased than another.

    However alike two models are made, enough images show that they differ: so a difference must also matter. `margin`
    is one of MaxSkew, which is the logarithm of a ratio of shares. A KL divergence of two groups whose rates are in
    that ratio is margin² / 8, up to higher powers. Other metrics have no margin.
    """
    if metric.startswith("max_skew"):
        return margin
    return margin**2 / 8 if metric.startswith("kl_") else 0.0


def gap_table(rates: Sequence[RateRow]) -> pa.Table:
    """Returns, for attributes with two values, the gap between their rates before and after (Ramos et al. 2025, Figure
    7)."""
    before, after = (_gaps([row for row in rates if row.key.stage == stage]) for stage in (PRETRAINING, DOWNSTREAM))
    gap_rows = []
    for (model, key), (gap, reach, names) in before.items():
        for (other, later), (change, width, others) in after.items():
            if other != model or later.attribute != key.attribute or others != names:
                continue
            gap_rows.append(
                {
                    "model": model, "attribute": key.attribute, "first": names[0], "second": names[1],
                    "pretraining_metric": key.metric.removeprefix("kl_"), "pretraining_dataset": key.dataset,
                    "downstream_metric": later.metric.removeprefix("kl_"), "downstream_dataset": later.dataset,
                    "pretraining_gap": gap, "pretraining_reach": reach, "downstream_gap": change,
                    "downstream_reach": width, "quadrant": quadrant(gap, change),
                }
            )  # fmt: skip
    return pa.Table.from_pylist(gap_rows, GAPS)


def quadrant(x: float, y: float) -> str:
    """Returns the quadrant, I to IV counterclockwise from the upper right; "" on an axis, or where a value is
    unknown."""
    if not np.isfinite(x * y) or x * y == 0:
        return ""
    return ("I" if y > 0 else "IV") if x > 0 else ("II" if y > 0 else "III")


def _gaps(rates: Sequence[RateRow]) -> dict[tuple[str, Key], tuple[float, float, tuple[str, str]]]:
    of: dict[tuple[str, Key], list[RateRow]] = {}
    for row in rates:
        if row.key.view == GLOBAL:
            of.setdefault((row.model, row.key), []).append(row)
    result = {}
    for where, some in of.items():
        if len(some) == 2:
            first, second = some
            error = float(np.hypot(first.standard_error, second.standard_error))
            names = (first.attribute_value, second.attribute_value)
            result[where] = (first.rate - second.rate, first.reach * error, names)
    return result
