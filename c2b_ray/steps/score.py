"""predictions → scores: accuracy, φ, intervals and verdicts of every cell.

A cell is a (target class, attribute, bias class). It knows which draws belong to a cell; the formulas are `metrics`'.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray import metrics
from c2b_ray.schemas import SCORES
from c2b_ray.steps.answers import Answers, Taken, answers_of
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.group import grouped
from c2b_ray.steps.intersect import is_pair
from c2b_ray.steps.propose import normalise
from c2b_ray.steps.verified import Group, Levels, Verified, columns

Cells = Mapping[Group, Mapping[str, set[str]]]


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

    An image that several captions of one cell drew counts once, and so do near-duplicates, where `distinct` says which
    these are. Images without a prediction are counted in `errors`, not in `n`. Findings that say the same share a
    `group`. The false discovery rate is controlled over all cells of one classifier.

    Where images are `verified`, scores are corrected for what images show, and cells
    whose images cannot be trusted are undetermined; they are left out of the family of tests.
    """
    drawn = images_of_cells(captions, draws)
    cells = distinct_images(drawn, distinct)
    classes = {normalise(name) for name in captions["target_class"].unique().to_pylist()}
    tables = []
    for classifier in classifiers:
        answers = answers_of(predictions, classifier)
        rows = [row for group in cells.items() for row in _group_rows(classifier, group, answers, tau, alpha)]
        for row in rows:
            row["repeats"] = len(drawn[_group(row)][row["bias_class"]]) - len(cells[_group(row)][row["bias_class"]])
        if verified is not None:
            _verify(rows, cells, answers, verified, (tau, alpha))
        _judge(rows, tau, alpha)
        _settle(rows, tau, alpha)
        for row in rows:
            row.update(_wrong_answers(row, cells, answers.of(row["target_class"]), classes))
        tables.append(pa.Table.from_pylist(rows, SCORES))
    return grouped(pa.concat_tables(tables), cells, tau) if tables else SCORES.empty_table()


def images_of_cells(captions: pa.Table, draws: pa.Table) -> dict[Group, dict[str, set[str]]]:
    """Of every (target class, attribute), the images that each bias class's captions drew; intersections left out."""
    cells: dict[Group, dict[str, set[str]]] = defaultdict(dict)
    place = {}
    columns = ("caption_id", "proposal_id", "target_class", "attribute", "bias_class")
    for caption_id, proposal, *group, bias_class in zip(*(captions[c].to_pylist() for c in columns), strict=True):
        if not is_pair(proposal):
            place[caption_id] = cells[group[0], group[1]].setdefault(bias_class, set())
    for caption_id, image in zip(draws["caption_id"].to_pylist(), draws["image_id"].to_pylist(), strict=True):
        if caption_id in place:
            place[caption_id].add(image)
    return cells


def distinct_images(
    drawn: dict[Group, dict[str, set[str]]], duplicates: Distinct | None
) -> dict[Group, dict[str, set[str]]]:
    """The cells without near-duplicates, where it is known which these are."""
    if duplicates is None:
        return drawn
    return {group: {name: duplicates.distinct(images) for name, images in own.items()} for group, own in drawn.items()}


def _group_rows(
    classifier: str,
    group: tuple[Group, Mapping[str, set[str]]],
    answers: Answers,
    tau: float,
    alpha: float,
) -> list[dict[str, Any]]:
    (target_class, attribute), cells = group
    taken = answers.of(target_class)
    given = [[taken.get(image) for image in images] for images in cells.values()]
    total = np.array([sum(a is not None for a in cell) for cell in given])
    correct = np.array([sum(a == target_class for a in cell) for cell in given])
    confidence = 1 - alpha
    low, high = metrics.wilson_interval(correct, total, confidence)
    phi_low, phi_high = metrics.bias_score_interval(correct, total, confidence)
    columns = {
        "n": total,
        "correct": correct,
        "errors": np.array([len(cell) for cell in given]) - total,
        "accuracy": np.divide(correct, total, out=np.full(len(total), np.nan), where=total > 0),
        "accuracy_low": low,
        "accuracy_high": high,
        "phi": metrics.bias_scores(correct, total),
        "phi_low": phi_low,
        "phi_high": phi_high,
        "p_value": metrics.bias_score_p_values(correct, total, tau),
        "none_p_value": metrics.equivalence_p_values(correct, total, tau),
        "paper_verdict": metrics.paper_verdicts(correct, total, tau),
    }
    columns |= {"accuracy_observed": columns["accuracy"], "phi_observed": columns["phi"], "effective": total}
    names = {"classifier": classifier, "target_class": target_class, "attribute": attribute}
    return [
        {**names, "bias_class": bias_class, **{name: values[i].item() for name, values in columns.items()}}
        for i, bias_class in enumerate(cells)
    ]


def _group(row: dict[str, Any]) -> Group:
    return row["target_class"], row["attribute"]


def _verify(
    rows: list[dict[str, Any]],
    cells: Cells,
    answers: Answers,
    verified: Verified,
    levels: Levels,
) -> None:
    """Corrects the rows for what their images show; withholds p-values where these cannot be trusted."""
    found = {}
    for group, own in groupby(rows, _group):
        taken = answers.of(group[0])
        correction = verified.correct(group, cells[group], taken, levels)
        explained = {}
        if correction is not None:
            found[group] = correction
            explained = verified.explained(group, cells[group], taken, correction.scores.phi, levels)
        for i, row in enumerate(own):
            row["class_shown"] = verified.of_class(group[0], cells[group][row["bias_class"]])
            row["basis"] = verified.basis(group, list(cells[group]))
            row["doubt"] = explained.get(row["bias_class"])
            if correction is not None:
                values = columns(correction)
                row.update({name: float(values[name][i]) for name in values})
                scores = correction.scores
                row["none_p_value"] = float(
                    metrics.contrast_test(scores.accuracy, scores.effective, levels[0]).none_p_value[i]
                )
    for row, reasons in zip(rows, verified.doubts(rows, found, levels), strict=True):
        row["doubt"] = "; ".join([*reasons, *([row["doubt"]] if row["doubt"] else [])]) or None
        if row["doubt"] is not None:
            row["p_value"] = row["none_p_value"] = float("nan")


def _wrong_answers(row: dict[str, Any], cells: Cells, answers: Taken, classes: set[str]) -> dict[str, Any]:
    target, bias_class = row["target_class"], row["bias_class"]
    given = Counter(answers.get(image) for image in cells[target, row["attribute"]][bias_class])
    # Ties go to the first name, so that a rerun says the same.
    wrong = sorted((-count, name) for name, count in given.items() if name not in (None, target))
    count, name = wrong[0] if wrong else (0, None)
    named = {normalise(answer): n for answer, n in given.items() if answer}
    cue = normalise(bias_class)
    return {
        "mistaken_for": name,
        "mistaken": -count,
        "answered_bias_class": named.get(cue, 0) if cue in classes | named.keys() else None,
    }


def _judge(rows: list[dict[str, Any]], tau: float, alpha: float) -> None:
    phi, p, none_p = (np.array([row[name] for row in rows], float) for name in ("phi", "p_value", "none_p_value"))
    q, none_q = metrics.benjamini_hochberg(p), metrics.benjamini_hochberg(none_p)
    verdicts = metrics.verdicts(phi, q, none_q, tau, alpha)
    for row, q_value, none_q_value, verdict in zip(rows, q, none_q, verdicts, strict=True):
        row["q_value"], row["none_q_value"] = float(q_value), float(none_q_value)
        row["verdict"] = "undetermined" if row.get("doubt") else verdict


def _settle(rows: list[dict[str, Any]], tau: float, alpha: float) -> None:
    """How many images per cell would settle the undetermined ones, were the observed accuracies the truth."""
    found = sum(row["verdict"] in ("for", "against") for row in rows)
    # One more finding would have to pass this step of Benjamini and Hochberg's ladder.
    step = alpha * (found + 1) / max(1, len(rows))
    groups = defaultdict(list)
    for row in rows:
        groups[row["target_class"], row["attribute"]].append(row)
        row["images_to_settle"] = None
    for group in groups.values():
        # As many images of sure content as tell as much: all of them where nothing was verified.
        total = np.array([round(row["effective"]) for row in group])
        accuracy = np.nan_to_num([row["accuracy"] for row in group])
        correct = np.minimum(np.round(accuracy * total), total).astype(int)
        biased = metrics.images_to_settle(correct, total, tau, min(alpha, step))
        clear = metrics.images_to_settle(correct, total, tau, alpha)
        for row, if_biased, if_clear in zip(group, biased.tolist(), clear.tolist(), strict=True):
            needed = if_biased if abs(row["phi"]) > tau else if_clear
            if row["verdict"] == "undetermined" and needed > 0 and not row.get("doubt"):
                row["images_to_settle"] = math.ceil(needed * max(1.0, row["n"] / max(row["effective"], 1.0)))
