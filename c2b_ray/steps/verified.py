"""verifications → what a cell's images really show: repeats left out, counts by shown value, reasons for doubt.

It joins the verifier's answers and their calibration with the classifier's; the estimation is
`metrics.misclassification`'s, and which cells there are is `score`'s.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import metrics
from c2b_ray.metrics.misclassification import Corrected, Known, corrected
from c2b_ray.metrics.misfit import misfit_p_value
from c2b_ray.steps.doubts import LEAST_OF_CLASS, LEAST_SAID, doubt, explained_by_class
from c2b_ray.steps.duplicates import Distinct
from c2b_ray.steps.verifier import Verifier
from c2b_ray.steps.verify import OTHER

FREE = 3.0
"""As many images of each value, and of the class, a calibration counts for that does not fit the run."""

SLACK = 0.02
"""How much worse than known a verifier may be that is said to do as well."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Group = tuple[str, str]
"""Target class and attribute."""
Levels = tuple[float, float]
"""τ and α."""


@dataclass(frozen=True)
class Correction:
    """A group's corrected scores, and the p-value of the claim that the calibration fits the run, or that the verifier
    does better here and nothing else is amiss; of every cell's images, how many were said to show the class, and how
    many were looked at."""

    scores: Corrected
    misfit: float
    confirmed: Counts
    total: Counts


@dataclass(frozen=True)
class _Seen:
    """What the verifier said of the images of a group's `cells`: `drawn` as (image, row, answer); counts (row, answer)
    of those that were looked at alone, which are so many `pictures`."""

    cells: Mapping[str, set[str]]
    drawn: Sequence[tuple[str, int, int]]
    unclassified: Floats
    pictures: int


class Verified:
    """What is known of the images of a run: `verifications` and `calibration` are tables of those schemas.

    `distinct`: which images are one picture; without it, none is a repeat of another. Values of attributes without
    calibration count on the verifier's own certainty.
    """

    def __init__(self, verifications: pa.Table, calibration: pa.Table, distinct: Distinct | None = None) -> None:
        rows = verifications.select(["image_id", "target_class", "class_shown", "attributes", "values"]).to_pylist()
        self._class = {(row["image_id"], row["target_class"]): row["class_shown"] for row in rows}
        self._classes_asked = {target for (_, target), shown in self._class.items() if shown is not None}
        self._values = {
            (row["image_id"], row["target_class"]): dict(zip(row["attributes"], row["values"], strict=True))
            for row in rows
        }
        self._something_else = _shares_of_something_else(self._class)
        self._distinct = distinct
        self._verifier = Verifier(verifications, calibration)
        self._pools: Mapping[Group, Mapping[str, set[str]]] = {}
        self._seen: dict[Group, _Seen] = {}

    def drawn_from(self, pools: Mapping[Group, Mapping[str, set[str]]]) -> Verified:
        """The same, of cells whose images were drawn from those that the verifier accepted of `pools`.

        Of each group and value, all images that were looked at. They say what the verifier had to choose from, and so
        how often an image that it accepted shows something else; what the classifier says of them does not count.
        """
        verified = copy(self)
        verified._pools, verified._seen = pools, {}
        return verified

    def sorted_by_value(
        self, group: Group, cells: Mapping[str, set[str]], order: Mapping[str, int] | None = None
    ) -> dict[str, set[str]]:
        """All images of a group that show its class, distinct ones, each under the value that they show, as the
        verifier says."""
        target, attribute = group
        shown: dict[str, set[str]] = {value: set() for value in cells}
        images = set().union(*cells.values())
        for image in images if self._distinct is None else self._distinct.distinct(images, order):
            value = self._values.get((image, target), {}).get(attribute)
            if value in shown and self._class.get((image, target)) in (target, None):
                shown[value].add(image)
        return shown

    def values_shown(self, image: str, target: str) -> Mapping[str, str | None]:
        """What the verifier says that an image shows, by attribute; empty where it does not say that of the class."""
        shown = self._class.get((image, target))
        return self._values.get((image, target), {}) if shown in (target, None) else {}

    def calibration_of(self, attribute: str, values: Sequence[str]) -> Floats:
        """Images known to show each of these values (rows), by which of them the verifier said."""
        return self._verifier.values(attribute, values)

    def correct(
        self,
        group: Group,
        cells: Mapping[str, set[str]],
        answers: Mapping[str, str | None],
        levels: Levels,
    ) -> Correction | None:
        """The group's scores, corrected; None where the verifier named no value of any of its images."""
        (target, attribute), values = group, list(cells)
        asks_class = target in self._classes_asked
        seen = self._seen_of(group, cells)
        counts = np.zeros((3, len(cells), len(cells) + asks_class))
        counts[2] = seen.unclassified
        counted: set[str] = set()
        for image, row, said in seen.drawn:
            answer = answers.get(image)
            if answer is not None:
                counts[int(answer != target), row, said] += 1
                counted.add(image)
        if not counts[:2, :, : len(cells)].any():
            return None
        of_class = self._verifier.classes(target, self._something_else.get(target)) if asks_class else None
        known = Known(self._verifier.values(attribute, values), of_class)
        copies = _copies(counts[:2], len(counted)), _copies(counts[2], seen.pictures)
        misfit = misfit_p_value(counts[0], counts[1], known, copies, counts[2])
        # Intervals must not rest on a calibration that is refuted.
        used = _limited(known, FREE) if misfit <= levels[1] else known
        scores = corrected(counts[0], counts[1], used, 1 - levels[1], copies, counts[2])
        if used is not known and _better(scores, known):
            misfit = misfit_p_value(counts[0], counts[1], _limited(known, 0.0), copies, counts[2])
        confirmed = counts[:2, :, : len(cells)].sum(axis=(0, 2)).astype(int)
        return Correction(scores, misfit, confirmed, counts[:2].sum(axis=(0, 2)).astype(int))

    def _seen_of(self, group: Group, cells: Mapping[str, set[str]]) -> _Seen:
        """What the verifier said of the group's images: the same for every classifier, so that it is kept."""
        kept = self._seen.get(group)
        if kept is not None and kept.cells == cells:
            return kept
        number, pools = {value: i for i, value in enumerate(cells)}, self._pools.get(group, {})
        drawn, others = [], set()
        unclassified = np.zeros((len(cells), len(cells) + (group[0] in self._classes_asked)))
        for row, (name, images) in enumerate(cells.items()):
            of_row = ((image, self._said(image, group, number)) for image in images | pools.get(name, set()))
            for image, said in of_row:
                if said is None:
                    continue
                if image in images:
                    drawn.append((image, row, said))
                else:
                    unclassified[row, said] += 1
                    others.add(image)
        seen = self._seen[group] = _Seen(
            {name: set(of_value) for name, of_value in cells.items()}, drawn, unclassified, len(others)
        )
        return seen

    def _said(self, image: str, group: Group, number: Mapping[str, int]) -> int | None:
        """Which of the values the verifier said an image to show, or, after the last, not to show the class."""
        target, attribute = group
        shown = self._class.get((image, target))
        if target in self._classes_asked and shown != target:
            return None if shown is None else len(number)
        value = self._values.get((image, target), {}).get(attribute)
        return None if value is None else number.get(value)

    def basis(self, group: Group, values: Sequence[str]) -> str:
        """Whether a group's scores rest on a calibration of all that was asked, or on the verifier's word."""
        target, attribute = group
        by_class = target not in self._classes_asked or self._verifier.classes_checked(target)
        return "calibrated" if by_class and self._verifier.values_checked(attribute, values) else "verifier"

    def doubts(
        self, rows: Sequence[Mapping[str, Any]], corrections: Mapping[Group, Correction], levels: Levels
    ) -> list[list[str]]:
        """Reasons for doubt of every row of one classifier's scores, corrected by `columns` of these corrections."""
        refuted = self._refuted(corrections, levels[1])
        next_cell: dict[Group, int] = defaultdict(int)
        reasons = []
        for row in rows:
            group = row["target_class"], row["attribute"]
            at, next_cell[group] = next_cell[group], next_cell[group] + 1
            if group not in corrections:
                reasons.append(["the verifier named no value of any image"])
                continue
            of_row = doubt(row, self.class_skill(group[0]), self.least_of_class(group[0]))
            of_row += [refuted[group[1]]] if group[1] in refuted else []
            if group[0] in self._classes_asked and not self._verifier.classes_known(group[0]):
                correction = corrections[group]
                of_class = correction.confirmed, correction.total
                of_row += explained_by_class(correction.scores, of_class, at, group[0], levels)
            reasons.append(of_row)
        return reasons

    def _refuted(self, corrections: Mapping[Group, Correction], alpha: float) -> dict[str, str]:
        """The attributes whose calibration does not fit the run, and why."""
        p_values: dict[str, list[float]] = defaultdict(list)
        for (_, attribute), correction in corrections.items():
            p_values[attribute].append(correction.misfit)
        refuted = {}
        for attribute, values in p_values.items():
            # Simes (1986): of one attribute's classes, which share a calibration.
            p_value = float((np.sort(values) * len(values) / np.arange(1, len(values) + 1)).min())
            if p_value <= alpha:
                refuted[attribute] = (
                    f"the calibration does not fit this run: what the verifier says of {attribute} and what the "
                    f"classifier gets right do not go together as they would (p = {p_value:.2g}); the verifier errs "
                    "more often here, or both err on the same images"
                )
        return refuted

    def of_class(self, target: str, images: set[str]) -> float:
        """The estimated share of images that show the target class (Rogan & Gladen); NaN where nothing was seen."""
        seen = [self._class[image, target] for image in images if self._class.get((image, target)) is not None]
        if not seen:
            return float("nan")
        share = sum(name == target for name in seen) / len(seen)
        return float(metrics.rogan_gladen(share, *self._verifier.class_rates(target)))

    def class_skill(self, target: str) -> float:
        """Youden's index of the verifier on the target class; 1 where it was not calibrated on classes."""
        return sum(self._verifier.class_rates(target)) - 1

    def least_of_class(self, target: str) -> float:
        """The share of a cell's images that must show the target class for a verdict."""
        return LEAST_OF_CLASS if self._verifier.classes_checked(target) else LEAST_SAID


def _shares_of_something_else(said: Mapping[tuple[str, str], str | None]) -> dict[str, float]:
    """By target class: of the images that were said not to show it, the share that shows none of the audit's."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (_, target), shown in said.items():
        if shown not in (None, target):
            counts[target][int(shown == OTHER)] += 1
    return {target: others / (classes + others) for target, (classes, others) in counts.items()}


def _copies(counts: Floats, images: int) -> float:
    """How many times each of so many images is counted, on average."""
    return max(1.0, float(counts.sum()) / images) if images else 1.0


def _limited(known: Known, most: float) -> Known:
    """The same shares, each row counted on `most` images or fewer."""

    def rows(counts: Floats) -> Floats:
        whole = counts.sum(axis=1, keepdims=True)
        limited: Floats = counts * np.divide(most, whole, out=np.ones_like(whole), where=whole > most)
        return limited

    return Known(rows(known.values), None if known.classes is None else rows(known.classes))


def _better(scores: Corrected, known: Known) -> bool:
    """Whether the verifier does as well on this run, by its scores, as was known of it."""
    right = np.diag(known.values) / np.maximum(known.values.sum(axis=1), 1.0)
    of_values = scores.sensitivity.mean() >= right.mean() - SLACK
    if known.classes is None:
        return bool(of_values)
    return bool(of_values and scores.class_sensitivity >= known.classes[0, 0] / known.classes[0].sum() - SLACK)


def columns(correction: Correction) -> dict[str, Floats]:
    """The columns of `schemas.SCORES` that a correction adds."""
    scores = correction.scores
    names = ("shown_low", "shown_high", "sensitivity", "specificity", "class_shown")
    return {name: getattr(scores, name) for name in names} | {"shown": np.diag(scores.shown)}
