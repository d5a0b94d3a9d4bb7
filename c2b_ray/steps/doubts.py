"""Why the counts of a cell cannot be trusted: what its images show, and what the verifier can distinguish.

It knows shares, counts and how good a verifier is; whose images these are is `verified`'s and `paired_images`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c2b_ray import metrics
from c2b_ray.metrics.misclassification import Corrected
from c2b_ray.steps.thresholds import Thresholds

LEAST_SHOWN = 0.5
"""The estimated share of a cell's images that must show its bias class for a verdict."""

LEAST_OF_CLASS = 0.5
"""The estimated share that must show the target class, where it is known how often the verifier is right on it."""

LEAST_SAID = 0.8
"""The same, where that is not known."""

LEAST_SKILL = 0.3
"""Youden's index (sensitivity + specificity − 1) that a verifier must have on a bias class and on the target class."""

Counts = NDArray[np.int64]


def doubt_of_class(target: str, skill: float, shown: float, least: float) -> list[str]:
    """Why it is in doubt that a cell's images show the target class.

    skill: the verifier's on the class, Youden's index. shown: the estimated share of images that show it; least: the
    share that must.
    """
    reasons = []
    if skill < LEAST_SKILL:
        reasons.append(f"the verifier cannot tell a {target} from the other classes (Youden's index {skill:.2f})")
    if shown < least:
        reasons.append(f"only {shown:.0%} of the images show a {target}")
    return reasons


def doubt(row: Mapping[str, Any], class_skill: float, least_of_class: float = LEAST_OF_CLASS) -> list[str]:
    """Why the images of a cell cannot be trusted, whatever was counted on them; empty where they can."""
    reasons = doubt_of_class(row["target_class"], class_skill, row["class_shown"], least_of_class)
    if row["sensitivity"] + row["specificity"] - 1 < LEAST_SKILL:
        reasons.append(
            f"the verifier cannot tell {row['bias_class']!r} from the other values "
            f"(sensitivity {row['sensitivity']:.2f}, specificity {row['specificity']:.2f})"
        )
    if row["shown"] < LEAST_SHOWN:
        limits = f"{row['shown_low']:.0%} to {row['shown_high']:.0%}"
        reasons.append(f"only {row['shown']:.0%} ({limits}) of the images show {row['bias_class']!r}")
    return reasons


def explained_by_false_accepts(phi: float, without: float) -> str:
    """Why a finding is in doubt that is none without the images that show something else, as predicted.

    phi: as estimated; without: without these images.
    """
    return (
        f"{phi:+.2f} as estimated, {without:+.2f} without the images that the verifier falsely accepts, as predicted "
        "from similar images of the calibration"
    )


def explained_by_class(
    scores: Corrected, of_class: tuple[Counts, Counts], at: int, target: str, thresholds: Thresholds
) -> list[str]:
    """Whether cells that differ in how many images show the class could explain what would be a finding.

    of_class: of every cell's images, how many were said to show the class, and how many were looked at. at: the cell.
    """
    tau, alpha = thresholds
    low, high = metrics.bias_score_interval(*of_class, 1 - alpha)
    most = max(abs(low[at]), abs(high[at]))
    test = metrics.contrast_test(scores.accuracy, scores.effective, tau, 1 - alpha, scores.covariance)
    if not (test.p_value[at] <= alpha and abs(test.phi[at]) <= tau + most):
        return []
    return [
        f"it is not known how often the verifier is right on the class, and a difference of {most:.2f} in how many "
        f"images show a {target}, which is possible, would explain it"
    ]
