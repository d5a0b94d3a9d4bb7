"""A row of `schemas.SCORES` while it is made: each step adds its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

from c2b_ray import metrics


class ScoreRow(TypedDict, total=False):
    """`schemas.SCORES` defines the columns. `effective`, which is no column: the number of independently drawn images
    of known content with the same information."""

    classifier: str
    target_class: str
    attribute: str
    bias_class: str
    n: int
    correct: int
    errors: int
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    phi: float
    phi_low: float
    phi_high: float
    p_value: float
    q_value: float
    verdict: str
    paper_verdict: int
    none_p_value: float
    none_q_value: float
    phi_shrunken: float
    detectable: float | None
    phi_confirmed: float | None
    phi_confirmed_low: float | None
    phi_confirmed_high: float | None
    basis: str
    captions: int | None
    caption_spread: float
    clusters: int | None
    wanted: int | None
    undecided: int
    shared: int
    phi_standardised: float | None
    same_as: str | None
    accuracy_observed: float
    phi_observed: float
    repeats: int
    shown: float | None
    shown_low: float | None
    shown_high: float | None
    class_shown: float | None
    false_accepts: float | None
    false_accepts_low: float | None
    false_accepts_high: float | None
    doubt: str | None
    undetermined_because: str | None
    images_to_settle: int | None
    mistaken_for: str | None
    mistaken: int
    answered_bias_class: int | None
    group: int | None
    group_reason: str | None
    effective: float


def deviations_between(rows: Sequence[ScoreRow]) -> metrics.Floats:
    """Returns the standard deviation of each φ over samples of captions, for the rows of one classifier and attribute;
    0 where labels, not captions, chose the images.

    Where images were verified, an accuracy moves by more than the counted one, of which images of other content are a
    part.
    """
    spread, captions, shown, of_class = (
        np.array([row[name] for row in rows], np.float64)
        for name in ("caption_spread", "captions", "shown", "class_shown")
    )
    share = np.where(np.isnan(shown), 1.0, shown) * np.where(np.isnan(of_class), 1.0, of_class)
    by_value = np.divide(spread, share, out=np.zeros(len(rows)), where=share > 0)
    return metrics.bias_score_deviations(by_value, np.nan_to_num(captions))
