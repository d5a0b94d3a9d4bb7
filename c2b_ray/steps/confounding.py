"""Estimates how other attributes affect an attribute's bias scores, and which findings that puts in doubt.

Images that captions retrieved or generated differ in more than the caption says. This module knows which image was
drawn for what and what a verifier sees in it; `metrics.standardise` has the estimation, and `score` the verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from c2b_ray.metrics.effects import Effects, effects
from c2b_ray.metrics.indicators import Shown
from c2b_ray.metrics.indicators import shown as shown_by
from c2b_ray.metrics.standardise import Composition, Standardised, composition, standardised
from c2b_ray.steps.adjusted import Adjusted, Score, adjusted
from c2b_ray.steps.answers import CellAnswers
from c2b_ray.steps.cells import CellGroup, CellImages
from c2b_ray.steps.image_ids import Ints
from c2b_ray.steps.said import NOTHING
from c2b_ray.steps.thresholds import Thresholds
from c2b_ray.steps.verified import Seen

SAME = 0.9
"""From this Cramér's V on, two attributes count as one: neither explains the other, and their findings agree."""

Floats = NDArray[np.float64]


class Confounding:
    """The known other attributes of a run's images."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._classes: dict[str, _Class] = {}

    def adjust(
        self,
        group: CellGroup,
        answers: CellAnswers,
        thresholds: Thresholds,
        phi: Floats,
        low: Floats,
        high: Floats,
    ) -> Adjusted | None:
        """Returns a group's scores, adjusted for other attributes; None where no other attribute is known.

        `answers`: one classifier's. `phi`, `low`, `high`: of the group's cells, in their order, with limits at 1 - α.
        """
        images = self._classes.get(group.target_class)
        if images is None:
            images = self._classes[group.target_class] = _images_of_class(self._seen, group.target_class)
        if group.attribute not in images.attributes or len(images.attributes) < 2:
            return None
        standard = images.standardised(group.attribute, answers)
        names, same = list(images.attributes), images.same(group.attribute)
        return adjusted(standard, group, names, same, Score(phi, low, high), thresholds)


def _images_of_class(seen: Seen, target: str) -> _Class:
    """Returns the images of a class that the verifier described, in the order of their ids."""
    said, cells = seen.verified.said, seen.cells
    groups = {group.attribute: group for group in cells.groups_of_class.get(target, ())}
    row = cells.rows_of_class(target)
    row = row[seen.shows_class(seen.row[row], target) & said.has_attributes(seen.row[row])]
    row = row[cells.ids.alphabetical(cells.image[row])]
    values = {name: said.values(name, seen.row[row]) for name in said.attributes(seen.row[row])}
    values = {name: shown for name, shown in values.items() if (shown != NOTHING).any()}
    listed, answers = {}, np.full((len(row), len(values)), -1)
    drawn = answers.copy()
    for column, (name, shown) in enumerate(values.items()):
        group_values = groups[name].values if name in groups else ()
        others = sorted(said.word(word) for word in np.flatnonzero(np.bincount(shown[shown != NOTHING])).tolist())
        # The group's values first, in the order of its cells.
        listed[name] = list(dict.fromkeys([*group_values, *others]))
        number = np.full(len(said.words) + 1, -1)
        number[[said.number(value) for value in others]] = [listed[name].index(value) for value in others]
        answers[:, column] = number[shown]
        if name in groups:
            drawn[:, column] = _drawn_for(cells, groups[name], cells.image[row])
    calibrations = [seen.verified.calibration_of(name, of_name) for name, of_name in listed.items()]
    return _Class(row, listed, shown_by(answers, drawn, calibrations))


def _drawn_for(cells: CellImages, group: CellGroup, images: Ints) -> Ints:
    """Returns which value of an attribute each image was drawn for; -1 for none, and for an image drawn for two values,
    which leaves open which one it shows."""
    order = np.argsort(images)
    rows = cells.rows(group.cells)
    at = np.searchsorted(images, cells.image[rows], sorter=order)
    known = np.flatnonzero(at < len(images))
    known = known[images[order[at[known]]] == cells.image[rows][known]]
    positions = order[at[known]]
    values = np.full(len(images), -1)
    values[positions] = cells.cell[rows][known] - group.cells.start
    values[np.bincount(positions, minlength=len(images)) > 1] = -1
    return values


class _Class:
    """The images of one target class, by their first rows among the cells'. The effects of the latest classifier are
    kept, because its groups are adjusted one after the other."""

    def __init__(self, row: Ints, attributes: Mapping[str, Sequence[str]], indicators: Shown) -> None:
        self.attributes = dict(attributes)
        self._row = row
        self._shown = indicators
        self._compositions: dict[str, Composition] = {}
        self._latest: tuple[CellAnswers, Shown, NDArray[np.bool_], Effects] | None = None

    def standardised(self, attribute: str, answers: CellAnswers) -> Standardised:
        if self._latest is None or self._latest[0] is not answers:
            answered = answers.answered[self._row]
            right = answers.right[self._row][answered]
            known = self._shown if answered.all() else _rows(self._shown, answered)
            self._latest = answers, known, right, effects(known, right)
        _, known, right, known_effects = self._latest
        spread = self.composition(attribute) if known is self._shown else self._composed(known, attribute)
        return standardised(known, known_effects, right, spread)

    def composition(self, attribute: str) -> Composition:
        if attribute not in self._compositions:
            self._compositions[attribute] = self._composed(self._shown, attribute)
        return self._compositions[attribute]

    def same(self, attribute: str) -> dict[str, tuple[str, str]]:
        """Returns value → the attribute and value that stand for the same images, where there is one."""
        same_values: dict[str, tuple[str, str]] = {}
        for b in self._alike(attribute):
            name = list(self.attributes)[b]
            shares = self._table(attribute, b)
            for j, value in enumerate(self.attributes[attribute]):
                if shares[j].sum() > 0:
                    same_values.setdefault(value, (name, self.attributes[name][int(shares[j].argmax())]))
        return same_values

    def _composed(self, known: Shown, attribute: str) -> Composition:
        return composition(known, list(self.attributes).index(attribute), self._alike(attribute))

    def _alike(self, attribute: str) -> list[int]:
        column = list(self.attributes).index(attribute)
        return [b for b in range(len(self.attributes)) if b != column and _cramers_v(self._table(attribute, b)) >= SAME]

    def _table(self, attribute: str, other: int) -> Floats:
        """Returns the shares of the attribute's images that show each value (rows) and each value of the other
        (columns)."""
        column = list(self.attributes).index(attribute)
        rows = self._shown.drawn[:, column] >= 0
        u = self._shown.columns[rows]
        table = np.maximum(u[:, self._shown.blocks[column]].T @ u[:, self._shown.blocks[other]], 0.0)
        shares: Floats = table / max(float(table.sum()), 1e-12)
        return shares


def _rows(images: Shown, rows: NDArray[np.bool_]) -> Shown:
    by = {name: getattr(images, name)[rows] for name in ("columns", "drawn", "by_answer")}
    return replace(images, **by)


def _cramers_v(shares: Floats) -> float:
    """Returns Cramér's V of a table of shares, over its non-empty rows and columns; 0 with fewer than two of either."""
    kept = shares[shares.sum(axis=1) > 0][:, shares.sum(axis=0) > 0]
    size = min(kept.shape) - 1
    if size < 1:
        return 0.0
    expected = np.outer(kept.sum(axis=1), kept.sum(axis=0))
    return float(np.sqrt(((kept - expected) ** 2 / expected).sum() / size))
