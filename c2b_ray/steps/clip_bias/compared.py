"""Compares biases of two models: whose is larger, by dataset, metric, attribute and view, and whether that could be
chance.

It knows rows and bootstrap replicates, not runs or pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.metrics import Floats, benjamini_hochberg
from c2b_ray.metrics.resampling import difference_of, independent_difference_of
from c2b_ray.schemas.clip_bias import CLIP_BIAS_COMPARISON

KEY = ("dataset", "metric", "attribute", "view", "group")
WORSE, BETTER, UNDETERMINED = "worse", "better", "undetermined"
_COMPARED = ("difference", "difference_low", "difference_high", "p_value")


@dataclass(frozen=True)
class Bias:
    """`replicates`: the value in bootstrap samples of images; None for a metric without any. `images`: identifies the
    sampled images: models with the same `images` have the same samples."""

    value: float
    n: int
    images: str
    replicates: Floats | None = None


def compare(a: Mapping[tuple[str, ...], Bias], b: Mapping[tuple[str, ...], Bias], alpha: float) -> pa.Table:
    """Returns a table of `CLIP_BIAS_COMPARISON`, B minus A: changed rows first, smallest q first.

    `a`, `b`: biases by `KEY`. With the same samples the difference is paired; otherwise the two are taken as
    independent, which is conservative for images in common. q is computed over all comparable rows (Benjamini &
    Hochberg 1995); a row is worse (B is more biased) or better where it is at most alpha.
    """
    rows = [_row(key, a.get(key), b.get(key), 1 - alpha) for key in dict.fromkeys([*a, *b])]
    known = [row for row in rows if row["p_value"] is not None]
    q_values = benjamini_hochberg([row["p_value"] for row in known]) if known else np.zeros(0)
    for row, q in zip(known, q_values, strict=True):
        row["q_value"] = float(q)
        if q <= alpha:
            row["change"] = WORSE if row["difference"] > 0 else BETTER
    rows.sort(key=lambda row: (row["change"] == UNDETERMINED, 2.0 if row["q_value"] is None else row["q_value"]))
    return pa.Table.from_pylist(rows, CLIP_BIAS_COMPARISON)


def _row(key: Iterable[str], a: Bias | None, b: Bias | None, confidence: float) -> dict[str, Any]:
    paired, numbers = False, dict.fromkeys(_COMPARED)
    if a is not None and b is not None and a.replicates is not None and b.replicates is not None:
        paired = a.images == b.images and len(a.replicates) == len(b.replicates)
        difference = difference_of if paired else independent_difference_of
        low, high, p_value = difference(b.replicates, a.replicates, (b.value, a.value), confidence)
        if np.isfinite(p_value):
            numbers = dict(zip(_COMPARED, (b.value - a.value, low, high, p_value), strict=True))
    sides = {
        f"{name}_{side}": value
        for side, of in (("a", a), ("b", b))
        for name, value in (
            ("value", of.value if of is not None and np.isfinite(of.value) else None),
            ("n", of.n if of is not None else 0),
        )
    }
    fixed = {"q_value": None, "paired": paired, "change": UNDETERMINED}
    return {**dict(zip(KEY, key, strict=True)), **sides, **numbers, **fixed}
