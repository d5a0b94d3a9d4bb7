"""Corrects scores of one attribute for the verifier's errors, and tests whether the calibration fits the run.

It counts the answers by what images were drawn for and by what the verifier saw in them; `stats.noisy_labels`
has the estimation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import (
    NOTHING,
    CellObservations,
    VerifiedImages,
    doubt,
    explained_by_class,
)
from c2b_ray.stats.noisy_labels import CalibrationCounts, Corrected, Run, corrected_runs, misfit_p_values
from c2b_ray.steps.answers import CellAnswers
from c2b_ray.steps.cells import CellGroup, GroupName
from c2b_ray.steps.draw import distinct_count

FREE = 3.0
"""A calibration that does not fit the run counts as this many images of each value and of the class."""

SLACK = 0.02
"""A verifier may be this much worse than its calibration says and still pass as equally good."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Correction:
    """A group's corrected scores. `misfit`: the p-value of the claim that the calibration fits the run, or that the
    verifier does better here and nothing else is wrong. `confirmed`, `total`: of every cell's images, how many were
    said to show the class, and how many were looked at."""

    scores: Corrected
    misfit: float
    confirmed: Counts
    total: Counts

    def columns(self) -> dict[str, Floats]:
        """Returns the columns of `tables.SCORES` that a correction adds."""
        names = ("shown_low", "shown_high", "sensitivity", "specificity", "class_shown")
        return {name: getattr(self.scores, name) for name in names} | {"shown": np.diag(self.scores.shown)}


def corrections_of(
    seen: CellObservations,
    groups: Sequence[CellGroup],
    answers: CellAnswers,
    thresholds: Thresholds,
    rough: bool = False,
) -> dict[GroupName, Correction]:
    """Returns the corrected scores of each group, without groups of which the verifier named no value of any image.
    `rough`: the calibration is tested by simulation only where it seems not to fit."""
    all_runs = [(group, _run(seen, group, answers)) for group in groups]
    runs_of_groups = [(group, run) for group, run in all_runs if run is not None]
    runs = [run for _, run in runs_of_groups]
    misfits = misfit_p_values(runs, rough=rough)
    refuted = [misfit <= thresholds.alpha for misfit in misfits]
    # Intervals must not rest on a calibration that is refuted.
    used = [_with_at_most(run, FREE) if is_refuted else run for run, is_refuted in zip(runs, refuted, strict=True)]
    scores = corrected_runs(used, thresholds.confidence)
    better = [i for i, is_refuted in enumerate(refuted) if is_refuted and _better(scores[i], _known(runs[i]))]
    misfits_again = misfit_p_values([_with_at_most(runs[i], 0.0) for i in better], rough=rough)
    for i, misfit in zip(better, misfits_again, strict=True):
        misfits[i] = misfit
    corrections = {}
    for (group, run), of_group, misfit in zip(runs_of_groups, scores, misfits, strict=True):
        counts = np.asarray(run.right) + np.asarray(run.wrong)
        confirmed = counts[:, : len(group.values)].sum(axis=1).astype(int)
        corrections[group.name] = Correction(of_group, misfit, confirmed, counts.sum(axis=1).astype(int))
    return corrections


def _run(seen: CellObservations, group: CellGroup, answers: CellAnswers) -> Run | None:
    """Returns the counts of a group and the verifier's calibration; None where the verifier named no value."""
    counts, pictures = _counts(seen, group, answers)
    if not counts[:, :, : len(group.values)].any():
        return None
    unclassified, images_left = seen.left_in_pools(group)
    calibration = CalibrationCounts(
        seen.verified.calibration_of(group.attribute, group.values),
        seen.verified.calibration_of_class(group.target_class),
    )
    copies = _copies(counts, pictures), _copies(unclassified, images_left)
    return Run(counts[0], counts[1], calibration, copies, unclassified)


def _known(run: Run) -> CalibrationCounts:
    assert isinstance(run.calibration, CalibrationCounts)
    return run.calibration


def _with_at_most(run: Run, most: float) -> Run:
    return run._replace(calibration=_limited(_known(run), most))


def _counts(seen: CellObservations, group: CellGroup, answers: CellAnswers) -> tuple[Floats, int]:
    """Counts answered images that are right, and that are wrong, (2, cells, answers of the verifier); and the distinct
    images among them, since some were drawn for several values."""
    rows, verifier_answers = seen.cells.rows(group.cells), seen.answers(group)
    values = len(group.values)
    width = values + seen.verified.asks_class(group.target_class)
    is_counted = answers.answered[rows] & (verifier_answers != NOTHING)
    wrong, cell = ~answers.right[rows][is_counted], seen.cells.cell[rows][is_counted] - group.cells.start
    keys = (wrong * values + cell) * width + verifier_answers[is_counted]
    counts = np.bincount(keys, minlength=2 * values * width).reshape(2, values, width)
    return counts.astype(np.float64), distinct_count(seen.cells.image[rows][is_counted])


def _copies(counts: Floats, images: int) -> float:
    """Returns how many times each image is counted, on average."""
    return max(1.0, float(counts.sum()) / images) if images else 1.0


def _limited(calibration: CalibrationCounts, most: float) -> CalibrationCounts:
    """Returns the same shares, with each row counted on at most `most` images."""

    def rows(counts: Floats) -> Floats:
        totals = counts.sum(axis=1, keepdims=True)
        limited: Floats = counts * np.divide(most, totals, out=np.ones_like(totals), where=totals > most)
        return limited

    return CalibrationCounts(
        rows(calibration.values), None if calibration.classes is None else rows(calibration.classes)
    )


def _better(scores: Corrected, calibration: CalibrationCounts) -> bool:
    """Returns whether the verifier's scores on this run are as good as its calibration."""
    right = np.diag(calibration.values) / np.maximum(calibration.values.sum(axis=1), 1.0)
    of_values = scores.sensitivity.mean() >= right.mean() - SLACK
    if calibration.classes is None:
        return bool(of_values)
    return bool(
        of_values and scores.class_sensitivity >= calibration.classes[0, 0] / calibration.classes[0].sum() - SLACK
    )


def doubts_of_rows(
    verified: VerifiedImages,
    rows: Sequence[Mapping[str, Any]],
    corrections: Mapping[GroupName, Correction],
    thresholds: Thresholds,
) -> list[list[str]]:
    """Returns the reasons for doubt of each row of one classifier's scores. The rows must have the columns of these
    corrections."""
    refuted = _refuted(corrections, thresholds.alpha)
    next_cell: dict[GroupName, int] = defaultdict(int)
    reasons = []
    for row in rows:
        target, attribute = group = GroupName(row["target_class"], row["attribute"])
        position, next_cell[group] = next_cell[group], next_cell[group] + 1
        if group not in corrections:
            reasons.append(["the verifier named no value of any image"])
            continue
        of_row = doubt(row, verified.class_skill(target), verified.least_of_class(target))
        of_row += [refuted[attribute]] if attribute in refuted else []
        if verified.class_is_assumed(target):
            correction = corrections[group]
            of_class = correction.confirmed, correction.total
            of_row += explained_by_class(correction.scores, of_class, position, target, thresholds)
        reasons.append(of_row)
    return reasons


def _refuted(corrections: Mapping[GroupName, Correction], alpha: float) -> dict[str, str]:
    """Returns the attributes whose calibration does not fit the run, and why."""
    p_values: dict[str, list[float]] = defaultdict(list)
    for (_, attribute), correction in corrections.items():
        p_values[attribute].append(correction.misfit)
    refuted = {}
    for attribute, values in p_values.items():
        # Simes (1986): of one attribute's classes, which share a calibration.
        p_value = float((np.sort(values) * len(values) / np.arange(1, len(values) + 1)).min())
        if p_value <= alpha:
            refuted[attribute] = (
                f"the calibration does not fit this run: what the verifier says of {attribute} and what the "
                f"classifier gets right do not go together as they would (p = {p_value:.2g}); the verifier errs "
                "more often here, or both err on the same images"
            )
    return refuted
