"""Estimates how often a classifier is right on the images of each value, and how many images that is worth.

It counts right answers, caption by caption, and combines them with what a verifier sees in the images. `judge` draws
conclusions from the estimates; `stats` has the formulas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring.clusters import Clusters, cluster_sums
from c2b_ray.audits.c2b.scoring.confounding import Confounding
from c2b_ray.audits.c2b.scoring.judge import CALIBRATED, CAPTIONS, LABELS, VERIFIER, Estimate, Floats
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.false_accepts import (
    FalseAccepts,
    corrections_of,
    doubt_of_false_accepts,
    doubt_of_unknown,
    doubts_of_rows,
    without_false_accepts,
)
from c2b_ray.audits.c2b.verification.verified import CellObservations, doubt
from c2b_ray.stats.intervals import wilson
from c2b_ray.stats.read_values import read_accuracies
from c2b_ray.stats.roots import deviations
from c2b_ray.steps.answers import CellAnswers, by_column
from c2b_ray.steps.cells import CellGroup, CellImages, GroupName
from c2b_ray.steps.draw import Ints

# Corrects scores of attributes whose values a model read off the images, for its errors.


class ReadValues:
    """The attributes that a model read. `questions`: of `tables.PROPOSALS`, all values that it was asked about;
    `calibration`: of `tables.CALIBRATION`, without rows where it was not calibrated."""

    def __init__(self, questions: pa.Table, calibration: pa.Table) -> None:
        self._values: dict[GroupName, list[str]] = {
            GroupName(row["target_class"], row["attribute"]): row["bias_classes"] for row in questions.to_pylist()
        }
        self._counts: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
        for row in calibration.to_pylist():
            self._counts[row["attribute"]][row["value"], row["answer"]] = row["images"]

    def correct(self, estimate: Estimate, group: CellGroup, correct: Ints, total: Ints, confidence: float) -> None:
        """Corrects an estimate where its attribute was read and the reader was calibrated on all values; says on what
        it rests. `correct`, `total`: right answers and answers by value."""
        if group.name not in self._values:
            return
        absent = [value for value in self._values[group.name] if value not in group.values]
        values = [*group.values, *absent]
        calibration = self._calibration(group.attribute, values)
        estimate.basis = VERIFIER
        if (calibration.sum(axis=1) == 0).any():
            return
        none = np.zeros(len(absent), np.int64)  # images may show a value that the reader never named
        right, wrong = np.append(correct, none), np.append(total - correct, none)
        read = read_accuracies(right, wrong, calibration, confidence)
        of_group = slice(0, len(group.values))
        estimate.basis = CALIBRATED
        estimate.accuracy, estimate.effective = read.accuracy[of_group], read.effective[of_group]
        estimate.covariance, estimate.from_verifier = (
            read.covariance[of_group, of_group],
            read.from_reader[of_group, of_group],
        )
        names = ("shown", "shown_low", "shown_high", "sensitivity", "specificity")
        columns = {name: getattr(read, name)[of_group] for name in names}
        estimate.columns |= columns
        estimate.doubts = [
            "; ".join(_doubts(columns, i, group)) or None if total[i] else None for i in range(len(group.values))
        ]

    def _calibration(self, attribute: str, values: Sequence[str]) -> Floats:
        counts = self._counts.get(attribute, {})
        return np.array([[counts.get((value, answer), 0.0) for answer in values] for value in values], np.float64)


def _doubts(columns: dict[str, Floats], i: int, group: CellGroup) -> list[str]:
    row = {name: float(values[i]) for name, values in columns.items()}
    fields = {"target_class": group.target_class, "bias_class": group.values[i], "class_shown": float("nan")}
    return doubt(row | fields, class_skill=1.0)


@dataclass(frozen=True)
class VerifierObservations:
    """What a verifier saw in the images, and what that says about their other attributes. `false_accepts`: predicts how
    many do not show their class; None where nothing predicts it."""

    seen: CellObservations
    confounding: Confounding
    false_accepts: FalseAccepts | None = None


@dataclass(frozen=True)
class Sample:
    """The images of every cell, without copies: what is scored, whichever classifier answers.

    `repeats`: copies that were left out, by cell. `shared`: how many images of each cell other values of its attribute
    hold. `captioned`: whether captions drew the images; otherwise each cell is one sample. `observed`: None where
    nothing was verified. `read`: the attributes whose values a model read; None where there are none. `clusters`: of
    the images; None where they are independent. `rough`: more images may follow.
    """

    cells: CellImages
    repeats: Ints
    shared: Ints
    captioned: bool
    observed: VerifierObservations | None
    clusters: Clusters | None = None
    rough: bool = False
    read: ReadValues | None = None

    def shares(self, group: CellGroup) -> Floats:
        """Returns the share of each cell's images that other values hold."""
        return self.shared[group.cells] / np.maximum(self.cells.sizes[group.cells], 1)


@dataclass(frozen=True)
class Counts:
    """A classifier's answers on the images of every cell; arrays have shape (cells,).

    `by_caption`: for each cell, (right, answered) of each of its captions that has an answered image; labelled images
    count as one caption's.
    """

    total: Ints
    correct: Ints
    by_caption: tuple[tuple[tuple[int, ...], ...], ...]

    @property
    def accuracy(self) -> Floats:
        rate: Floats = np.divide(self.correct, self.total, out=np.full(len(self.total), np.nan), where=self.total > 0)
        return rate


def counted(sample: Sample, answers: CellAnswers) -> Counts:
    """Counts the answers of one classifier by cell and caption."""
    total, correct = answers.count(answers.answered), answers.count(answers.right)
    if not sample.captioned:
        pairs = zip(correct.tolist(), total.tolist(), strict=True)
        return Counts(total, correct, tuple(((right, n),) if n else () for right, n in pairs))
    samples = answers.by_caption()
    return Counts(total, correct, tuple(map(tuple, samples)))


def estimated(
    classifier: str, sample: Sample, counts: Counts, answers: CellAnswers, thresholds: Thresholds
) -> list[Estimate]:
    """Returns one estimate for each group of cells."""
    groups = sample.cells.groups
    estimates = [
        Estimate(
            classifier=classifier,
            target_class=group.target_class,
            attribute=group.attribute,
            values=group.values,
            accuracy=counts.accuracy[group.cells],
            effective=counts.total[group.cells].astype(np.float64),
            basis=CAPTIONS if sample.captioned else LABELS,
            doubts=[None] * len(group.values),
            shared=sample.shares(group),
        )
        for group in groups
    ]
    if sample.observed is not None:
        _correct(estimates, answers, sample, sample.observed, thresholds)
    if sample.read is not None:
        for estimate, group in zip(estimates, groups, strict=True):
            counted_here = counts.correct[group.cells], counts.total[group.cells]
            sample.read.correct(estimate, group, *counted_here, thresholds.confidence)
    if sample.captioned:
        _spread_over_captions(estimates, counts, thresholds.confidence)
    if sample.clusters is not None:
        _spread_over_clusters(estimates, groups, sample.clusters, answers)
    z = np.float64(deviations(thresholds.confidence))
    for estimate in estimates:
        effective = estimate.effective
        if estimate.clusters is not None:
            images = estimate.clusters.images.sum(axis=1)
            added = _inverse(estimate.clusters.effective(thresholds.confidence)) - _inverse(images)
            effective = _inverse(_inverse(effective) + added)  # in addition to the noise of captions
        low, high = wilson(estimate.accuracy * effective, effective, z)
        estimate.columns |= {"accuracy": estimate.accuracy, "accuracy_low": low, "accuracy_high": high}
    return estimates


def _correct(
    estimates: Sequence[Estimate],
    answers: CellAnswers,
    sample: Sample,
    observed: VerifierObservations,
    thresholds: Thresholds,
) -> None:
    """Replaces counts by drawn value with counts by shown value, and marks the cells that cannot be trusted."""
    observations, verified = observed.seen, observed.seen.verified
    corrections, rows = corrections_of(observations, sample.cells.groups, answers, thresholds, sample.rough), []
    for estimate, group in zip(estimates, sample.cells.groups, strict=True):
        correction = corrections.get(group.name)
        if correction is not None:
            estimate.basis = verified.basis(*group.name, group.values)
            scores = correction.scores
            estimate.accuracy, estimate.effective = scores.accuracy, scores.effective
            estimate.covariance, estimate.from_verifier = scores.covariance, scores.from_verifier
            estimate.columns |= correction.columns()
            estimate.adjust = partial(observed.confounding.adjust, group, answers, thresholds)
        else:
            cells = range(group.cells.start, group.cells.stop)
            estimate.columns["class_shown"] = [observations.share_of_class(cell) for cell in cells]
        for i, value in enumerate(group.values):
            columns_of_value: dict[str, object] = {name: values[i] for name, values in estimate.columns.items()}
            rows.append(columns_of_value | {**group.name._asdict(), "bias_class": value})
    reasons = doubts_of_rows(verified, rows, corrections, thresholds)
    start = 0
    for estimate, group in zip(estimates, sample.cells.groups, strict=True):
        reasons_of_group = reasons[start : start + len(group.values)]
        start += len(group.values)
        if observed.false_accepts is not None and group.name in corrections:
            reasons_of_test = _test(estimate, group, observed.false_accepts)
            reasons_of_group = [
                of_row + of_test for of_row, of_test in zip(reasons_of_group, reasons_of_test, strict=True)
            ]
        estimate.doubts = ["; ".join(of_row) or None for of_row in reasons_of_group]


def _test(estimate: Estimate, group: CellGroup, false_accepts: FalseAccepts) -> list[list[str]]:
    """Adds what is predicted of a group's images that do not show the class, and returns the reasons for doubt of each
    value."""
    predicted = false_accepts.of(group)
    if predicted is None:
        return [[] for _ in group.values]
    claimed = 1 - np.asarray(estimate.columns["class_shown"], np.float64)
    names = ("false_accepts", "false_accepts_low", "false_accepts_high")
    estimate.columns |= dict(zip(names, (predicted.share, predicted.low, predicted.high), strict=True))
    accuracy = estimate.accuracy
    estimate.without_false_accepts = without_false_accepts(accuracy, predicted.share, claimed)
    estimate.negatives = predicted.known

    def bounded(confidence: float, times: float = 1.0) -> tuple[Floats, Floats]:
        least, most = predicted.limits(confidence, times)
        return without_false_accepts(accuracy, least, claimed), without_false_accepts(accuracy, most, claimed)

    estimate.bounds = bounded
    limits = zip(predicted.low.tolist(), claimed.tolist(), strict=True)
    of_class = doubt_of_unknown(group.target_class, predicted.unknown)
    return [of_class + doubt_of_false_accepts(group.target_class, low, claim) for low, claim in limits]


def _spread_over_captions(estimates: Sequence[Estimate], counts: Counts, confidence: float) -> None:
    """Lowers the effective number of images, because images of one caption carry less information than images of as
    many captions.

    The correction follows from how much the accuracies of captions differ, over all cells of the classifier.
    """
    right, total = by_column(counts.by_caption)
    worth = stats.effective_images(right, total, confidence)
    images, start = total.sum(axis=1), 0
    for estimate in estimates:
        of_estimate = slice(start, start + len(estimate.values))
        start = of_estimate.stop
        added = _noise(counts.accuracy[of_estimate], images[of_estimate]) * (
            _inverse(worth.effective[of_estimate]) - _inverse(images[of_estimate])
        )
        if estimate.covariance is not None:
            # A corrected accuracy varies more than the counted one, which other images are a part of.
            added = added * _inverse(_share_shown(estimate)) ** 2
            estimate.covariance = estimate.covariance + np.diag(added)
        added_variance = added * _inverse(_noise(estimate.accuracy, estimate.effective))
        estimate.effective = _inverse(_inverse(estimate.effective) + added_variance)
        estimate.columns["captions"] = [len(of_cell) for of_cell in counts.by_caption[of_estimate]]
        estimate.columns["caption_spread"] = worth.spread[of_estimate]


def _spread_over_clusters(
    estimates: Sequence[Estimate], groups: Sequence[CellGroup], clusters: Clusters, answers: CellAnswers
) -> None:
    """Adds right answers by cluster, and marks the values whose images are all of one cluster."""
    of_row = clusters.of(answers.cells)
    for estimate, group in zip(estimates, groups, strict=True):
        sums = cluster_sums(answers.cells, group.cells, of_row, answers.right, answers.answered)
        estimate.clusters = sums
        estimate.columns["clusters"] = sums.count
        estimate.doubts = [
            doubt or (clusters.single(value) if count == 1 else None)
            for doubt, value, count in zip(estimate.doubts, estimate.values, sums.count.tolist(), strict=True)
        ]


def _noise(accuracy: Floats, images: Floats | Ints) -> Floats:
    """Returns s(1 - s), the variance of one answer, where s is the accuracy with half a right and half a wrong answer
    added."""
    smooth: Floats = (np.nan_to_num(accuracy) * images + 0.5) / (images + 1)
    return smooth * (1 - smooth)


def _share_shown(estimate: Estimate) -> Floats:
    """Returns the share of each cell's images that shows its class and value."""
    of_class = np.asarray(estimate.columns["class_shown"], np.float64)
    share: Floats = np.nan_to_num(estimate.columns["shown"]) * np.where(np.isnan(of_class), 1.0, of_class)
    return share


def _inverse(values: Floats | Ints) -> Floats:
    """Returns 1/x, and 0 for 0."""
    numbers = np.asarray(values, np.float64)
    inverse: Floats = np.divide(1.0, numbers, out=np.zeros(numbers.shape), where=numbers > 0)
    return inverse
