"""Measures how large findings are on images that had no part in selecting them.

Findings are the largest of many φ, so their own images overstate them. This module decides which cells draw fresh
images and joins the scores on these; it does not know where images come from.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from c2b_ray import stats
from c2b_ray.steps.cells import CellKey, counts_by_source
from c2b_ray.steps.draw import GENERATE, RETRIEVE
from c2b_ray.tables import AGREEMENT, SCORES

_NAMES = ("classifier", "target_class", "attribute", "bias_class")


def to_confirm(scores: pa.Table, captions: pa.Table, draws: pa.Table) -> dict[CellKey, int]:
    """Returns, for every cell of an attribute with a finding, the number of images that it drew (from the source that
    gave it most).

    φ compares the cells of an attribute, so all of them need fresh images.
    """
    columns = (scores[name].to_pylist() for name in ("target_class", "attribute", "verdict"))
    groups = {
        (target, attribute)
        for target, attribute, verdict in zip(*columns, strict=True)
        if verdict in ("for", "against")
    }
    cells = {
        (row["proposal_id"], row["bias_class"])
        for row in captions.to_pylist()
        if (row["target_class"], row["attribute"]) in groups
    }
    images_drawn = counts_by_source(captions, draws)
    return {cell: max(images.values()) for cell, images in images_drawn.items() if cell in cells}


def confirmed(scores: pa.Table, fresh: pa.Table) -> pa.Table:
    """Returns the scores with φ and its limits on fresh images; null where there are none.

    `fresh`: a table of `tables.SCORES`, computed only on the images drawn for confirmation.
    """
    fresh_rows = {tuple(row[name] for name in _NAMES): row for row in fresh.to_pylist()}
    rows = scores.to_pylist()
    for row in rows:
        fresh_score = fresh_rows.get(tuple(row[name] for name in _NAMES), {})
        for name in ("phi", "phi_low", "phi_high"):
            value = fresh_score.get(name)
            row[name.replace("phi", "phi_confirmed", 1)] = None if value is None or math.isnan(value) else value
    return pa.Table.from_pylist(rows, SCORES)


# Compares scores of two sources: do retrieved and generated images of a hypothesis say the same about a classifier?


NAMES = ("classifier", "target_class", "attribute", "bias_class")
FROM_SCORES = ("n", "phi", "phi_low", "phi_high")
MARGIN = 2.0
"""Two φ count as the same up to this many τ apart: each may be τ away from the truth that both measure."""


def agreement(retrieved: pa.Table, generated: pa.Table, tau: float, alpha: float) -> pa.Table:
    """Returns a table of `tables.AGREEMENT` from two tables of `tables.SCORES` of the same cells.

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
    q = stats.benjamini_hochberg(np.array([row["p_value"] for row in rows], float))
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
        "p_value": stats.p_value_of_limit(difference, towards, 1 - alpha, tau) if trusted else float("nan"),
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
