"""Scores what all classes share: φ of an attribute's values over the whole task.

Many classes may show a little of the same effect, while no single class has enough images to establish it. It knows
accuracies and doubts; `stats.pooled` has the weights and tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring import clusters as clusters_of_images
from c2b_ray.audits.c2b.scoring.confounding import Score, StandardisedScores, standardised_over_classes
from c2b_ray.audits.c2b.scoring.judge import (
    BASES,
    EVIDENCE_OF_VALUES,
    MOST_SHARED,
    Estimate,
    Floats,
    farther,
    one_sided,
)
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import explained_by_false_accepts, not_excluded_over_classes
from c2b_ray.names import normalise
from c2b_ray.stats.scores import mean_of_others
from c2b_ray.tables import POOLED
from c2b_ray.tables import c2b as tables

LEAST_CLASSES = 2


class PooledRow(tables.PooledRow):
    """A row of `tables.POOLED` while it is made, with what is no column."""

    none_p_value: float
    may_be_none: bool


def pooled(estimates: Sequence[Estimate], thresholds: Thresholds) -> pa.Table:
    """Returns a table of `tables.POOLED`: a row per classifier, attribute and value that at least `LEAST_CLASSES`
    classes have in common with another value.

    Values of all classes are compared by their normalised names. Cells in doubt are left out: a class takes part with
    the cells that can be trusted. As in a cell, an effect must hold after standardising over the other attributes, and
    `none` needs values that are known to differ, on images that they do not share; and both must hold without the
    images that a verifier falsely accepted, where these are predicted, and limits contain that reading. An effect that
    disappears without one of the classes belongs to that class, and is in doubt here. The false discovery rate is
    controlled over all rows of all classifiers.
    """
    groups: dict[tuple[str, str], list[Estimate]] = defaultdict(list)
    for estimate in estimates:
        groups[estimate.classifier, normalise(estimate.attribute)].append(estimate)
    rows = [row for group in groups.values() for row in _rows(group, thresholds)]
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


def _rows(estimates: Sequence[Estimate], thresholds: Thresholds) -> list[PooledRow]:
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
    rows: list[PooledRow] = []
    for j in np.flatnonzero(test.classes >= LEAST_CLASSES).tolist():
        is_finding = abs(test.phi[j]) > thresholds.tau and p_value[j] <= thresholds.alpha
        carrier = _carrier(cells, test, j, thresholds) if is_finding else None
        rows.append(
            {
                "classifier": estimates[0].classifier,
                "attribute": estimates[0].attribute,
                "bias_class": cells.values[j],
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
