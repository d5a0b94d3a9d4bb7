"""Explains in words why a cell is undetermined, and which evidence a cell needs before its images can settle it."""

from __future__ import annotations

import math

from c2b_ray.steps.score_row import ScoreRow
from c2b_ray.steps.thresholds import Thresholds

MOST_SHARED = 0.2
"""The share of a cell's images that other values of the attribute may hold where φ is said to be small."""

LABELS, CAPTIONS, VERIFIER, CALIBRATED = "labels", "captions", "verifier", "calibrated"
"""The basis of an accuracy: labels, captions only, an uncalibrated verifier, a calibrated verifier."""

BASES = (CAPTIONS, VERIFIER, CALIBRATED, LABELS)
"""The bases, the weakest first."""

EVIDENCE_OF_VALUES = (LABELS, CALIBRATED)
"""The bases that show that the images of two values differ. On any other, φ may be 0 because they do not."""

TOO_FEW = "too few images"

UNLIKELY = "a decision is unlikely"
"""How the reason of a cell begins that a budget gives up."""


def reason(row: ScoreRow, shared: float, thresholds: Thresholds, tests: int) -> str:
    """Returns why a cell is undetermined: the first reason that more images of the same kind would not remove, else
    `TOO_FEW`."""
    tau, alpha = thresholds.tau, thresholds.alpha
    by_chance = f"among {tests} tests that is expected of some by chance: the adjusted p-value is"
    if row["doubt"] is not None:
        return str(row["doubt"])
    if math.isnan(row["phi"]):
        return "there are no images with an answer, or no other value to compare with"
    if row["phi_low"] > tau or row["phi_high"] < -tau:
        return f"its interval alone lies beyond ±{tau:g}, but {by_chance} {row['q_value']:.2g}, above {alpha:g}"
    if -tau <= row["phi_low"] and row["phi_high"] <= tau:
        if row["basis"] not in EVIDENCE_OF_VALUES:
            return f"φ lies within ±{tau:g}, but whether the images of the values differ was not measured"
        if shared > MOST_SHARED:
            return f"φ lies within ±{tau:g}, but other values hold {shared:.0%} of its images"
        return f"its interval alone lies within ±{tau:g}, but {by_chance} {row['none_q_value']:.2g}, above {alpha:g}"
    if tau == 0 and row["phi"] == 0:
        return (
            "there is no difference to find, and without a margin (τ = 0) no number of images tells that there is none"
        )
    if abs(row["phi"]) <= tau and (row["basis"] not in EVIDENCE_OF_VALUES or shared > MOST_SHARED):
        return (
            "too few images for a finding, and no number of them tells that there is none: whether the images of the "
            "values differ was not measured, or other values hold many of them"
        )
    return TOO_FEW


def can_be_clear(row: ScoreRow) -> bool:
    """Returns whether enough images would establish `none`: the images of the values are known to differ."""
    return row["basis"] in EVIDENCE_OF_VALUES and (row["shared"] or 0) <= MOST_SHARED * row["n"]
