"""Scores intersections: accuracy, φ, interaction and verdict of every cell of two attributes.

It knows which images count for which cell and which cells cannot be trusted; `metrics` has the formulas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray import metrics
from c2b_ray.metrics.contrasts import contrast_interval, contrast_p_values
from c2b_ray.metrics.interaction import Crossed, crossed, weighted_counts
from c2b_ray.metrics.shadows import Separated, separated
from c2b_ray.schemas import INTERSECTIONS
from c2b_ray.steps.answers import answers_of, by_column
from c2b_ray.steps.cells import CellImages, counts_by_source, images_of_pairs
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.image_ids import Ints
from c2b_ray.steps.intersect import Pair, bias_class, of_run
from c2b_ray.steps.paired_images import PairCells, PairCounts, by_caption, counts_of_captions, counts_of_verified
from c2b_ray.steps.reasons import EVIDENCE_OF_VALUES
from c2b_ray.steps.thresholds import Thresholds
from c2b_ray.steps.verified import Seen, Verified

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

UNCHECKED = "retrieved for its captions, and nobody checked that the images show both values; `verification` would"


@dataclass(frozen=True)
class PairImages:
    """The images of a run: `draws`, and `pool`, the images that were looked at for them (both of `schemas.DRAWS`);
    which images are the same picture; and a verifier's answers. None: not known."""

    draws: pa.Table
    distinct: Distinct | None = None
    verified: Verified | None = None
    pool: pa.Table | None = None


@dataclass(frozen=True)
class _Estimate:
    """One classifier on one pair. `copies`: near-duplicates that were left out, by cell. `table` excludes the cells in
    doubt, unless all are."""

    classifier: str
    pair: Pair
    counts: PairCounts
    copies: Ints
    table: Crossed

    @property
    def sure(self) -> bool:
        return any(doubt is None for doubt in self.counts.doubts)


def score_pairs(
    proposals: pa.Table,
    captions: pa.Table,
    predictions: pa.Table,
    images: PairImages,
    classifiers: Sequence[str],
    thresholds: Thresholds,
) -> pa.Table:
    """Returns a table of `schemas.INTERSECTIONS`: a row per classifier and cell of a pair.

    φ compares all cells of the pair, as for an attribute. The verdict is on the interaction: the accuracy minus the one
    expected from the two attributes' separate effects, in the table without the cells that are findings. A cell that
    was a finding before those were left out is a shadow of one of them, and folded into it. The false discovery rate is
    controlled over all cells of all pairs of all classifiers, separately from the scores'. Captions are the sampling
    unit where captions drew the images. A cell without predictions is NaN and undetermined.

    Where images are verified, an image counts for the cell whose class and two values the verifier sees in it,
    whichever of the pair's captions drew it, and accuracies are corrected for the verifier's errors. Cells whose images
    cannot be trusted are in doubt: they are not tested, and no other cell's expectation rests on them. Retrieved images
    that were not verified are all in doubt. Among near-duplicates a cell counts one.
    """
    pairs = of_run(proposals, captions)
    drawn = images_of_pairs(captions, images.draws)
    pictures = None if images.distinct is None else images.distinct.pictures(drawn.ids)
    kept = drawn.without_copies(pictures)
    repeats = np.append(drawn.sizes - kept.sizes, 0)
    sources, seen = _sources(captions, images.draws), _seen(captions, images, kept)
    by_id = pc.sort_indices(captions["caption_id"]).to_numpy()
    estimates = []
    for classifier in classifiers:
        answers = answers_of(predictions, classifier).to(kept)
        samples = [*answers.by_caption(by_id), []]
        for pair in pairs:
            cells = PairCells.of(pair, answers)
            counts = _counted(cells, seen, pictures, sources[pair.proposal_id])
            if counts.basis != "labels":
                right, answered = by_column([samples[number] for number in cells.number])
                counts = by_caption(counts, right, answered, thresholds.confidence)
            estimates.append(_Estimate(classifier, pair, counts, repeats[cells.number], _crossed(pair, counts)))
    return _table(estimates, thresholds)


def _sources(captions: pa.Table, draws: pa.Table) -> dict[str, set[str]]:
    """Returns the sources of the images of each pair, by proposal id."""
    sources: dict[str, set[str]] = defaultdict(set)
    for (proposal, _), of_cell in counts_by_source(captions, draws).items():
        sources[proposal] |= set(of_cell)
    return sources


def _seen(captions: pa.Table, images: PairImages, cells: CellImages) -> Seen | None:
    """Returns what a verifier saw in the images of the pairs' cells; None where nothing was verified."""
    verified = images.verified
    if verified is not None and images.pool is not None:
        verified = verified.drawn_from(images_of_pairs(captions, images.pool))
    return None if verified is None else verified.of(cells)


def _counted(cells: PairCells, seen: Seen | None, pictures: Ints | None, sources: set[str]) -> PairCounts:
    """Counts images by what the verifier saw, or, where nothing was verified, by their captions or labels."""
    if seen is not None:
        return counts_of_verified(cells, seen, pictures)
    basis = "labels" if sources <= {"labelled"} else "captions"
    return counts_of_captions(cells, basis, UNCHECKED if "retrieve" in sources else None)


def _crossed(pair: Pair, counts: PairCounts) -> Crossed:
    doubtful = np.array([doubt is not None for doubt in counts.doubts], dtype=bool)
    aside = (doubtful & (not doubtful.all())).reshape(pair.shape)
    total = counts.effective.reshape(pair.shape)
    return crossed(np.nan_to_num(counts.accuracy).reshape(pair.shape) * total, total, aside, counts.covariance)


def _table(estimates: Sequence[_Estimate], thresholds: Thresholds) -> pa.Table:
    tau, alpha = thresholds
    sure = [estimate for estimate in estimates if estimate.sure]
    judged = dict(zip(map(id, sure), separated([estimate.table for estimate in sure], tau, alpha), strict=True))
    results = [judged.get(id(estimate)) or _untested(estimate.table) for estimate in estimates]
    findings = sum(int(result.findings.sum()) for result in results)
    tests = sum(int(np.isfinite(result.q_value).sum()) for result in results)
    # Findings were selected: their limits are false-coverage-rate limits (Benjamini & Yekutieli 2005).
    of_findings = metrics.selected_confidence(findings, tests, alpha)
    none_q = _none_q_values(estimates, results, tau)
    parts = [
        _columns(estimate, result, (1 - alpha, of_findings), tau)
        for estimate, result in zip(estimates, results, strict=True)
    ]
    phi_q = metrics.benjamini_hochberg(np.concatenate([part["phi_p_value"] for part in parts] or [np.zeros(0)]))
    rows, first = [], 0
    for estimate, result, columns in zip(estimates, results, parts, strict=True):
        names = [bias_class(*cell) for cell in estimate.pair.cells()]
        for i, (x, y) in enumerate(estimate.pair.cells()):
            row = {name: np.asarray(values)[i].item() for name, values in columns.items()} | _named(estimate, x, y)
            is_none = none_q[first + i] <= alpha and estimate.counts.basis in EVIDENCE_OF_VALUES
            row["verdict"] = _verdict(row["interaction"], bool(result.findings.flat[i]), bool(is_none))
            row["phi_q_value"] = phi_q[first + i].item()
            row["doubt"] = estimate.counts.doubts[i]
            row |= _of_captions(estimate.counts, i)
            row["folded_into"] = names[result.folded.flat[i]] if result.folded.flat[i] >= 0 else None
            rows.append(row)
        first += len(names)
    return pa.Table.from_pylist(rows, INTERSECTIONS)


def _of_captions(counts: PairCounts, i: int) -> dict[str, int | float | None]:
    if counts.captions is None or counts.spread is None:
        return {"captions": None, "caption_spread": None}
    return {"captions": int(counts.captions[i]), "caption_spread": float(counts.spread[i])}


def _untested(table: Crossed) -> Separated:
    shape = table.total.shape
    unknown = np.full(shape, np.nan)
    return Separated(table, unknown, unknown, np.zeros(shape, bool), np.full(shape, -1, np.int64))


def _none_q_values(estimates: Sequence[_Estimate], results: Sequence[Separated], tau: float) -> Floats:
    """Returns q-values of the claim that the two attributes explain a cell, over all cells that are not in doubt."""
    parts = []
    for estimate, result in zip(estimates, results, strict=True):
        p = metrics.interaction_none_p_values(result.table, tau).ravel()
        doubtful = np.array([doubt is not None for doubt in estimate.counts.doubts], dtype=bool)
        parts.append(np.where(doubtful, np.nan, p))
    return metrics.benjamini_hochberg(np.concatenate(parts) if parts else np.zeros(0))


def _named(estimate: _Estimate, x: str, y: str) -> dict[str, str]:
    pair = estimate.pair
    return {
        "classifier": estimate.classifier,
        "target_class": pair.target_class,
        "attribute": pair.attribute,
        "bias_class": bias_class(x, y),
        "attribute_a": pair.a["attribute"],
        "attribute_b": pair.b["attribute"],
        "value_a": x,
        "value_b": y,
        "basis": estimate.counts.basis,
    }


def _columns(estimate: _Estimate, result: Separated, confidences: tuple[float, float], tau: float) -> Columns:
    """Returns the numbers of `schemas.INTERSECTIONS`, in the order of the cells."""
    counts, table = estimate.counts, result.table
    usual, of_findings = confidences
    low, high = metrics.interaction_interval(table, usual)
    if result.findings.any():
        wide = metrics.interaction_interval(table, of_findings)
        low, high = (np.where(result.findings, w, n) for w, n in zip(wide, (low, high), strict=True))
    held = counts.effective > 0
    eye = np.where(held[:, None], np.eye(len(held)), np.nan)
    accuracy_low, accuracy_high = contrast_interval(*weighted_counts(table, eye), usual)
    of_phi = weighted_counts(table, _phi_weights(held))
    phi_low, phi_high = contrast_interval(*of_phi, usual)
    return {
        "n": counts.total,
        "correct": counts.correct,
        "errors": counts.errors,
        "repeats": estimate.copies,
        "shown": counts.shown,
        "accuracy": np.where(held, counts.accuracy, np.nan),
        "accuracy_low": accuracy_low,
        "accuracy_high": accuracy_high,
        "phi": (of_phi[2] * np.nan_to_num(counts.accuracy)).sum(axis=1),
        "phi_low": phi_low,
        "phi_high": phi_high,
        "phi_p_value": np.where([d is None for d in counts.doubts], contrast_p_values(*of_phi, tau), np.nan),
        "expected": metrics.expected_accuracies(table).ravel(),
        "interaction": metrics.interactions(table).ravel(),
        "interaction_low": low.ravel(),
        "interaction_high": high.ravel(),
        "p_value": result.p_value.ravel(),
        "q_value": result.q_value.ravel(),
    }


def _phi_weights(held: NDArray[np.bool_]) -> Floats:
    """Returns (cells, cells): the weight of each accuracy in each φ; NaN where a cell has no images, or nothing to
    compare."""
    others = max(int(held.sum()) - 1, 1)
    weights = np.where(np.eye(len(held), dtype=bool), 1.0, held / -others)
    defined = held & (held.sum() >= 2)
    return np.where(defined[:, None], weights, np.nan)


def _verdict(interaction: float, is_finding: bool, is_none: bool) -> str:
    if is_finding:
        return "for" if interaction > 0 else "against"
    return "none" if is_none else "undetermined"
