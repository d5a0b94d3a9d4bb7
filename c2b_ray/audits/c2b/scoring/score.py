"""Scores predictions: accuracy, φ, intervals and verdicts of every cell.

It joins the images of every cell with classifiers' answers. `estimates` computes accuracies, `judge` verdicts, and
`metrics` has the formulas.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring.clusters import Clusters, inflation
from c2b_ray.audits.c2b.scoring.confounding import Confounding
from c2b_ray.audits.c2b.scoring.estimates import Counts, Sample, VerifierObservations, counted, estimated
from c2b_ray.audits.c2b.scoring.groups import grouped
from c2b_ray.audits.c2b.scoring.judge import TOO_FEW, Contrasts, Estimate, ScoreRow, can_be_clear, judged
from c2b_ray.audits.c2b.scoring.metric import RIGHT_ANSWERS, Measure, judged_by_permutation, measured
from c2b_ray.audits.c2b.scoring.pooled import pooled
from c2b_ray.audits.c2b.scoring.read_values import ReadValues
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.false_accepts import FalseAccepts
from c2b_ray.audits.c2b.verification.verified import VerifiedImages
from c2b_ray.names import normalise
from c2b_ray.steps.answers import CellAnswers, answers_of
from c2b_ray.steps.cells import images_of_cells, is_labelled, shows_several
from c2b_ray.steps.classify import BELOW
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.tables import SCORES

MOST_SCARCE = 3
"""The most values that a reason names."""


def score(
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    classifiers: Sequence[str],
    tau: float,
    alpha: float,
    verified: VerifiedImages | None = None,
    distinct: Distinct | None = None,
    clusters: Clusters | None = None,
) -> pa.Table:
    """Returns a table of `tables.SCORES`: a row per classifier and cell, in the order of `classifiers`, then of the
    captions.

    An image that several captions of one cell drew counts once, and so do near-duplicates, by `distinct`. Images
    without a prediction are counted in `errors`, not in `n`. Captions are the sampling unit where captions drew the
    images: differences between the captions of a cell are part of the intervals. Findings that say the same share a
    `group`. The false discovery rate is controlled over all cells of all classifiers.

    Where images come in `clusters`, such as those of one camera, clusters are the sampling unit, and a value of one
    cluster is undetermined.

    Where images are `verified`, scores are corrected for what images show, and cells whose images cannot be trusted are
    undetermined; they are left out of the family of tests, and of the reference of the other values.
    """
    return scored(captions, draws, predictions, classifiers, Thresholds(tau, alpha), verified, distinct, clusters)[0]


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
    """Returns the scores as `score` does, and a table of `tables.POOLED`: those of all classes together.

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
