"""Predicts how many of a cell's images do not show its class, from calibration images that look like the cell's pool.

The run's own answers cannot tell this: a verifier that takes mopeds for bicycles says the same of both, and where a
class is rare in an index, what it falsely accepts outweighs what a calibration says about images at large. So the
images of the pool that the verifier refused are compared with images of the calibration that show another class
(`negatives`) and are as similar to the cell's captions: as often as it accepts such an image there, it accepted one
here. The estimate of scores is left as it is; this tests it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.audits.c2b.verification.negatives import as_draws, as_verifications
from c2b_ray.audits.c2b.verification.verified import CellObservations, VerifiedImages
from c2b_ray.stats.standardised_counts import StandardisedCount, standardised_count, strata
from c2b_ray.steps.cells import CellGroup, GroupName, images_of_cells, similarities

MOST_UNCLAIMED = 0.25
"""The share of a cell's images that may show something else beyond what its scores are corrected for. Up to it, what is
concluded must hold with and without these images; beyond it, too much depends on what a classifier answers to them."""

MOST_NAMED = 6
TOLD = 0.1
"""The share of false accepts that a calibration should tell from none: it moves φ by as much."""

CONFIDENCE = 0.9
"""Of the limits of a prediction: a cell is in doubt where its lower limit, at 95 %, says so."""

LEAST_SENSITIVITY = 0.2
"""Below it, images of the class that the verifier refused would be more than four times those that it accepted."""

Floats = NDArray[np.float64]


class Predicted(NamedTuple):
    """For each value of a group, the share of accepted images that do not show the class, with limits (values,); NaN
    where no image was accepted or no negative is near its captions. `lacking` (values,): how many more negatives near
    to the captions would tell whether the share exceeds `TOLD`; 0 where there are enough. `counted`: the share and its
    variance, which give limits at other confidences; NaN where no image was accepted. `known` (values,): the negatives
    near to its captions."""

    share: Floats
    low: Floats
    high: Floats
    lacking: NDArray[np.int64]
    counted: StandardisedCount
    known: NDArray[np.int64]

    def limits(self, confidence: float, times: float = 1.0) -> tuple[Floats, Floats]:
        """Returns limits of the share, at most 1; `times`: as they would be with that many times the negatives."""
        low, high = self.counted.limits(confidence, times)
        return np.minimum(low, 1.0), np.minimum(high, 1.0)


@dataclass(frozen=True)
class _Looked:
    """Images of cells, the verifier's answers about them, and each row's largest similarity to a caption of its
    cell."""

    seen: CellObservations
    similarity: Floats

    @classmethod
    def of(cls, verified: VerifiedImages, captions: pa.Table, draws: pa.Table) -> _Looked:
        cells = images_of_cells(captions, draws)
        return cls(verified.of(cells), similarities(cells, captions, draws))

    def cell(self, group: CellGroup, value: int) -> tuple[NDArray[np.int64], Floats]:
        """Returns answers (`CellObservations.answers`) and similarities of the images of one value."""
        cells, first = self.seen.cells, group.cells.start
        rows = cells.rows(slice(first + value, first + value + 1))
        start = cells.rows(group.cells).start
        return self.seen.answers(group)[rows.start - start : rows.stop - start], self.similarity[rows]


class FalseAccepts:
    """Predictions for the cells of a run whose images were drawn from those that the verifier accepted.

    `looked`: of `tables.DRAWS`, all images of the pools that were looked at. `negatives`: of `tables.NEGATIVES`.
    """

    def __init__(self, verified: VerifiedImages, captions: pa.Table, looked: pa.Table, negatives: pa.Table) -> None:
        self._verified = verified
        self._pool = _Looked.of(verified, captions, looked)
        negatives_verified = verified.on(as_verifications(negatives))
        self._negatives = _Looked.of(negatives_verified, captions, as_draws(negatives))
        self._known: dict[GroupName, Predicted | None] = {}

    def of(self, group: CellGroup) -> Predicted | None:
        """Returns the prediction for a group; None where the verifier was not asked for its class.

        It is the same for every classifier, so it is kept.
        """
        if group.name not in self._known:
            is_asked = self._verified.asks_class(group.target_class)
            self._known[group.name] = self._predicted(group) if is_asked else None
        return self._known[group.name]

    def _predicted(self, group: CellGroup) -> Predicted:
        rows = [self._of_value(group, value) for value in range(len(group.values))]
        *moments, negatives, needed = np.array(rows, np.float64).reshape(-1, 5).T
        standardised = StandardisedCount(*moments)
        low, high = standardised.limits(CONFIDENCE)
        lacking = np.where(high > 2 * TOLD, np.maximum(np.ceil(needed - negatives), 0.0), 0.0).astype(np.int64)
        share, low, high = (
            np.where(negatives > 0, part, np.nan) for part in (standardised.value, low, np.minimum(high, 1.0))
        )
        return Predicted(share, low, high, lacking, standardised, negatives.astype(np.int64))

    def _of_value(self, group: CellGroup, value: int) -> tuple[float, float, float, float, float]:
        """Returns the moments of the share (`StandardisedCount`), how many negatives are known, and how many are
        enough."""
        pools = self._pool.seen.cells.group_named.get(group.name)
        negative_group = self._negatives.seen.cells.group_named.get(group.name)
        nothing = float("nan"), float("nan"), float("nan"), 0.0, 0.0
        if pools is None:
            return nothing
        refused_answer = len(group.values)
        pool_answers, similarity = self._pool.cell(pools, value)
        accepted = int((pool_answers == value).sum())
        if not accepted:
            return nothing
        answers, similarity_of_negatives = (
            (np.zeros(0, np.int64), np.zeros(0))
            if negative_group is None
            else self._negatives.cell(negative_group, value)
        )
        is_refused = pool_answers == refused_answer
        refused_similarity, accepted_similarity = (
            similarity_of_negatives[answers == refused_answer],
            similarity_of_negatives[answers == value],
        )
        limits = strata(similarity[is_refused], refused_similarity)

        def counts(values: Floats) -> Floats:
            stratum = np.searchsorted(limits, values, side="right")
            return np.bincount(stratum, minlength=len(limits) + 1).astype(np.float64)

        # Some refused images show the class: its sensitivity says how many for each accepted one.
        sensitivity = max(self._verified.class_sensitivity(group.target_class), LEAST_SENSITIVITY)
        missed = (
            (1 - sensitivity) / sensitivity * counts(similarity[(pool_answers != refused_answer) & (pool_answers >= 0)])
        )
        images = np.maximum(counts(similarity[is_refused]) - missed, 0.0)
        standardised = standardised_count(images, counts(refused_similarity), counts(accepted_similarity))
        # Without a single false accept, 3 times its weight is the upper limit at 95 % ("rule of three").
        needed = float(3 * images.sum() / (TOLD * accepted))
        share, variance, weight = float(standardised.value), float(standardised.variance), float(standardised.weight)
        return share / accepted, variance / accepted**2, weight / accepted, float(len(refused_similarity)), needed


def doubt_of_false_accepts(target: str, low: float, claimed: float) -> list[str]:
    """Why a cell is in doubt whose images show something else more often than its scores are corrected for.

    low: the least share that does, as predicted; claimed: the share that the scores are corrected for.
    """
    if not low > claimed + MOST_UNCLAIMED:
        return []
    return [
        f"at least {low:.0%} of the images show no {target}, by what the verifier accepts among similar images of the "
        f"calibration; the scores are corrected for {claimed:.0%}"
    ]


def too_few_negatives(classes: Sequence[str], predicted: Sequence[tuple[str, Predicted | None]]) -> list[str]:
    """Returns a sentence on the classes of whose cells too little is known: which images a calibration lacks; nothing
    where enough is known of all.

    classes: the audit's. predicted: a class and the prediction of each of its groups.
    """
    lacking_by_class, open_cells, total = [], 0, 0
    for target in dict.fromkeys(name for name, _ in predicted):
        lacking_of_cells = [
            prediction.lacking for name, prediction in predicted if name == target and prediction is not None
        ]
        cells = np.concatenate([*lacking_of_cells, np.zeros(0, np.int64)])
        total += len(cells)
        if (cells > 0).any():
            open_cells += int((cells > 0).sum())
            lacking_by_class.append((int(cells.max()), target))
    if not lacking_by_class:
        return []
    first = [f"{number:,} for {target}" for number, target in sorted(lacking_by_class, reverse=True)[:MOST_NAMED]]
    remainder = f" and {len(lacking_by_class) - MOST_NAMED} classes more" if len(lacking_by_class) > MOST_NAMED else ""
    return [
        f"verification.calibration holds too few images that show none of {', '.join(classes)} and look like one: for "
        f"{open_cells:,} of {total:,} cells it cannot tell whether more than {TOLD:.0%} of the images show something "
        "else. About so many more, as near to a class's captions as the index's images, would tell: "
        f"{', '.join(first)}{remainder}"
    ]


def without_false_accepts(accuracy: Floats, share: Floats, claimed: Floats) -> Floats:
    """Returns the accuracies as they would be if a classifier were wrong on every image that shows something else.

    accuracy * (1 - claimed) / (1 - share), at most 1

    accuracy: (values,), corrected for the share `claimed` of images that do not show the class; share: as predicted,
    NaN where it is not. A share below what is claimed changes nothing.
    """
    least = np.nan_to_num(claimed)
    larger = np.minimum(np.fmax(share, least), 1.0)
    most = np.maximum(accuracy, 1.0)
    without = np.divide(accuracy * (1 - least), 1 - larger, out=most.copy(), where=larger < 1)
    return np.where(larger > least, np.minimum(without, most), accuracy)
