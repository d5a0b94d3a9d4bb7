"""Scores predictions: accuracy, φ, intervals and verdicts of every cell.

It joins the images of every cell with classifiers' answers. `estimates` computes accuracies, `judge` verdicts, and
`stats` has the formulas.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring import clusters as clusters_of_images
from c2b_ray.audits.c2b.scoring.clusters import Clusters, inflation
from c2b_ray.audits.c2b.scoring.confounding import Confounding, Score, StandardisedScores, standardised_over_classes
from c2b_ray.audits.c2b.scoring.estimates import Counts, ReadValues, Sample, VerifierObservations, counted, estimated
from c2b_ray.audits.c2b.scoring.findings import grouped
from c2b_ray.audits.c2b.scoring.judge import (
    BASES,
    EVIDENCE_OF_VALUES,
    MOST_SHARED,
    TOO_FEW,
    Contrasts,
    Estimate,
    Floats,
    ScoreRow,
    can_be_clear,
    farther,
    judged,
    one_sided,
)
from c2b_ray.audits.c2b.scoring.metric import RIGHT_ANSWERS, Measure, judged_by_permutation, measured
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.false_accepts import FalseAccepts
from c2b_ray.audits.c2b.verification.verified import (
    VerifiedImages,
    explained_by_false_accepts,
    not_excluded_over_classes,
)
from c2b_ray.names import normalise
from c2b_ray.stats.scores import mean_of_others
from c2b_ray.steps.answers import CellAnswers, answers_of
from c2b_ray.steps.cells import images_of_cells, is_labelled, shows_several
from c2b_ray.steps.classify import BELOW
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.tables import POOLED, SCORES
from c2b_ray.tables import c2b as tables

# Scores what all classes share: φ of an attribute's values over the whole task.


LEAST_CLASSES = 2


class PooledRow(tables.PooledRow):
    """A row of `tables.POOLED` while it is made, with what is no column."""

    none_p_value: float
    may_be_none: bool


def pooled(estimates: Sequence[Estimate], thresholds: Thresholds) -> pa.Table:
    """Returns a table of `tables.POOLED`: a row per classifier, attribute and value that at least `LEAST_CLASSES`
    classes have in common with another value.

    Values of all classes are compared by their normalised names, and called as the first class calls them. Cells in
    doubt are left out: a class takes part with the cells that can be trusted. As in a cell, an effect must hold after
    standardising over the other attributes, and `none` needs values that are known to differ, on images that they do
    not share; and both must hold without the images that a verifier falsely accepted, where these are predicted, and
    limits contain that reading. An effect that disappears without one of the classes belongs to that class, and is in
    doubt here. The false discovery rate is controlled over all rows of all classifiers.
    """
    groups: dict[tuple[str, str], list[Estimate]] = defaultdict(list)
    for estimate in estimates:
        groups[estimate.classifier, normalise(estimate.attribute)].append(estimate)
    rows = [row for group in groups.values() for row in _pooled_rows(group, thresholds)]
    is_certain = [row["doubt"] is None for row in rows]
    q = stats.benjamini_hochberg(np.where(is_certain, [row["p_value"] for row in rows], np.nan))
    differ = np.array([row["may_be_none"] and row["doubt"] is None for row in rows], dtype=bool)
    none_q = stats.benjamini_hochberg(np.where(differ, [row["none_p_value"] for row in rows], np.nan))
    verdicts = stats.verdicts([row["phi"] for row in rows], q, none_q, thresholds.tau, thresholds.alpha)
    for row, q_value, verdict in zip(rows, q.tolist(), verdicts, strict=True):
        row |= {"q_value": q_value, "verdict": verdict}
    return pa.Table.from_pylist(rows, POOLED)


@dataclass(frozen=True)
class _Cells:
    """The cells of one attribute; arrays have shape (classes, values). `accuracy`, `images`: of those not in doubt.
    `of_verifier`: the part of the standard error of φ that comes from the verifier's error rates.
    `captions`, `spread`: the number of captions, and how much they differ; NaN for labelled images. `by_cluster`: right
    answers and images (classes, values, clusters); None where images are independent."""

    values: tuple[str, ...]
    accuracy: Floats
    images: Floats
    of_verifier: Floats
    right: Floats
    seen: Floats
    shared: Floats
    captions: Floats
    spread: Floats
    adjusted: tuple[StandardisedScores | None, ...]
    by_cluster: tuple[Floats, Floats] | None

    def clusters_of(self, j: int) -> int | None:
        """Returns the number of clusters of a value; None where images are independent."""
        return None if self.by_cluster is None else int((self.by_cluster[1][:, j].sum(axis=0) > 0).sum())

    def captions_of(self, j: int) -> int | None:
        """Returns the number of captions of a value; None for labelled images."""
        captions = self.captions[:, j]
        return None if np.isnan(captions).all() else int(np.nansum(captions))

    def spread_of(self, j: int) -> float | None:
        finite = self.spread[:, j][~np.isnan(self.spread[:, j])]
        return None if self.captions_of(j) is None else float(finite.max()) if finite.size else np.nan


def _cells(estimates: Sequence[Estimate]) -> _Cells:
    values = tuple(dict.fromkeys(normalise(value) for estimate in estimates for value in estimate.values))
    shape = len(estimates), len(values)
    right, totals, shared, images, of_verifier = (np.zeros(shape) for _ in range(5))
    accuracy, captions, spread = (np.full(shape, np.nan) for _ in range(3))
    adjusted = []
    for c, estimate in enumerate(estimates):
        columns = [values.index(normalise(value)) for value in estimate.values]
        right[c, columns], totals[c, columns] = estimate.columns["correct"], estimate.columns["n"]
        shared[c, columns] = estimate.shared
        captions[c, columns] = estimate.columns.get("captions", np.nan)
        spread[c, columns] = estimate.columns.get("caption_spread", np.nan)
        trusted = [column for column, doubt in zip(columns, estimate.doubts, strict=True) if doubt is None]
        is_trusted = [doubt is None for doubt in estimate.doubts]
        accuracy[c, trusted], images[c, trusted] = estimate.accuracy[is_trusted], estimate.independent[is_trusted]
        of_verifier[c, columns] = estimate.error_of_verifier
        adjusted.append(None if estimate.adjusted is None else estimate.adjusted.among(columns, len(values)))
    parts = accuracy, images, of_verifier, right, totals, shared, captions, spread
    return _Cells(values, *parts, tuple(adjusted), _by_cluster(estimates, values))


def _by_cluster(estimates: Sequence[Estimate], values: Sequence[str]) -> tuple[Floats, Floats] | None:
    """Returns right answers and images (classes, values, clusters); None where images are independent."""
    parts = [estimate.clusters for estimate in estimates if estimate.clusters is not None]
    if not parts:
        return None
    pooled_sums, start = clusters_of_images.add_cluster_sums(parts), 0
    right, images = (np.zeros((len(estimates), len(values), len(pooled_sums.clusters))) for _ in range(2))
    for c, estimate in enumerate(estimates):
        rows = slice(start, start + len(estimate.values))
        columns = [values.index(normalise(value)) for value in estimate.values]
        right[c, columns], images[c, columns] = pooled_sums.sums[rows], pooled_sums.images[rows]
        start = rows.stop
    return right, images


def _tested(
    cells: _Cells, classes: NDArray[np.bool_], thresholds: Thresholds
) -> tuple[stats.PooledScores, StandardisedScores]:
    """Returns φ over the chosen classes, and its adjustment for other attributes."""
    test = stats.pooled_bias_scores(
        cells.accuracy[classes],
        cells.images[classes],
        thresholds.tau,
        thresholds.confidence,
        cells.by_cluster and (cells.by_cluster[0][classes], cells.by_cluster[1][classes]),
        counted=cells.seen[classes],
        shared=cells.of_verifier[classes],
    )
    of_classes = [adjustment for adjustment, is_chosen in zip(cells.adjusted, classes, strict=True) if is_chosen]
    return test, standardised_over_classes(of_classes, test.shares, Score(test.phi, test.low, test.high), thresholds)


@dataclass(frozen=True)
class _Without:
    """φ over all classes without the images that show something else, float64 (values,). `low`, `high`: limits that
    allow for what the calibration does not exclude; `is_above`, `is_below`: whether φ is certainly beyond τ, and
    −τ."""

    phi: Floats
    low: Floats
    high: Floats
    p_value: Floats
    none_p_value: Floats
    is_above: NDArray[np.bool_]
    is_below: NDArray[np.bool_]

    def holds(self, sign: Floats) -> NDArray[np.bool_]:
        """Returns whether a finding of this sign is one."""
        return np.where(sign > 0, self.is_above, self.is_below)


def _without_false_accepts(estimates: Sequence[Estimate], thresholds: Thresholds) -> _Without:
    tau, alpha = thresholds
    cells = _cells([estimate.tested for estimate in estimates])
    every_class = np.ones(len(estimates), dtype=bool)
    test, _ = _tested(cells, every_class, thresholds)
    low, high = farther(test.phi, (test.low, test.high), _reach(estimates, cells, test.shares, thresholds.confidence))
    first_test, _ = _tested(cells, every_class, Thresholds(tau, 1 - one_sided(alpha)))
    reach = _reach(estimates, cells, test.shares, one_sided(alpha))
    least, most = farther(first_test.phi, (first_test.low, first_test.high), reach)
    is_small = (-tau <= least) & (most <= tau)
    significant = test.p_value <= alpha
    none_p_value = np.where(is_small, test.none_p_value, np.fmax(test.none_p_value, 1.0))
    is_above, is_below = significant & (least > tau), significant & (most < -tau)
    return _Without(test.phi, low, high, test.p_value, none_p_value, is_above, is_below)


def _reach(estimates: Sequence[Estimate], cells: _Cells, shares: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Returns how far each φ over all classes may lie below and above, by what the calibration does not exclude."""
    below, above = (np.zeros(shares.shape) for _ in range(2))
    has_images = (cells.images > 0) & ~np.isnan(cells.accuracy)
    for c, estimate in enumerate(estimates):
        columns = [cells.values.index(normalise(value)) for value in estimate.values]
        sides = np.zeros((2, len(cells.values)))
        sides[:, columns] = estimate.reach(confidence)
        compared = has_images[c] & ~np.eye(len(cells.values), dtype=bool)
        weights = np.eye(len(cells.values)) - compared / np.maximum(compared.sum(axis=1, keepdims=True), 1)
        below[c], above[c] = stats.contrast_reach(weights * has_images[c][:, None], *sides)
    return np.sqrt(((shares * below) ** 2).sum(axis=0)), np.sqrt(((shares * above) ** 2).sum(axis=0))


def _pooled_rows(estimates: Sequence[Estimate], thresholds: Thresholds) -> list[PooledRow]:
    cells = _cells(estimates)
    every_class = np.ones(len(estimates), dtype=bool)
    test, adjustment = _tested(cells, every_class, thresholds)
    low, high = adjustment.limits(test.low, test.high, thresholds.confidence)
    p_value, none_p_value = (
        np.fmax(test.p_value, adjustment.p_value),
        np.fmax(test.none_p_value, adjustment.none_p_value),
    )
    doubts = list(adjustment.doubt)
    if any(estimate.without_false_accepts is not None for estimate in estimates):
        second = _without_false_accepts(estimates, thresholds)
        low, high = np.fmin(low, second.low), np.fmax(high, second.high)
        is_significant = (np.abs(test.phi) > thresholds.tau) & (p_value <= thresholds.alpha)
        explained = is_significant & ~second.holds(np.sign(test.phi))
        for j in np.flatnonzero(explained).tolist():
            phi, second_phi = float(test.phi[j]), float(second.phi[j])
            as_predicted = second.p_value[j] > thresholds.alpha or phi * second_phi < 0
            why = explained_by_false_accepts(phi, second_phi) if as_predicted else not_excluded_over_classes(phi)
            doubts[j] = doubts[j] or why
        none_p_value = np.fmax(none_p_value, second.none_p_value)
    differ = all(class_estimate.basis in EVIDENCE_OF_VALUES for class_estimate in estimates) and bool(
        (cells.shared <= MOST_SHARED).all()
    )
    written: dict[str, str] = {}
    for value in (value for estimate in estimates for value in estimate.values):
        written.setdefault(normalise(value), value)
    rows: list[PooledRow] = []
    for j in np.flatnonzero(test.classes >= LEAST_CLASSES).tolist():
        is_finding = abs(test.phi[j]) > thresholds.tau and p_value[j] <= thresholds.alpha
        carrier = _carrier(cells, test, j, thresholds) if is_finding else None
        rows.append(
            {
                "classifier": estimates[0].classifier,
                "attribute": estimates[0].attribute,
                "bias_class": written[cells.values[j]],
                "classes": int(test.classes[j]),
                "n": int(cells.seen[:, j].sum()),
                "correct": int(cells.right[:, j].sum()),
                "accuracy": float(test.accuracy[j]),
                "phi": float(test.phi[j]),
                "phi_low": float(low[j]),
                "phi_high": float(high[j]),
                "p_value": float(p_value[j]),
                "none_p_value": float(none_p_value[j]),
                "may_be_none": differ,
                "doubt": doubts[j]
                if carrier is None
                else f"{estimates[carrier].target_class} alone makes the difference",
                "basis": min((class_estimate.basis for class_estimate in estimates), key=BASES.index),
                "captions": cells.captions_of(j),
                "caption_spread": cells.spread_of(j),
                "clusters": cells.clusters_of(j),
            }
        )
    return rows


def _carrier(cells: _Cells, test: stats.PooledScores, j: int, thresholds: Thresholds) -> int | None:
    """Returns the class without which the others do not show the effect on a value; None where each can be left out."""
    of_class = (cells.accuracy - mean_of_others(cells.accuracy, cells.images > 0))[:, j]
    strongest = int(np.argmax(np.sign(test.phi[j]) * test.shares[:, j] * np.nan_to_num(of_class)))
    other_classes = np.arange(len(of_class)) != strongest
    test_without, adjustment = _tested(cells, other_classes, thresholds)
    p_value = max(test_without.p_value[j], adjustment.p_value[j])
    return None if p_value <= thresholds.alpha and test_without.phi[j] * test.phi[j] > 0 else strongest


MOST_SCARCE = 3
"""The most values that a reason names."""


def scored(
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    classifiers: Sequence[str],
    thresholds: Thresholds,
    verified: VerifiedImages | None = None,
    distinct: Distinct | None = None,
    clusters: Clusters | None = None,
    rough: bool = False,
    false_accepts: FalseAccepts | None = None,
    measure: Measure = RIGHT_ANSWERS,
    read: ReadValues | None = None,
) -> tuple[pa.Table, pa.Table]:
    """Returns a table of `tables.SCORES`, a row per classifier and cell, in the order of `classifiers`, then of the
    captions; and a table of `tables.POOLED`, the scores of all classes together.

    An image that several captions of one cell drew counts once, and so do near-duplicates, by `distinct`. Images
    without a prediction are counted in `errors`, not in `n`. Captions are the sampling unit where captions drew the
    images: differences between the captions of a cell are part of the intervals. Findings that say the same share a
    `group`. The false discovery rate is controlled over all cells of all classifiers.

    Where images come in `clusters`, such as those of one camera, clusters are the sampling unit, and a value of one
    cluster is undetermined.

    Where images are `verified`, scores are corrected for what images show, and cells whose images cannot be trusted are
    undetermined; they are left out of the family of tests, and of the reference of the other values.

    `measure`: the metric that cells are compared by. Values of a metric that looks at images of all classes, and of
    labelled images that show several, are not pooled: the same images would count once for each class.

    `rough`: for a look after which more images may follow. It spares what is expensive and would hardly change where
    they go: the calibration is tested by simulation only where it seems not to fit, scores that are no verdict anyway
    are not standardised, `images_to_settle` is null, and no classes are pooled. `false_accepts`: predicts how many
    images that the verifier accepted do not show their class. Cells that hold more than their scores are corrected for
    are in doubt, and findings must hold without these images.
    `read`: the attributes whose values a model read off labelled images; their scores are corrected for its errors.
    """
    sample = replace(
        _sample(captions, draws, verified, distinct, false_accepts), clusters=clusters, rough=rough, read=read
    )
    classes = {normalise(name) for name in captions["target_class"].unique().to_pylist()}
    estimates: list[Estimate] = []
    rows: list[ScoreRow] = []
    for classifier in classifiers:
        answers = answers_of(predictions, classifier).to(sample.cells)
        counts = counted(sample, answers)
        of_classifier = estimated(classifier, sample, counts, answers, thresholds)
        columns = _columns(sample, counts, answers, thresholds.tau)
        wrong_names = answers.wrong_names()
        for estimate, group in zip(of_classifier, sample.cells.groups, strict=True):
            estimate.columns |= {name: values[group.cells] for name, values in columns.items()}
        if measure.metric is not None:
            measured(of_classifier, answers, measure, measure.metric, thresholds)
        for estimate, group in zip(of_classifier, sample.cells.groups, strict=True):
            wrong_answers = [
                _wrong_answers(group.target_class, value, int(correct), wrong, classes)
                for value, correct, wrong in zip(
                    group.values, counts.correct[group.cells], wrong_names[group.cells], strict=True
                )
            ]
            rows += [
                row | of_wrong_answers for row, of_wrong_answers in zip(_rows(estimate), wrong_answers, strict=True)
            ]
        estimates += of_classifier
    has_limits = measure.metric is None or measure.metric.has_limits
    judgements = (
        judged(estimates, thresholds, rough)
        if measure.metric is None or has_limits
        else judged_by_permutation(estimates, measure.metric, thresholds)
    )
    for row, judgement in zip(rows, judgements, strict=True):
        row |= judgement
        mix = row.get("phi_of_mix")
        row |= {"metric": measure.name, "images_to_settle": None}
        row["phi_of_mix"] = None if mix is None or math.isnan(mix) else mix
    if not rough and has_limits:
        _fill_images_to_settle(rows, thresholds)
    if clusters is not None:
        _in_clusters(rows, estimates, clusters, thresholds)
    scores = grouped(pa.Table.from_pylist(rows, SCORES), sample.cells, thresholds.tau)
    of_one_class = (measure.metric is None or measure.metric.seen == "class") and not shows_several(captions, draws)
    return scores, pooled(estimates if of_one_class and not rough else [], thresholds)


def _sample(
    captions: pa.Table,
    draws: pa.Table,
    verified: VerifiedImages | None,
    distinct: Distinct | None,
    false_accepts: FalseAccepts | None,
) -> Sample:
    all_images = images_of_cells(captions, draws)
    pictures = None if distinct is None else distinct.pictures(all_images.ids)
    cells = all_images.without_copies(pictures)
    observations = None if verified is None else verified.of(cells)
    return Sample(
        cells=cells,
        repeats=all_images.sizes - cells.sizes,
        shared=cells.shared(pictures),
        captioned=not is_labelled(draws),
        observed=None
        if observations is None
        else VerifierObservations(observations, Confounding(observations), false_accepts),
    )


def _columns(sample: Sample, counts: Counts, answers: CellAnswers, tau: float) -> dict[str, NDArray[Any]]:
    """Returns the columns of `tables.SCORES` that are counts, or follow from counts only; a value per cell."""
    phi, verdicts = np.full(len(counts.total), np.nan), np.zeros(len(counts.total), np.int64)
    for group in sample.cells.groups:
        of_group = counts.correct[group.cells], counts.total[group.cells]
        phi[group.cells] = stats.bias_scores(*of_group)
        verdicts[group.cells] = stats.paper_verdicts(*of_group, tau)
    return {
        "n": counts.total,
        "correct": counts.correct,
        "errors": sample.cells.sizes - counts.total,
        "undecided": answers.count(answers.undecided),
        "repeats": sample.repeats,
        "shared": sample.shared,
        "accuracy_observed": counts.accuracy,
        "phi_observed": phi,
        "paper_verdict": verdicts,
    }


def _rows(estimate: Estimate) -> list[ScoreRow]:
    """Returns a row per value with what is known before any test."""
    names = {name: getattr(estimate, name) for name in ("classifier", "target_class", "attribute")}
    columns = {**estimate.columns, "effective": estimate.effective}
    return [
        cast(
            ScoreRow,
            {**names, "bias_class": value, **{name: np.asarray(values)[i].item() for name, values in columns.items()}},
        )
        for i, value in enumerate(estimate.values)
    ]


def _wrong_answers(
    target: str, value: str, correct: int, wrong: Mapping[str, int], classes: Container[str]
) -> ScoreRow:
    """Returns the most frequent wrong answer of a cell, and how many images were answered with the class that its value
    names."""
    # Ties go to the first name, so that a rerun says the same.
    others = {name: n for name, n in wrong.items() if name != BELOW}
    name, count = min(others.items(), key=lambda item: (-item[1], item[0]), default=(None, 0))
    normalised = normalise(value)
    named_by_value = sum(n for answer, n in [(target, correct), *wrong.items()] if normalise(answer) == normalised)
    return {
        "mistaken_for": name,
        "mistaken": count,
        "answered_bias_class": named_by_value if named_by_value or normalised in classes else None,
    }


def _fill_images_to_settle(rows: Sequence[ScoreRow], thresholds: Thresholds) -> None:
    """Adds how many images per cell would settle the undetermined ones, if the observed accuracies were the truth."""
    tau, alpha = thresholds
    findings = sum(row["verdict"] in ("for", "against") for row in rows)
    # One more finding would have to pass this step of Benjamini and Hochberg's ladder.
    step = alpha * (findings + 1) / max(1, len(rows))
    groups: Mapping[tuple[str, ...], list[ScoreRow]] = defaultdict(list)
    for row in rows:
        groups[row["classifier"], row["target_class"], row["attribute"]].append(row)
    # The numbers take a search, so groups without an open cell are skipped.
    groups = {name: group for name, group in groups.items() if any(map(_is_open, group))}
    width = max(map(len, groups.values()), default=0)
    # The effective number of images of each cell: all of them where nothing was verified and captions do not differ. A
    # group of fewer values than others is padded with cells without images.
    correct, total = np.zeros((2, len(groups), width), np.int64)
    for group_number, group in enumerate(groups.values()):
        total[group_number, : len(group)] = [round(row["effective"]) for row in group]
        accuracy = np.nan_to_num([row["accuracy"] for row in group])
        correct[group_number, : len(group)] = np.minimum(
            np.round(accuracy * total[group_number, : len(group)]), total[group_number, : len(group)]
        )
    biased = stats.images_to_settle(correct, total, tau, min(alpha, step)).tolist()
    clear = stats.images_to_settle(correct, total, tau, alpha).tolist()
    for group_number, group in enumerate(groups.values()):
        for i, row in enumerate(group):
            is_beyond = abs(row["phi"]) > tau
            images_needed = (biased if is_beyond else clear)[group_number][i]
            if not _is_open(row):
                continue
            if images_needed > 0 and (is_beyond or can_be_clear(row)):
                row["images_to_settle"] = math.ceil(images_needed * max(1.0, row["n"] / max(row["effective"], 1.0)))
                _name_scarce(row, group)
            elif row["undetermined_because"] == TOO_FEW:
                row["undetermined_because"] = f"φ lies next to ±{tau:g}: no number of images would settle it"


def _in_clusters(
    rows: Sequence[ScoreRow], estimates: Sequence[Estimate], clusters: Clusters, thresholds: Thresholds
) -> None:
    """Says how many clusters would settle the undetermined cells, in place of images: more images of the same ones
    change little."""
    design = Contrasts.of(estimates).design
    if design is None:
        return
    for row, factor in zip(rows, inflation(design, thresholds.confidence).tolist(), strict=True):
        images_needed, cluster_count = row["images_to_settle"], row["clusters"]
        row["images_to_settle"] = None
        if (
            row["undetermined_because"] is None
            or not row["undetermined_because"].startswith(TOO_FEW)
            or not cluster_count
        ):
            continue
        clusters_needed = (
            None if images_needed is None else math.ceil(cluster_count * max(images_needed * factor / row["n"], 1.0))
        )
        row["undetermined_because"] = clusters.scarce(cluster_count, clusters_needed)


def _name_scarce(row: ScoreRow, group: Sequence[ScoreRow]) -> None:
    """Names the values that keep a row open which has enough images itself: every value must have as many."""
    images_needed = row["images_to_settle"] or 0
    scarce = [f"{other['bias_class']!r} ({other['n']:,})" for other in group if 0 < other["n"] < images_needed]
    if row["undetermined_because"] == TOO_FEW and row["n"] >= images_needed and scarce:
        rest = f" and {len(scarce) - MOST_SCARCE:,} more" if len(scarce) > MOST_SCARCE else ""
        row["undetermined_because"] = (
            f"{TOO_FEW} to compare with, of {', '.join(scarce[:MOST_SCARCE])}{rest}: give them more, or leave them out "
            "of `attributes`"
        )


def _is_open(row: ScoreRow) -> bool:
    return row["verdict"] == "undetermined" and not row["doubt"] and not math.isnan(row["phi"])
