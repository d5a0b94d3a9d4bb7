"""Compares scores of two sources: do retrieved and generated images of a hypothesis say the same about a classifier?

It compares the two φ cell by cell; it does not know how images were obtained, nor how they were verified.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from c2b_ray import metrics
from c2b_ray.schemas import AGREEMENT
from c2b_ray.steps.draw import GENERATE, RETRIEVE

NAMES = ("classifier", "target_class", "attribute", "bias_class")
FROM_SCORES = ("n", "phi", "phi_low", "phi_high")
MARGIN = 2.0
"""Two φ count as the same up to this many τ apart: each may be τ away from the truth that both measure."""


def agreement(retrieved: pa.Table, generated: pa.Table, tau: float, alpha: float) -> pa.Table:
    """Returns a table of `schemas.AGREEMENT` from two tables of `schemas.SCORES` of the same cells.

    A cell whose images are in doubt in either source is `undetermined` and not tested. Otherwise it is `different`
    where the test of |difference| ≤ τ is rejected (false discovery rate `alpha` over all classifiers' cells); `same`
    where its 1 − `alpha` interval lies within 2τ of 0; else `undetermined`. The interval combines those of the two φ,
    which rest on different images (MOVER, Zou & Donner 2008). The p-value matches the width of the interval: the
    probability, at a true difference of τ, of a difference at least as extreme on either side.
    """
    other = {tuple(row[name] for name in NAMES): row for row in generated.to_pylist()}
    rows = []
    for row in retrieved.to_pylist():
        twin = other.get(tuple(row[name] for name in NAMES))
        if twin is not None:
            rows.append(_compared(row, twin, tau, alpha))
    q = metrics.benjamini_hochberg(np.array([row["p_value"] for row in rows], float))
    for row, q_value in zip(rows, q.tolist(), strict=True):
        row["q_value"] = q_value
        row["agreement"] = _verdict(row, tau, alpha)
    return pa.Table.from_pylist(rows, AGREEMENT)


def _compared(a: dict[str, float], b: dict[str, float], tau: float, alpha: float) -> dict[str, object]:
    difference = b["phi"] - a["phi"]
    below = np.hypot(b["phi"] - b["phi_low"], a["phi_high"] - a["phi"])
    above = np.hypot(b["phi_high"] - b["phi"], a["phi"] - a["phi_low"])
    towards = below if difference > 0 else above
    trusted = a["doubt"] is None and b["doubt"] is None
    return {
        **{name: a[name] for name in NAMES},
        **{f"{name}_{RETRIEVE}": a[name] for name in FROM_SCORES},
        **{f"{name}_{GENERATE}": b[name] for name in FROM_SCORES},
        "difference": difference,
        "difference_low": float(np.clip(difference - below, -2.0, 2.0)),
        "difference_high": float(np.clip(difference + above, -2.0, 2.0)),
        "p_value": metrics.p_value_of_limit(difference, towards, 1 - alpha, tau) if trusted else float("nan"),
    }


def _verdict(row: dict[str, object], tau: float, alpha: float) -> str:
    difference, low, high, q = (float(row[n]) for n in ("difference", "difference_low", "difference_high", "q_value"))  # type: ignore[arg-type]
    if np.isnan(q):
        return "undetermined"
    if q <= alpha and abs(difference) > tau:
        return "different"
    if low >= -MARGIN * tau and high <= MARGIN * tau:
        return "same"
    return "undetermined"
