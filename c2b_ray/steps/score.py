"""predictions → scores: accuracy, φ, intervals and verdicts of every cell.

It joins the images of every cell with what classifiers answered: accuracies are `estimates`', verdicts `judge`'s, and
the formulas `metrics`'.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray import metrics
from c2b_ray.names import normalise
from c2b_ray.schemas import SCORES
from c2b_ray.steps.answers import Answers, Taken, answers_of
from c2b_ray.steps.cells import Cells, Group, Images, images_of_cells, origins, outside
from c2b_ray.steps.confounding import Confounding
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.estimates import Counts, Looked, counted, estimated
from c2b_ray.steps.group import grouped
from c2b_ray.steps.judge import TOO_FEW, Estimate, Floats, Levels, can_be_clear, judged
from c2b_ray.steps.pooled_scores import pooled
from c2b_ray.steps.verified import Verified


def score(
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    classifiers: Sequence[str],
    tau: float,
    alpha: float,
    verified: Verified | None = None,
    distinct: Distinct | None = None,
) -> pa.Table:
    """A table of `schemas.SCORES`: a row per classifier and cell, in the order of `classifiers`, then of the captions.

    An image that several captions of one cell drew counts once, and so do near-duplicates, by `distinct`. Images
    without a prediction are counted in `errors`, not in `n`. Captions are the sampling unit where captions drew the
    images: what differs between the captions of a cell is part of the intervals. Findings that say the same share a
    `group`. The false discovery rate is controlled over all cells of all classifiers.

    Where images are `verified`, scores are corrected for what images show, and cells whose images cannot be trusted are
    undetermined; they are left out of the family of tests, and of the reference of the other values.
    """
    return scored(captions, draws, predictions, classifiers, Levels(tau, alpha), verified, distinct)[0]


def scored(
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    classifiers: Sequence[str],
    levels: Levels,
    verified: Verified | None = None,
    distinct: Distinct | None = None,
) -> tuple[pa.Table, pa.Table]:
    """The scores, as `score` says, and a table of `schemas.POOLED`: those of all classes together."""
    drawn = images_of_cells(captions, draws)
    cells = distinct_images(drawn, distinct)
    source = origins(captions, draws)
    shared = {group: outside(images, distinct) for group, images in cells.items()}
    shares = {group: _shares(shared[group], images) for group, images in cells.items()}
    looked = None if verified is None else Looked(verified, Confounding(verified, cells))
    estimates: list[Estimate] = []
    rows: list[dict[str, Any]] = []
    for classifier in classifiers:
        answers = answers_of(predictions, classifier)
        counts = [counted(group, images, answers, source) for group, images in cells.items()]
        own = estimated(classifier, counts, shares, answers, looked, source.known, levels)
        for estimate, count in zip(own, counts, strict=True):
            repeats = [len(drawn[count.group][value]) - len(images) for value, images in count.images.items()]
            estimate.columns |= {"repeats": repeats, "shared": list(shared[count.group].values())}
            estimate.columns |= {"n": count.total, "correct": count.correct}
            rows += _rows(estimate, count, answers, levels.tau)
        estimates += own
    classes = {normalise(name) for name in captions["target_class"].unique().to_pylist()}
    for row, judgement in zip(rows, judged(estimates, levels), strict=True):
        row |= judgement
        if row["answered_bias_class"] == 0 and normalise(row["bias_class"]) not in classes:
            row["answered_bias_class"] = None
    _settle(rows, levels)
    return grouped(pa.Table.from_pylist(rows, SCORES), cells, levels.tau), pooled(estimates, levels)


def _shares(parts: Mapping[str, int], images: Images) -> Floats:
    return np.array([parts[value] / max(len(of_value), 1) for value, of_value in images.items()])


def distinct_images(drawn: Cells, distinct: Distinct | None) -> dict[Group, dict[str, set[str]]]:
    """The cells without near-duplicates, where it is known which these are."""
    return {
        group: {name: distinct.distinct(images) if distinct else images for name, images in of_group.items()}
        for group, of_group in drawn.items()
    }


def _rows(estimate: Estimate, count: Counts, answers: Answers, tau: float) -> list[dict[str, Any]]:
    """The columns of `schemas.SCORES` that are counts, or are known before any test."""
    undecided, taken = answers.undecided(), answers.of(count.group[0])
    columns: dict[str, Any] = {
        "errors": [len(images) for images in count.images.values()] - count.total,
        "undecided": [len(images & undecided) for images in count.images.values()],
        "accuracy_observed": count.accuracy,
        "phi_observed": metrics.bias_scores(count.correct, count.total),
        "paper_verdict": metrics.paper_verdicts(count.correct, count.total, tau),
        "effective": estimate.effective,
        **estimate.columns,
    }
    names = {"classifier": estimate.classifier, "target_class": count.group[0], "attribute": count.group[1]}
    return [
        {**names, "bias_class": value, **{name: np.asarray(values)[i].item() for name, values in columns.items()}}
        | _wrong_answers(count.group[0], value, images, taken)
        for i, (value, images) in enumerate(count.images.items())
    ]


def _wrong_answers(target: str, value: str, images: set[str], taken: Taken) -> dict[str, Any]:
    given = Counter(taken.get(image) for image in images)
    # Ties go to the first name, so that a rerun says the same.
    wrong = sorted((-count, name) for name, count in given.items() if name not in (None, target))
    count, name = wrong[0] if wrong else (0, None)
    named = {normalise(answer): n for answer, n in given.items() if answer}
    return {
        "mistaken_for": name,
        "mistaken": -count,
        "answered_bias_class": named.get(normalise(value), 0),
    }


def _settle(rows: Sequence[dict[str, Any]], levels: Levels) -> None:
    """How many images per cell would settle the undetermined ones, were the observed accuracies the truth."""
    tau, alpha = levels.tau, levels.alpha
    found = sum(row["verdict"] in ("for", "against") for row in rows)
    # One more finding would have to pass this step of Benjamini and Hochberg's ladder.
    step = alpha * (found + 1) / max(1, len(rows))
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["classifier"], row["target_class"], row["attribute"]].append(row)
        row["images_to_settle"] = None
    width = max(map(len, groups.values()), default=0)
    # As many images of sure content as tell as much: all of them where nothing was verified. A group of fewer values
    # than others has cells without images.
    correct, total = np.zeros((2, len(groups), width), np.int64)
    for at, group in enumerate(groups.values()):
        total[at, : len(group)] = [round(row["effective"]) for row in group]
        accuracy = np.nan_to_num([row["accuracy"] for row in group])
        correct[at, : len(group)] = np.minimum(np.round(accuracy * total[at, : len(group)]), total[at, : len(group)])
    biased = metrics.images_to_settle(correct, total, tau, min(alpha, step)).tolist()
    clear = metrics.images_to_settle(correct, total, tau, alpha).tolist()
    for at, group in enumerate(groups.values()):
        for i, row in enumerate(group):
            beyond = abs(row["phi"]) > tau
            needed = (biased if beyond else clear)[at][i]
            if row["verdict"] != "undetermined" or row["doubt"] or math.isnan(row["phi"]):
                continue
            if needed > 0 and (beyond or can_be_clear(row)):
                row["images_to_settle"] = math.ceil(needed * max(1.0, row["n"] / max(row["effective"], 1.0)))
            elif row["undetermined_because"] == TOO_FEW:
                row["undetermined_because"] = f"φ lies next to ±{tau:g}: no number of images would settle it"
