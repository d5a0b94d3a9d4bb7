"""Finds the labelled attributes near a direction, whether or not the problem names them.

Knows vectors of one generator's latent space; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from c2b_ray.report.kit import words

WORTH_SAYING = 0.2
_MOST = 4


def nearest_attributes(row: Mapping[str, Any], planes: Sequence[Mapping[str, Any]]) -> str:
    """`scale +0.83, colour −0.41`: signed cosines of the direction to the attributes' normals, the largest first.

    "" where none is notable. A positive cosine: the direction goes towards the attribute's second value."""
    if row["direction"] is None:
        return ""
    direction = np.array(row["direction"])
    cosines = {}
    for plane in planes:
        if plane["generator"] == row["generator"] and plane["excluded"] is None and plane["normal"] is not None:
            normal = np.array(plane["normal"])
            cosines[plane["attribute"]] = float(direction @ normal / np.linalg.norm(normal) / np.linalg.norm(direction))
    near = sorted(
        (name for name in cosines if abs(cosines[name]) >= WORTH_SAYING), key=lambda name: -abs(cosines[name])
    )
    return ", ".join(f"{name} {words.signed(cosines[name])}" for name in near[:_MOST])
