"""Counts the images of each cell of two attributes: which count, how many are answered right, and which cells cannot be
trusted.

It knows the images of every cell, what a verifier sees in them and a classifier's answers; `metrics.misclassification`
has the estimation, and `score_pairs` decides which cells are findings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from c2b_ray.metrics.clusters import effective_images
from c2b_ray.metrics.misclassification import Corrected, corrected
from c2b_ray.steps.answers import CellAnswers
from c2b_ray.steps.cells import CellGroup, CellName, Group
from c2b_ray.steps.doubts import LEAST_SHOWN, LEAST_SKILL, doubt_of_class
from c2b_ray.steps.image_ids import Ints, Mask, distinct_count
from c2b_ray.steps.intersect import Pair, bias_class
from c2b_ray.steps.said import NOTHING
from c2b_ray.steps.verified import Seen, Verified

MOST_CELLS = 25
"""The most cells of a pair whose accuracies are corrected for the verifier's errors; larger ones are not corrected."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PairCounts:
    """The counts of every cell of a pair, in their order; arrays have shape (cells,).

    `total`: images that count for the cell and have an answer, of which `correct` are right; `errors`: those without.
    `accuracy` may be corrected for what images show; `effective`: the number of images of known content with the same
    information; `covariance` (cells, cells), where the accuracies are not independent. `shown`: the estimated share of
    the images drawn for the cell that show both values; NaN: not known. `basis`, `captions` and `spread` as in
    `schemas.SCORES`, where `spread` is `caption_spread`; None for labelled images. `doubts`: why a cell cannot be
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
        name = Group(pair.target_class, pair.attribute)
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


def counts_of_verified(cells: PairCells, seen: Seen, pictures: Ints | None) -> PairCounts:
    """Counts each image for the cell whose class and values the verifier sees in it.

    A cell is treated as one value of a combined attribute, on which the verifier errs as on the two, independently.
    `pictures`: for each image, the picture that it is a copy of.
    """
    said = _cells_shown(seen, cells.pair, seen.row[cells.rows])
    kept = _one_of_each_picture(cells, pictures)
    showing = np.zeros(len(said), bool)
    showing[kept] = said[kept] != NOTHING
    answered, right = cells.answers.answered[cells.rows], cells.answers.right[cells.rows]
    total, correct = cells.count(showing & answered, said), cells.count(showing & right, said)
    drawn = _by_cell_shown(cells, said)
    left, images_left = _left_in_pools(cells, seen)
    estimate = _corrected(cells.pair, drawn, left, seen.verified, (int(total.sum()), images_left))
    shown = _share_counted(drawn, cells.count(answered))
    if estimate is None:
        accuracy, effective = np.divide(correct, total, out=np.full(len(total), np.nan), where=total > 0), total
        shown = shown * np.diag(_rows(drawn.sum(axis=0)))
    else:
        accuracy, effective = estimate.accuracy, np.where(total > 0, estimate.effective, 0.0)
        shown = shown * np.diag(estimate.shown)
    return PairCounts(
        total=total,
        correct=correct,
        errors=cells.count(showing & ~answered, said),
        accuracy=accuracy,
        effective=effective.astype(np.float64),
        covariance=None if estimate is None else np.nan_to_num(estimate.covariance),
        shown=shown,
        basis=_basis(cells.pair, seen.verified),
        doubts=_doubts(cells, seen, shown, estimate),
    )


def by_caption(counts: PairCounts, right: Ints, total: Ints, confidence: float) -> PairCounts:
    """Returns the same counts with captions as the sampling unit.

    `right` and `total` (cells, captions): of the images that each caption of a cell drew. Differences between captions
    are noise for verified images too.
    """
    worth = effective_images(right, total, confidence)
    seen = total.sum(axis=1)
    share = np.divide(worth.effective, seen, out=np.ones(len(seen)), where=seen > 0)
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
    kept: Ints = order[first]
    return kept


def _by_cell_shown(cells: PairCells, said: Ints) -> Floats:
    """Counts answered images that are right, and that are wrong (2, cells, cells): by the cell that they were drawn
    for, and by the cell that the verifier sees in them."""
    size = len(cells.number)
    taken = cells.answers.answered[cells.rows] & (said != NOTHING)
    wrong = ~cells.answers.right[cells.rows][taken]
    keys = (wrong * size + cells.cell[taken]) * size + said[taken]
    return np.bincount(keys, minlength=2 * size * size).reshape(2, size, size).astype(np.float64)


def _left_in_pools(cells: PairCells, seen: Seen) -> tuple[Floats, int]:
    """Counts images that were looked at and not drawn (cells, cells), as in `_by_cell_shown`; and how many of them were
    drawn for no cell of the pair."""
    size = len(cells.number)
    counts, images = np.zeros((size, size)), [np.zeros(0, np.int64)]
    drawn = cells.answers.cells.image[cells.rows]
    for position, values in enumerate(cells.pair.cells()):
        looked_at, rows = seen.pool(CellName(*cells.group.name, bias_class(*values)))
        said = _cells_shown(seen, cells.pair, rows)
        counts[position] = np.bincount(said[said != NOTHING], minlength=size)
        images.append(looked_at[~np.isin(seen.drawn_number(looked_at), drawn)])
    return counts, distinct_count(np.concatenate(images))


def _cells_shown(seen: Seen, pair: Pair, rows: Ints) -> Ints:
    """Returns the cell, in the order of the pair, whose class and values the verifier sees in the images of these rows;
    NOTHING where it sees none."""
    x, y = (seen.values(part["attribute"], part["bias_classes"], rows) for part in (pair.a, pair.b))
    said = (x != NOTHING) & (y != NOTHING) & seen.shows_class(rows, pair.target_class)
    return np.where(said, x * pair.shape[1] + y, NOTHING)


def _corrected(
    pair: Pair, drawn: Floats, left: Floats, verified: Verified, images: tuple[int, int]
) -> Corrected | None:
    """Returns None where nothing was counted, or the pair is too large to correct. `images`: how many were drawn and
    left in pools, each counted once."""
    if not drawn.any() or drawn.shape[1] > MOST_CELLS:
        return None
    copies = tuple(max(1.0, float(counts.sum()) / max(n, 1)) for counts, n in zip((drawn, left), images, strict=True))
    known = _calibration(pair, verified)
    return corrected(drawn[0], drawn[1], known, copies=(copies[0], copies[1]), unclassified=left)


def _basis(pair: Pair, verified: Verified) -> str:
    parts = (verified.basis(pair.target_class, part["attribute"], part["bias_classes"]) for part in (pair.a, pair.b))
    return "calibrated" if set(parts) == {"calibrated"} else "verifier"


def _calibration(pair: Pair, verified: Verified) -> Floats:
    """Returns how the verifier answers on images known to show each pair of values: the shares are the products of the
    two attributes', the numbers of images the smaller of the two."""
    first, second = (verified.calibration_of(part["attribute"], part["bias_classes"]) for part in (pair.a, pair.b))
    shares = [_rows(known) for known in (first, second)]
    images = np.minimum.outer(first.sum(axis=1), second.sum(axis=1)).ravel()
    table: Floats = np.kron(shares[0], shares[1]) * images[:, None]
    return table


def _rows(counts: Floats) -> Floats:
    """Returns each row's shares; 0 in a row without counts."""
    whole = counts.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(counts, whole, out=np.zeros(counts.shape), where=whole > 0)
    return shares


def _share_counted(drawn: Floats, answered: Ints) -> Floats:
    """Returns the share of each cell's answered images in which the verifier sees the class and any values."""
    counted: Floats = drawn.sum(axis=(0, 2))
    share: Floats = np.divide(counted, answered, out=np.full(len(answered), np.nan), where=answered > 0)
    return share


def _doubts(cells: PairCells, seen: Seen, shown: Floats, estimate: Corrected | None) -> list[str | None]:
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
