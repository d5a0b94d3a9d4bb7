"""Says where a threshold of cosines tells nothing of what was detected: no name reaches it, or it rests on few names.

It knows matches and numbers of names, not what embedded them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LEAST_PAIRS = 100
"""Pairs of different names, below which people are told that a calibrated threshold rests on few."""
SAME = 1e-12
"""Cosines this near are the same."""


def threshold_notes(matches: pa.Table, pairs: int, chosen: float, calibrated: float) -> list[str]:
    """Returns notes for people. `matches`: a table of `MATCHES`; `pairs`: the number of pairs of
    different names in the ground truth. `chosen`, `calibrated`: the two thresholds, NaN where there is none."""
    notes = []
    for kind, threshold in {"set": chosen, "calibrated": calibrated}.items():
        if not np.isnan(threshold) and (out_of_reach := _out_of_reach(matches, threshold)):
            notes.append(
                f"At the {kind} threshold, cosine {threshold:.2f}, no name of a detected bias reaches one of the "
                f"ground truth: the nearest has {_listed(out_of_reach)}. Every bias counts as a miss there because of "
                "how it is named, whatever was detected."
            )
    if not np.isnan(calibrated) and pairs < LEAST_PAIRS:
        many = "1 pair" if pairs == 1 else f"{pairs} pairs"
        notes.append(
            f"The calibrated threshold, cosine {calibrated:.2f}, rests on {many} of names in the ground truth, and "
            f"needs {LEAST_PAIRS}. Names that mean different things may reach it: look at the matches."
        )
    return notes


def _out_of_reach(matches: pa.Table, threshold: float) -> Mapping[str, float]:
    """Returns the highest cosine of each method, where no method reaches the threshold; else nothing."""
    nearest = {
        method: pc.max(matches.filter(pc.equal(matches["method"], method))["similarity"]).as_py()
        for method in matches["method"].unique().to_pylist()
    }
    return {} if any(cosine >= threshold - SAME for cosine in nearest.values()) else nearest


def _listed(nearest: Mapping[str, float]) -> str:
    parts: Sequence[str] = [f"{cosine:.2f} ({method})" for method, cosine in nearest.items()]
    return ", ".join(parts)
