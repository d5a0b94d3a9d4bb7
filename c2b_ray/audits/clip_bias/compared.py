"""Compares biases of two models: whose is larger, by dataset, metric, attribute and view, and whether that could be
chance.

It knows rows and bootstrap replicates, not runs or pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from c2b_ray.audits.clip_bias.steps.relations import margin_of
from c2b_ray.audits.kit.comparison import compared, decide, importance
from c2b_ray.stats.resampling import SampledEstimate, difference_of_estimates
from c2b_ray.tables.clip_bias import CLIP_BIAS_COMPARISON, ComparisonRow

KEY = ("dataset", "metric", "attribute", "view", "group")


@dataclass(frozen=True)
class Bias:
    """`estimate`: the value with bootstrap samples of images, or with none but an interval; None where it cannot be
    compared. `images`: identifies the sampled images: models with the same `images` have the same samples."""

    value: float
    n: int
    images: str
    estimate: SampledEstimate | None = None


def compare(
    a: Mapping[tuple[str, ...], Bias], b: Mapping[tuple[str, ...], Bias], alpha: float, margin: float
) -> pa.Table:
    """Returns a table of `CLIP_BIAS_COMPARISON`, B minus A: changed rows first, smallest q first.

    `a`, `b`: biases by `KEY`. With the same samples the difference is paired; otherwise the two are taken as
    independent, which is conservative for images in common. q is computed over all comparable rows (Benjamini &
    Hochberg 1995); a row is worse (B is more biased) or better where it is at most alpha. p is of a difference within
    the margin (`margin_of`).
    """
    rows = [_row(key, a.get(key), b.get(key), 1 - alpha, margin) for key in dict.fromkeys([*a, *b])]
    decide(rows, alpha)
    rows.sort(key=importance)
    return pa.Table.from_pylist(rows, CLIP_BIAS_COMPARISON)


def _row(key: tuple[str, ...], a: Bias | None, b: Bias | None, confidence: float, margin: float) -> ComparisonRow:
    dataset, metric, attribute, view, group = key
    paired, numbers = False, compared()
    if a is not None and b is not None and a.estimate is not None and b.estimate is not None:
        estimate_a, estimate_b = a.estimate, b.estimate
        paired = a.images == b.images and len(estimate_a.replicates) == len(estimate_b.replicates) > 0
        least = margin_of(metric, margin)
        low, high, p_value = difference_of_estimates(estimate_b, estimate_a, confidence, least, paired=paired)
        if np.isfinite(p_value):
            numbers = compared(b.value - a.value, low, high, p_value)
    return {
        "dataset": dataset,
        "metric": metric,
        "attribute": attribute,
        "view": view,
        "group": group,
        "value_a": _value(a),
        "value_b": _value(b),
        "n_a": 0 if a is None else a.n,
        "n_b": 0 if b is None else b.n,
        "paired": paired,
        **numbers,
    }


def _value(bias: Bias | None) -> float | None:
    return bias.value if bias is not None and np.isfinite(bias.value) else None
