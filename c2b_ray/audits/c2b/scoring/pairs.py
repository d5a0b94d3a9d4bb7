"""Scores intersections: accuracy, φ, interaction and verdict of every cell of two attributes.

It knows which images count for which cell and which cells cannot be trusted; `stats` has the formulas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.scoring.judge import EVIDENCE_OF_VALUES
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import (
    LEAST_SHOWN,
    LEAST_SKILL,
    NOTHING,
    CellObservations,
    VerifiedImages,
    doubt_of_class,
)
from c2b_ray.stats.clusters import effective_images
from c2b_ray.stats.contrasts import contrast_interval, contrast_p_values
from c2b_ray.stats.interaction import CrossedCells, Separated, crossed, separated, weighted_counts
from c2b_ray.stats.noisy_labels import Corrected, corrected
from c2b_ray.steps.answers import CellAnswers, answers_of, by_column
from c2b_ray.steps.cells import (
    CellGroup,
    CellImages,
    CellName,
    GroupName,
    Pair,
    bias_class,
    counts_by_source,
    images_of_pairs,
    of_run,
)
from c2b_ray.steps.draw import Ints, Mask, distinct_count
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.tables import INTERSECTIONS

# Counts the images of each cell of two attributes: which count, how many are answered right, and which cells cannot
# be trusted.


MOST_CELLS = 25
"""The most cells of a pair whose accuracies are corrected for the verifier's errors; larger ones are not corrected."""


@dataclass(frozen=True)
class PairCounts:
    """The counts of every cell of a pair, in their order; arrays have shape (cells,).

    `total`: images that count for the cell and have an answer, of which `correct` are right; `errors`: those without.
    `accuracy` may be corrected for what images show; `effective`: the number of images of known content with the same
    information; `covariance` (cells, cells), where the accuracies are not independent. `shown`: the estimated share of
    the images drawn for the cell that show both values; NaN: not known. `basis`, `captions` and `spread` as in
    `tables.SCORES`, where `spread` is `caption_spread`; None for labelled images. `doubts`: why a cell cannot be
    trusted.
    """

    total: Ints
    correct: Ints
    errors: Ints
    accuracy: Floats
    effective: Floats
    covariance: Floats | None
    shown: Floats
    basis: str
    doubts: list[str | None]
    captions: Ints | None = None
    spread: Floats | None = None


@dataclass(frozen=True)
class PairCells:
    """The cells of a pair, in the order of `Pair.cells`, among those of a run's pairs; and one classifier's answers."""

    pair: Pair
    answers: CellAnswers
    group: CellGroup

    @classmethod
    def of(cls, pair: Pair, answers: CellAnswers) -> PairCells:
        """Returns the pair's cells; none where no caption exists for any of them."""
        name = GroupName(pair.target_class, pair.attribute)
        return cls(pair, answers, answers.cells.group_named.get(name) or CellGroup(name, (), slice(0, 0)))

    @cached_property
    def number(self) -> Ints:
        """The number of each cell in the order of the pair; -1 where it has no caption."""
        numbers = dict(zip(self.group.values, range(self.group.cells.start, self.group.cells.stop), strict=True))
        return np.array([numbers.get(bias_class(*values), -1) for values in self.pair.cells()], np.int64)

    @cached_property
    def rows(self) -> Ints:
        """The rows of the pair's images."""
        cells = self.answers.cells.rows(self.group.cells)
        return np.arange(cells.start, cells.stop)

    @cached_property
    def cell(self) -> Ints:
        """The cell of each of these rows, in the order of the pair."""
        position = np.zeros(len(self.answers.cells.names), np.int64)
        position[self.number[self.number >= 0]] = np.flatnonzero(self.number >= 0)
        return position[self.answers.cells.cell[self.rows]]

    def count(self, rows: Mask, cell: Ints | None = None) -> Ints:
        """Returns how many of these rows each cell has. `cell`: for each row, another cell than it was drawn for."""
        return np.bincount((self.cell if cell is None else cell)[rows], minlength=len(self.number))


def counts_of_captions(cells: PairCells, basis: str, doubt: str | None) -> PairCounts:
    """Counts each image for the cell that it was drawn for."""
    answered, right = cells.answers.answered[cells.rows], cells.answers.right[cells.rows]
    total, correct = cells.count(answered), cells.count(right)
    return PairCounts(
        total=total,
        correct=correct,
        errors=cells.count(~answered),
        accuracy=np.divide(correct, total, out=np.full(len(total), np.nan), where=total > 0),
        effective=total.astype(np.float64),
        covariance=None,
        shown=np.full(len(total), np.nan),
        basis=basis,
        doubts=[doubt] * len(total),
    )


def counts_of_verified(cells: PairCells, seen: CellObservations, pictures: Ints | None) -> PairCounts:
    """Counts each image for the cell whose class and values the verifier sees in it.

    A cell is treated as one value of a combined attribute, on which the verifier errs as on the two, independently.
    `pictures`: for each image, the picture that it is a copy of.
    """
    cells_shown = _cells_shown(seen, cells.pair, seen.row[cells.rows])
    kept_rows = _one_of_each_picture(cells, pictures)
    showing = np.zeros(len(cells_shown), bool)
    showing[kept_rows] = cells_shown[kept_rows] != NOTHING
    answered, right = cells.answers.answered[cells.rows], cells.answers.right[cells.rows]
    total, correct = cells.count(showing & answered, cells_shown), cells.count(showing & right, cells_shown)
    counts = _by_cell_shown(cells, cells_shown)
    left_in_pools, images_left = _left_in_pools(cells, seen)
    estimate = _corrected(cells.pair, counts, left_in_pools, seen.verified, (int(total.sum()), images_left))
    shown = _share_counted(counts, cells.count(answered))
    if estimate is None:
        accuracy, effective = np.divide(correct, total, out=np.full(len(total), np.nan), where=total > 0), total
        shown = shown * np.diag(_rows(counts.sum(axis=0)))
    else:
        accuracy, effective = estimate.accuracy, np.where(total > 0, estimate.effective, 0.0)
        shown = shown * np.diag(estimate.shown)
    parts = (
        seen.verified.basis(cells.pair.target_class, part["attribute"], part["bias_classes"])
        for part in (cells.pair.a, cells.pair.b)
    )
    return PairCounts(
        total=total,
        correct=correct,
        errors=cells.count(showing & ~answered, cells_shown),
        accuracy=accuracy,
        effective=effective.astype(np.float64),
        covariance=None if estimate is None else np.nan_to_num(estimate.covariance),
        shown=shown,
        basis="calibrated" if set(parts) == {"calibrated"} else "verifier",
        doubts=_doubt_reasons(cells, seen, shown, estimate),
    )


def by_caption(counts: PairCounts, right: Ints, total: Ints, confidence: float) -> PairCounts:
    """Returns the same counts with captions as the sampling unit.

    `right` and `total` (cells, captions): of the images that each caption of a cell drew. Differences between captions
    are noise for verified images too.
    """
    worth = effective_images(right, total, confidence)
    totals = total.sum(axis=1)
    share = np.divide(worth.effective, totals, out=np.ones(len(totals)), where=totals > 0)
    scale = 1 / np.sqrt(share)
    return replace(
        counts,
        effective=counts.effective * share,
        covariance=None if counts.covariance is None else counts.covariance * np.outer(scale, scale),
        captions=(total > 0).sum(axis=1),
        spread=worth.spread,
    )


def _one_of_each_picture(cells: PairCells, pictures: Ints | None) -> Ints:
    """Returns one of the pair's rows for each picture: the first by its id."""
    image, ids = cells.answers.cells.image[cells.rows], cells.answers.cells.ids
    order = ids.alphabetical(image)
    of_image = image if pictures is None else pictures[image]
    order = order[np.argsort(of_image[order], kind="stable")]
    first = np.r_[True, of_image[order][1:] != of_image[order][:-1]][: len(order)]
    kept_rows: Ints = order[first]
    return kept_rows


def _by_cell_shown(cells: PairCells, cells_shown: Ints) -> Floats:
    """Counts answered images that are right, and that are wrong (2, cells, cells): by the cell that they were drawn
    for, and by the cell that the verifier sees in them."""
    size = len(cells.number)
    is_counted = cells.answers.answered[cells.rows] & (cells_shown != NOTHING)
    wrong = ~cells.answers.right[cells.rows][is_counted]
    keys = (wrong * size + cells.cell[is_counted]) * size + cells_shown[is_counted]
    return np.bincount(keys, minlength=2 * size * size).reshape(2, size, size).astype(np.float64)


def _left_in_pools(cells: PairCells, seen: CellObservations) -> tuple[Floats, int]:
    """Counts images that were looked at and not drawn (cells, cells), as in `_by_cell_shown`; and how many of them were
    drawn for no cell of the pair."""
    size = len(cells.number)
    counts, images = np.zeros((size, size)), [np.zeros(0, np.int64)]
    drawn_images = cells.answers.cells.image[cells.rows]
    for position, values in enumerate(cells.pair.cells()):
        looked_at, rows = seen.pool(CellName(*cells.group.name, bias_class(*values)))
        cells_shown = _cells_shown(seen, cells.pair, rows)
        counts[position] = np.bincount(cells_shown[cells_shown != NOTHING], minlength=size)
        images.append(looked_at[~np.isin(seen.drawn_number(looked_at), drawn_images)])
    return counts, distinct_count(np.concatenate(images))


def _cells_shown(seen: CellObservations, pair: Pair, rows: Ints) -> Ints:
    """Returns the cell, in the order of the pair, whose class and values the verifier sees in the images of these rows;
    NOTHING where it sees none."""
    x, y = (seen.values(part["attribute"], part["bias_classes"], rows) for part in (pair.a, pair.b))
    is_shown = (x != NOTHING) & (y != NOTHING) & seen.shows_class(rows, pair.target_class)
    return np.where(is_shown, x * pair.shape[1] + y, NOTHING)


def _corrected(
    pair: Pair, drawn_counts: Floats, left: Floats, verified: VerifiedImages, images: tuple[int, int]
) -> Corrected | None:
    """Returns None where nothing was counted, or the pair is too large to correct. `images`: how many were drawn and
    left in pools, each counted once."""
    if not drawn_counts.any() or drawn_counts.shape[1] > MOST_CELLS:
        return None
    copies = tuple(
        max(1.0, float(counts.sum()) / max(n, 1)) for counts, n in zip((drawn_counts, left), images, strict=True)
    )
    calibration = _calibration(pair, verified)
    return corrected(drawn_counts[0], drawn_counts[1], calibration, copies=(copies[0], copies[1]), unclassified=left)


def _calibration(pair: Pair, verified: VerifiedImages) -> Floats:
    """Returns how the verifier answers on images known to show each pair of values: the shares are the products of the
    two attributes', the numbers of images the smaller of the two."""
    first, second = (verified.calibration_of(part["attribute"], part["bias_classes"]) for part in (pair.a, pair.b))
    shares = [_rows(counts) for counts in (first, second)]
    images = np.minimum.outer(first.sum(axis=1), second.sum(axis=1)).ravel()
    table: Floats = np.kron(shares[0], shares[1]) * images[:, None]
    return table


def _rows(counts: Floats) -> Floats:
    """Returns each row's shares; 0 in a row without counts."""
    totals = counts.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(counts, totals, out=np.zeros(counts.shape), where=totals > 0)
    return shares


def _share_counted(counts: Floats, answered: Ints) -> Floats:
    """Returns the share of each cell's answered images in which the verifier sees the class and any values."""
    counted: Floats = counts.sum(axis=(0, 2))
    share: Floats = np.divide(counted, answered, out=np.full(len(answered), np.nan), where=answered > 0)
    return share


def _doubt_reasons(
    cells: PairCells, seen: CellObservations, shown: Floats, estimate: Corrected | None
) -> list[str | None]:
    target, verified = cells.pair.target_class, seen.verified
    doubts: list[str | None] = []
    for i, (x, y) in enumerate(cells.pair.cells()):
        number = int(cells.number[i])
        share = seen.share_of_class(number) if number >= 0 else float("nan")
        of_class = doubt_of_class(target, verified.class_skill(target), share, verified.least_of_class(target))
        skill = 1.0 if estimate is None else float(estimate.sensitivity[i] + estimate.specificity[i] - 1)
        if of_class:
            doubts.append("; ".join(of_class))
        elif skill < LEAST_SKILL:
            doubts.append(
                f"the verifier cannot tell {bias_class(x, y)!r} from the other cells (Youden's index {skill:.2f})"
            )
        elif shown[i] < LEAST_SHOWN:
            doubts.append(f"only {shown[i]:.0%} of the images show both {x!r} and {y!r}")
        else:
            doubts.append(None)
    return doubts


Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

UNCHECKED = "retrieved for its captions, and nobody checked that the images show both values; `verification` would"


@dataclass(frozen=True)
class PairImages:
    """The images of a run: `draws`, and `pool`, the images that were looked at for them (both of `tables.DRAWS`);
    which images are the same picture; and a verifier's answers. None: not known."""

    draws: pa.Table
    distinct: Distinct | None = None
    verified: VerifiedImages | None = None
    pool: pa.Table | None = None


@dataclass(frozen=True)
class _Estimate:
    """One classifier on one pair. `copies`: near-duplicates that were left out, by cell. `table` excludes the cells in
    doubt, unless all are."""

    classifier: str
    pair: Pair
    counts: PairCounts
    copies: Ints
    table: CrossedCells

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
    """Returns a table of `tables.INTERSECTIONS`: a row per classifier and cell of a pair.

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
    images_of_cells = images_of_pairs(captions, images.draws)
    pictures = None if images.distinct is None else images.distinct.pictures(images_of_cells.ids)
    distinct_images = images_of_cells.without_copies(pictures)
    repeats = np.append(images_of_cells.sizes - distinct_images.sizes, 0)
    sources, seen = _sources(captions, images.draws), _seen(captions, images, distinct_images)
    by_id = pc.sort_indices(captions["caption_id"]).to_numpy()
    estimates = []
    for classifier in classifiers:
        answers = answers_of(predictions, classifier).to(distinct_images)
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


def _seen(captions: pa.Table, images: PairImages, cells: CellImages) -> CellObservations | None:
    """Returns what a verifier saw in the images of the pairs' cells; None where nothing was verified."""
    verified = images.verified
    if verified is not None and images.pool is not None:
        verified = verified.drawn_from(images_of_pairs(captions, images.pool))
    return None if verified is None else verified.of(cells)


def _counted(cells: PairCells, seen: CellObservations | None, pictures: Ints | None, sources: set[str]) -> PairCounts:
    """Counts images by what the verifier saw, or, where nothing was verified, by their captions or labels."""
    if seen is not None:
        return counts_of_verified(cells, seen, pictures)
    basis = "labels" if sources <= {"labelled"} else "captions"
    return counts_of_captions(cells, basis, UNCHECKED if "retrieve" in sources else None)


def _crossed(pair: Pair, counts: PairCounts) -> CrossedCells:
    doubtful = np.array([doubt is not None for doubt in counts.doubts], dtype=bool)
    aside = (doubtful & (not doubtful.all())).reshape(pair.shape)
    total = counts.effective.reshape(pair.shape)
    return crossed(np.nan_to_num(counts.accuracy).reshape(pair.shape) * total, total, aside, counts.covariance)


def _table(estimates: Sequence[_Estimate], thresholds: Thresholds) -> pa.Table:
    tau, alpha = thresholds
    certain = [estimate for estimate in estimates if estimate.sure]
    by_estimate = dict(
        zip(map(id, certain), separated([estimate.table for estimate in certain], tau, alpha), strict=True)
    )
    results = [by_estimate.get(id(estimate)) or _untested(estimate.table) for estimate in estimates]
    findings = sum(int(result.findings.sum()) for result in results)
    tests = sum(int(np.isfinite(result.q_value).sum()) for result in results)
    # Findings were selected: their limits are false-coverage-rate limits (Benjamini & Yekutieli 2005).
    of_findings = stats.selected_confidence(findings, tests, alpha)
    none_q = _none_q_values(estimates, results, tau)
    parts = [
        _columns(estimate, result, (1 - alpha, of_findings), tau)
        for estimate, result in zip(estimates, results, strict=True)
    ]
    phi_q = stats.benjamini_hochberg(np.concatenate([part["phi_p_value"] for part in parts] or [np.zeros(0)]))
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


def _untested(table: CrossedCells) -> Separated:
    shape = table.total.shape
    unknown = np.full(shape, np.nan)
    return Separated(table, unknown, unknown, np.zeros(shape, bool), np.full(shape, -1, np.int64))


def _none_q_values(estimates: Sequence[_Estimate], results: Sequence[Separated], tau: float) -> Floats:
    """Returns q-values of the claim that the two attributes explain a cell, over all cells that are not in doubt."""
    parts = []
    for estimate, result in zip(estimates, results, strict=True):
        p = stats.interaction_none_p_values(result.table, tau).ravel()
        doubtful = np.array([doubt is not None for doubt in estimate.counts.doubts], dtype=bool)
        parts.append(np.where(doubtful, np.nan, p))
    return stats.benjamini_hochberg(np.concatenate(parts) if parts else np.zeros(0))


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
    """Returns the numbers of `tables.INTERSECTIONS`, in the order of the cells."""
    counts, table = estimate.counts, result.table
    usual, of_findings = confidences
    low, high = stats.interaction_interval(table, usual)
    if result.findings.any():
        wide = stats.interaction_interval(table, of_findings)
        low, high = (np.where(result.findings, w, n) for w, n in zip(wide, (low, high), strict=True))
    has_images = counts.effective > 0
    eye = np.where(has_images[:, None], np.eye(len(has_images)), np.nan)
    accuracy_low, accuracy_high = contrast_interval(*weighted_counts(table, eye), usual)
    of_phi = weighted_counts(table, _phi_weights(has_images))
    phi_low, phi_high = contrast_interval(*of_phi, usual)
    return {
        "n": counts.total,
        "correct": counts.correct,
        "errors": counts.errors,
        "repeats": estimate.copies,
        "shown": counts.shown,
        "accuracy": np.where(has_images, counts.accuracy, np.nan),
        "accuracy_low": accuracy_low,
        "accuracy_high": accuracy_high,
        "phi": (of_phi[2] * np.nan_to_num(counts.accuracy)).sum(axis=1),
        "phi_low": phi_low,
        "phi_high": phi_high,
        "phi_p_value": np.where([d is None for d in counts.doubts], contrast_p_values(*of_phi, tau), np.nan),
        "expected": stats.expected_accuracies(table).ravel(),
        "interaction": stats.interactions(table).ravel(),
        "interaction_low": low.ravel(),
        "interaction_high": high.ravel(),
        "p_value": result.p_value.ravel(),
        "q_value": result.q_value.ravel(),
    }


def _phi_weights(has_images: NDArray[np.bool_]) -> Floats:
    """Returns (cells, cells): the weight of each accuracy in each φ; NaN where a cell has no images, or nothing to
    compare."""
    number_of_others = max(int(has_images.sum()) - 1, 1)
    weights = np.where(np.eye(len(has_images), dtype=bool), 1.0, has_images / -number_of_others)
    defined = has_images & (has_images.sum() >= 2)
    return np.where(defined[:, None], weights, np.nan)


def _verdict(interaction: float, is_finding: bool, is_none: bool) -> str:
    if is_finding:
        return "for" if interaction > 0 else "against"
    return "none" if is_none else "undetermined"
