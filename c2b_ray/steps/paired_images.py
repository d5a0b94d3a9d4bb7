"""Which images count for which cell of two attributes, how many are answered right, and which cannot be trusted.

It knows sets of images, what a verifier says of them and a classifier's answers; the estimation is
`metrics.misclassification`'s, and which cells are findings is `score_pairs`'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from c2b_ray.metrics.clusters import effective_images
from c2b_ray.metrics.misclassification import Corrected, corrected
from c2b_ray.steps.answers import Taken
from c2b_ray.steps.doubts import LEAST_SHOWN, LEAST_SKILL, doubt_of_class
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.intersect import Pair, bias_class
from c2b_ray.steps.verified import Verified

MOST_CELLS = 25
"""Of a pair whose accuracies are corrected for the verifier's errors; of a larger one they are as the verifier says."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PairCounts:
    """Of every cell of a pair, in their order; arrays have shape (cells,).

    `total`: images that count for the cell and have an answer, of which `correct` are right; `errors`: those without.
    `repeats`: near-duplicates that were drawn for it. `accuracy` may be corrected for what images show; `effective`: as
    many images of sure content would tell as much of it; `covariance` (cells, cells), where the accuracies are not
    independent. `shown`: the estimated share of the images drawn for it that show both values; NaN: not known. `basis`
    as in `schemas.SCORES`; `doubts`: why a cell cannot be trusted.
    """

    total: Ints
    correct: Ints
    errors: Ints
    repeats: Ints
    accuracy: Floats
    effective: Floats
    covariance: Floats | None
    shown: Floats
    basis: str
    doubts: list[str | None]


def counts_of_captions(
    pair: Pair, cells: Sequence[set[str]], taken: Taken, basis: str, doubt: str | None
) -> PairCounts:
    """Each image counts for the cell that it was drawn for."""
    total, correct, errors = _answered(pair.target_class, cells, taken)
    return PairCounts(
        total=total,
        correct=correct,
        errors=errors,
        repeats=np.zeros_like(total),
        accuracy=np.divide(correct, total, out=np.full(len(total), np.nan), where=total > 0),
        effective=total.astype(np.float64),
        covariance=None,
        shown=np.full(len(total), np.nan),
        basis=basis,
        doubts=[doubt] * len(total),
    )


def counts_of_verified(
    pair: Pair,
    cells: Sequence[set[str]],
    pools: Sequence[set[str]],
    taken: Taken,
    known: tuple[Verified, Distinct | None],
) -> PairCounts:
    """Each image counts for the cell whose class and values the verifier says that it shows.

    A cell is taken for one value of a combined attribute, on which the verifier errs as on the two, independently.
    `pools`: of each cell all images that were looked at when it was drawn from those that the verifier accepted; they
    say what it had to choose from, and their answers do not count.
    """
    verified, distinct = known
    number = {values: i for i, values in enumerate(pair.cells())}
    said = {image: _cell_shown(image, pair, number, verified) for own in (*cells, *pools) for image in own}
    drawn: set[str] = set().union(*cells)
    showing: list[set[str]] = [set() for _ in cells]
    for image in distinct.distinct(drawn) if distinct else drawn:
        if (cell := said[image]) is not None:
            showing[cell].add(image)
    total, correct, errors = _answered(pair.target_class, showing, taken)
    counts = _by_cell_shown(cells, pools, said, taken, pair.target_class)
    estimate = _corrected(pair, counts, verified, (int(total.sum()), len(set().union(*pools) - drawn)))
    shown = _share_counted(counts[:2], cells, taken)
    if estimate is None:
        accuracy, effective = np.divide(correct, total, out=np.full(len(total), np.nan), where=total > 0), total
        shown = shown * np.diag(_rows(counts[:2].sum(axis=0)))
    else:
        accuracy, effective = estimate.accuracy, np.where(total > 0, estimate.effective, 0.0)
        shown = shown * np.diag(estimate.shown)
    return PairCounts(
        total=total,
        correct=correct,
        errors=errors,
        repeats=np.zeros_like(total),
        accuracy=accuracy,
        effective=effective.astype(np.float64),
        covariance=None if estimate is None else np.nan_to_num(estimate.covariance),
        shown=shown,
        basis=_basis(pair, verified),
        doubts=_doubts(pair, cells, verified, shown, estimate),
    )


def by_caption(counts: PairCounts, right: Ints, total: Ints, confidence: float) -> PairCounts:
    """The same with captions as the sampling unit: `right` and `total` (cells, captions) are of the images that each
    caption of a cell drew. What differs between captions is no less noise where images are verified."""
    worth = effective_images(right, total, confidence).effective
    seen = total.sum(axis=1)
    share = np.divide(worth, seen, out=np.ones(len(seen)), where=seen > 0)
    scale = 1 / np.sqrt(share)
    covariance = None if counts.covariance is None else counts.covariance * np.outer(scale, scale)
    return replace(counts, effective=counts.effective * share, covariance=covariance)


def _answered(target: str, cells: Sequence[set[str]], taken: Taken) -> tuple[Ints, Ints, Ints]:
    """Of each cell, images with an answer, those answered right, and those without an answer."""
    answers = [[taken.get(image) for image in own] for own in cells]
    total = np.array([sum(answer is not None for answer in own) for own in answers], dtype=np.int64)
    correct = np.array([sum(answer == target for answer in own) for own in answers], dtype=np.int64)
    return total, correct, np.array([len(own) for own in answers], dtype=np.int64) - total


def _by_cell_shown(
    cells: Sequence[set[str]],
    pools: Sequence[set[str]],
    said: Mapping[str, int | None],
    taken: Taken,
    target: str,
) -> Floats:
    """Images that are right, wrong, or were looked at and not drawn (3, cells, cells): by the cell that they were drawn
    (or looked at) for, and by the cell that they are said to show."""
    counts = np.zeros((3, len(cells), len(cells)))
    for row, (of_cell, pool) in enumerate(zip(cells, pools, strict=True)):
        for image in of_cell | pool:
            shown, answer = said[image], taken.get(image)
            if shown is None:
                continue
            if image not in of_cell:
                counts[2, row, shown] += 1
            elif answer is not None:
                counts[int(answer != target), row, shown] += 1
    return counts


def _cell_shown(image: str, pair: Pair, number: Mapping[tuple[str, str], int], verified: Verified) -> int | None:
    """The number of the cell whose class and values an image is said to show; None where it is said of none."""
    values = verified.values_shown(image, pair.target_class)
    x, y = values.get(pair.a["attribute"]), values.get(pair.b["attribute"])
    return None if x is None or y is None else number.get((x, y))


def _corrected(pair: Pair, counts: Floats, verified: Verified, images: tuple[int, int]) -> Corrected | None:
    """None where nothing was counted, or the pair is too large to correct. `images`: how many there are, classified
    and not, each counted once."""
    if not counts[:2].any() or counts.shape[1] > MOST_CELLS:
        return None
    classified, left = (
        max(1.0, float(own.sum()) / max(n, 1)) for own, n in zip((counts[:2], counts[2]), images, strict=True)
    )
    known = _calibration(pair, verified)
    return corrected(counts[0], counts[1], known, copies=(classified, left), unclassified=counts[2])


def _basis(pair: Pair, verified: Verified) -> str:
    parts = (verified.basis((pair.target_class, part["attribute"]), part["bias_classes"]) for part in (pair.a, pair.b))
    return "calibrated" if set(parts) == {"calibrated"} else "verifier"


def _calibration(pair: Pair, verified: Verified) -> Floats:
    """Images known to show each pair of values, by which pair the verifier would say: the shares are the products of
    the two attributes', the numbers of images the smaller of the two."""
    first, second = (verified.calibration_of(part["attribute"], part["bias_classes"]) for part in (pair.a, pair.b))
    shares = [_rows(known) for known in (first, second)]
    images = np.minimum.outer(first.sum(axis=1), second.sum(axis=1)).ravel()
    found: Floats = np.kron(shares[0], shares[1]) * images[:, None]
    return found


def _rows(counts: Floats) -> Floats:
    """Each row's shares; 0 in a row without counts."""
    whole = counts.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(counts, whole, out=np.zeros(counts.shape), where=whole > 0)
    return shares


def _share_counted(counts: Floats, cells: Sequence[set[str]], taken: Taken) -> Floats:
    """Of the answered images drawn for each cell, the share that the verifier says to show the class and any values."""
    answered = np.array([sum(taken.get(image) is not None for image in own) for own in cells], dtype=np.float64)
    counted: Floats = counts.sum(axis=(0, 2))
    share: Floats = np.divide(counted, answered, out=np.full(len(cells), np.nan), where=answered > 0)
    return share


def _doubts(
    pair: Pair, cells: Sequence[set[str]], verified: Verified, shown: Floats, estimate: Corrected | None
) -> list[str | None]:
    target = pair.target_class
    skill = verified.class_skill(target)
    found: list[str | None] = []
    for i, ((x, y), own) in enumerate(zip(pair.cells(), cells, strict=True)):
        of_class = doubt_of_class(target, skill, verified.of_class(target, own), verified.least_of_class(target))
        told = 1.0 if estimate is None else float(estimate.sensitivity[i] + estimate.specificity[i] - 1)
        if of_class:
            found.append("; ".join(of_class))
        elif told < LEAST_SKILL:
            found.append(
                f"the verifier cannot tell {bias_class(x, y)!r} from the other cells (Youden's index {told:.2f})"
            )
        elif shown[i] < LEAST_SHOWN:
            found.append(f"only {shown[i]:.0%} of the images show both {x!r} and {y!r}")
        else:
            found.append(None)
    return found
