"""Two stages: scores on a few images of every cell, then scores on fresh images of the attributes whose φ looks large.

It decides which attributes get fresh images and joins both scores; it does not know where images come from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring.judge import TOO_FEW, ScoreRow, deviations_between
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.stats.roots import deviations
from c2b_ray.stats.sample_size import TwoStages, Variation, least_found
from c2b_ray.steps.cells import CellKey, GroupName
from c2b_ray.steps.intersect import ATTRIBUTE, of_kind
from c2b_ray.tables import SCORES

FINDINGS = ("for", "against")


def selected(scores: pa.Table, least: float) -> set[GroupName]:
    """Returns the (target class, attribute) pairs that get fresh images: those in which any value, for any classifier,
    has |φ| ≥ `least` or a finding.

    φ compares the values of an attribute, and classifiers share images: so all values of an attribute get them.
    """
    rows = scores.select(["target_class", "attribute", "phi", "verdict"]).to_pylist()
    return {
        GroupName(row["target_class"], row["attribute"])
        for row in rows
        if abs(row["phi"]) >= least or row["verdict"] in FINDINGS
    }


def cells_to_draw(captions: pa.Table, groups: Collection[GroupName], fresh: int) -> dict[CellKey, int]:
    """Returns the number of fresh images of every cell of these attributes."""
    return {(row["proposal_id"], row["bias_class"]): fresh for row in captions_of(captions, groups).to_pylist()}


def captions_of(captions: pa.Table, groups: Collection[GroupName]) -> pa.Table:
    """Returns the captions of these (target class, attribute) pairs, without intersections."""
    single = of_kind(captions, ATTRIBUTE)
    pairs = zip(single["target_class"].to_pylist(), single["attribute"].to_pylist(), strict=True)
    return single.filter(pa.array([pair in groups for pair in pairs], pa.bool_()))


def in_two_stages(
    scores: pa.Table,
    fresh: pa.Table,
    groups: Collection[GroupName],
    least: float,
    per_cell: int,
    thresholds: Thresholds,
) -> pa.Table:
    """Returns the result of both stages: of the selected attributes the rows of `fresh`, of all others those of the
    first stage.

    `scores`, `fresh`: tables of `schemas.SCORES`, the second computed on the fresh images alone, and only for these
    `groups`: they are its family of tests. The first stage alone makes no finding; it can show `none`. Every row gets
    `detectable`, the smallest |φ| that the design of `per_cell` fresh images finds four times in five, if no other
    value of the attribute differs; null where nothing is known, or no |φ| is found so often.
    """
    rows, of_fresh = scores.to_pylist(), fresh.to_pylist()
    by_name = {_name(row): row for row in of_fresh}
    findings = sum(row["verdict"] in FINDINGS for row in of_fresh)
    # One more finding would have to pass this step of Benjamini and Hochberg's ladder.
    level = thresholds.alpha * min(1.0, (findings + 1) / max(1, len(of_fresh)))
    varies = {_name(row): of_row for row, of_row in zip(rows, _variations(rows, thresholds), strict=True)}
    # The second stage has more images, and knows more of what φ varies by.
    varies |= {_name(row): of_row for row, of_row in zip(of_fresh, _variations(of_fresh, thresholds), strict=True)}
    design = TwoStages(([max(row["n"], 1) for row in rows], per_cell), least, thresholds.tau, level)
    smallest = least_found(Variation(*np.array([varies[_name(row)] for row in rows]).reshape(-1, 4).T), design)
    joined = []
    for row, detectable in zip(rows, smallest.tolist(), strict=True):
        kept = row
        if (row["target_class"], row["attribute"]) in groups:
            kept = by_name[_name(row)]
        elif (row["undetermined_because"] or "").startswith(TOO_FEW):  # other reasons more images would not remove
            because = f"no value of its attribute had |φ| ≥ {least:g} at the screening, so it drew no fresh images"
            kept = row | {"undetermined_because": because}
        joined.append(kept | {"detectable": None if np.isnan(detectable) else detectable})
    return pa.Table.from_pylist(joined, SCORES)


def _name(row: ScoreRow) -> tuple[str, str, str, str]:
    return row["classifier"], row["target_class"], row["attribute"], row["bias_class"]


def _variations(rows: Sequence[ScoreRow], thresholds: Thresholds) -> list[tuple[float, ...]]:
    """Returns what φ of every row of one stage varies by, the fields of a `Variation`.

    The variance of φ follows from the width of its interval. The captions' part of it is the same in both stages, which
    draw from the same captions; the rest, which includes the verifier's errors, shrinks with the number of images.
    """
    groups = groupby(rows, key=lambda row: _name(row)[:3])
    parts = [_variation(list(of_group), _width(rows, thresholds)) for _, of_group in groups]
    return [tuple(of_row) for of_group in parts for of_row in of_group.tolist()]


def _width(rows: Sequence[ScoreRow], thresholds: Thresholds) -> dict[bool, float]:
    """Returns how many standard deviations wide the intervals of findings are (True), and all others. Limits of
    findings are wider, because these were selected."""
    findings = sum(row["verdict"] in FINDINGS for row in rows)
    tests = int(np.isfinite(np.array([row["q_value"] for row in rows], np.float64)).sum())
    of_findings = stats.selected_confidence(findings, max(tests, findings), thresholds.alpha)
    return {True: 2 * deviations(of_findings), False: 2 * deviations(thresholds.confidence)}


def _variation(rows: Sequence[ScoreRow], width: Mapping[bool, float]) -> stats.Floats:
    """Returns (rows, 4) for the rows of one attribute."""
    n, correct, accuracy, phi, low, high = (
        np.array([row[name] for row in rows], np.float64)
        for name in ("n", "correct", "accuracy", "phi", "phi_low", "phi_high")
    )
    rate = (correct + 0.5) / (n + 1)
    answers = n * stats.bias_score_deviations(np.sqrt(rate * (1 - rate)), n) ** 2  # one of each value
    captions = deviations_between(rows) ** 2
    whole = ((high - low) / [width[row["verdict"] in FINDINGS] for row in rows]) ** 2
    given = np.maximum(whole - captions, answers / np.maximum(n, 1))
    parts = (
        np.clip(accuracy - phi, 0, 1),
        np.maximum(answers - rate * (1 - rate), 0),
        np.divide(n * given, answers, out=np.full(len(rows), np.nan), where=answers > 0),
        np.divide(captions, answers, out=np.full(len(rows), np.nan), where=answers > 0),
    )
    return np.stack(parts, axis=1)
