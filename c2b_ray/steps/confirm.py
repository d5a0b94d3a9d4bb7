"""Measures how large findings are on images that had no part in selecting them.

Findings are the largest of many φ, so their own images overstate them. This module decides which cells draw fresh
images and joins the scores on these; it does not know where images come from.
"""

from __future__ import annotations

import math

import pyarrow as pa

from c2b_ray.schemas import SCORES
from c2b_ray.steps.cells import CellKey, counts_by_source

_NAMES = ("classifier", "target_class", "attribute", "bias_class")


def to_confirm(scores: pa.Table, captions: pa.Table, draws: pa.Table) -> dict[CellKey, int]:
    """Returns, for every cell of an attribute with a finding, the number of images that it drew (from the source that
    gave it most).

    φ compares the cells of an attribute, so all of them need fresh images.
    """
    columns = (scores[name].to_pylist() for name in ("target_class", "attribute", "verdict"))
    groups = {
        (target, attribute) for target, attribute, said in zip(*columns, strict=True) if said in ("for", "against")
    }
    cells = {
        (row["proposal_id"], row["bias_class"])
        for row in captions.to_pylist()
        if (row["target_class"], row["attribute"]) in groups
    }
    drawn = counts_by_source(captions, draws)
    return {cell: max(images.values()) for cell, images in drawn.items() if cell in cells}


def confirmed(scores: pa.Table, fresh: pa.Table) -> pa.Table:
    """Returns the scores with φ and its limits on fresh images; null where there are none.

    `fresh`: a table of `schemas.SCORES`, computed only on the images drawn for confirmation.
    """
    of = {tuple(row[name] for name in _NAMES): row for row in fresh.to_pylist()}
    rows = scores.to_pylist()
    for row in rows:
        fresh_score = of.get(tuple(row[name] for name in _NAMES), {})
        for name in ("phi", "phi_low", "phi_high"):
            value = fresh_score.get(name)
            row[name.replace("phi", "phi_confirmed", 1)] = None if value is None or math.isnan(value) else value
    return pa.Table.from_pylist(rows, SCORES)
