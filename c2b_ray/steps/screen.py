"""Two stages: scores on a few images of every cell, then scores on fresh images of the attributes whose φ looks large.

It decides which attributes get fresh images and joins both scores; it does not know where images come from.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from c2b_ray.metrics.levels import deviations
from c2b_ray.metrics.screening import least_found
from c2b_ray.schemas import SCORES
from c2b_ray.steps.cells import CellKey, Group
from c2b_ray.steps.intersect import ATTRIBUTE, of_kind
from c2b_ray.steps.reasons import TOO_FEW
from c2b_ray.steps.thresholds import Thresholds

FINDINGS = ("for", "against")


def selected(scores: pa.Table, least: float) -> set[Group]:
    """Returns the (target class, attribute) pairs that get fresh images: those in which any value, for any classifier,
    has |φ| ≥ `least` or a finding.

    φ compares the values of an attribute, and classifiers share images: so all values of an attribute get them.
    """
    rows = scores.select(["target_class", "attribute", "phi", "verdict"]).to_pylist()
    return {
        Group(row["target_class"], row["attribute"])
        for row in rows
        if abs(row["phi"]) >= least or row["verdict"] in FINDINGS
    }


def cells_to_draw(captions: pa.Table, groups: Collection[Group], fresh: int) -> dict[CellKey, int]:
    """Returns the number of fresh images of every cell of these attributes."""
    return {(row["proposal_id"], row["bias_class"]): fresh for row in captions_of(captions, groups).to_pylist()}


def captions_of(captions: pa.Table, groups: Collection[Group]) -> pa.Table:
    """Returns the captions of these (target class, attribute) pairs, without intersections."""
    single = of_kind(captions, ATTRIBUTE)
    pairs = zip(single["target_class"].to_pylist(), single["attribute"].to_pylist(), strict=True)
    return single.filter(pa.array([pair in groups for pair in pairs], pa.bool_()))


def in_two_stages(
    scores: pa.Table, fresh: pa.Table, groups: Collection[Group], least: float, per_cell: int, thresholds: Thresholds
) -> pa.Table:
    """Returns the result of both stages: of the selected attributes the rows of `fresh`, of all others those of the
    first stage.

    `scores`, `fresh`: tables of `schemas.SCORES`, the second computed on the fresh images alone, and only for these
    `groups`: they are its family of tests. The first stage alone makes no finding; it can show `none`. Every row gets
    `detectable`, the smallest |φ| that the design of `per_cell` fresh images finds four times in five.
    """
    rows = scores.to_pylist()
    names = ("classifier", "target_class", "attribute", "bias_class")
    of_fresh = {tuple(row[name] for name in names): row for row in fresh.to_pylist()}
    findings = sum(row["verdict"] in FINDINGS for row in of_fresh.values())
    # One more finding would have to pass this step of Benjamini and Hochberg's ladder.
    level = thresholds.alpha * min(1.0, (findings + 1) / max(1, len(of_fresh)))
    smallest = _detectable(scores, per_cell, least, thresholds, level)
    joined = []
    for row, detectable in zip(rows, smallest, strict=True):
        kept = row
        if (row["target_class"], row["attribute"]) in groups:
            kept = of_fresh[tuple(row[name] for name in names)]
        elif (row["undetermined_because"] or "").startswith(TOO_FEW):  # other reasons more images would not remove
            because = f"no value of its attribute had |φ| ≥ {least:g} at the screening, so it drew no fresh images"
            kept = row | {"undetermined_because": because}
        joined.append(kept | {"detectable": detectable})
    return pa.Table.from_pylist(joined, SCORES)


def _detectable(
    scores: pa.Table, per_cell: int, least: float, thresholds: Thresholds, level: float
) -> list[float | None]:
    """Returns the smallest |φ| of each row that both stages find four times in five; null where nothing is known.

    The standard deviation of the first stage's φ follows from the width of its interval, which includes the verifier's
    errors and the differences between captions; the fresh images' is taken to shrink with the root of their number.
    """
    low, high, n = (np.array(scores[name].to_pylist(), np.float64) for name in ("phi_low", "phi_high", "n"))
    first = (high - low) / (2 * deviations(thresholds.confidence))
    found = least_found(first, (np.maximum(n, 1), float(per_cell)), least, thresholds.tau, level)
    return [None if np.isnan(value) else float(value) for value in found]
