"""Verdicts over all searches of a run, with the false discovery rate controlled: some of many problems seem biased by
chance.

It knows rows of `schemas.latent.DIRECTIONS`, and neither models nor how a direction was found.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from c2b_ray.config.latent import EvidenceConfig
from c2b_ray.metrics.testing import benjamini_hochberg
from c2b_ray.schemas.latent_rows import DirectionRow
from c2b_ray.steps.latent_verdict import FOUND, NOTHING, SEEN, UNDETERMINED


def with_q_values(rows: Sequence[DirectionRow], evidence: EvidenceConfig) -> list[DirectionRow]:
    """Returns the rows with `q_value`; where that exceeds the level, "found" becomes "nothing found" if the interval
    excludes an effect that must not go unseen, and "undetermined" if not.

    Directions of one problem are tested in order until the first that is none, so each counts with the largest p-value
    up to its rank, and testing many of them costs nothing. Over the problems of one method, which form one family,
    Benjamini and Hochberg's procedure is applied. Methods are alternatives, each a separate family. `rows`: for each
    problem and method by rising rank.
    """
    largest: dict[tuple[str, str], float] = {}
    families: dict[str, list[int]] = {}
    p_values = np.full(len(rows), np.nan)
    for number, row in enumerate(rows):
        if row["p_value"] is None:
            continue
        key = (row["problem"], row["method"])
        largest[key] = p_values[number] = max(row["p_value"], largest.get(key, 0.0))
        families.setdefault(row["method"], []).append(number)
    result: list[DirectionRow] = [{**row, "q_value": None} for row in rows]
    for numbers in families.values():
        q_values = benjamini_hochberg(p_values[numbers])
        for number, q_value in zip(numbers, q_values.tolist(), strict=True):
            result[number] = _decided(rows[number], q_value, evidence, len(numbers))
    return result


def _decided(row: DirectionRow, q_value: float, evidence: EvidenceConfig, count: int) -> DirectionRow:
    level, matters = evidence.level, SEEN * evidence.margin
    if row["verdict"] != FOUND or q_value <= level:
        return {**row, "q_value": q_value}
    alone = f"{row['reason']}, taken alone (p = {row['p_value']:.3g})"
    among = f"among {count} directions tested so much comes by chance (q = {q_value:.3g}, above {level:g})"
    reason, verdict = f"{alone}; {among}", NOTHING
    limits = (row["effect_low"], row["effect_high"])
    if evidence.margin and not max(abs(limit) for limit in limits if limit is not None) <= matters:
        verdict = UNDETERMINED
        reason += f"; yet an effect of {matters:g} is not excluded: more latents can decide"
    return {**row, "q_value": q_value, "verdict": verdict, "reason": reason}
