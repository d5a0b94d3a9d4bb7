"""Estimates how other attributes affect an attribute's bias scores, and which findings that puts in doubt.

Images that captions retrieved or generated differ in more than the caption says. This module knows which image was
drawn for what and what a verifier sees in it; `stats.shown_values` has the estimation, and `score` the verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import NOTHING, CellObservations
from c2b_ray.stats.roots import deviations
from c2b_ray.stats.shown_values import (
    Composition,
    Effects,
    ShownValues,
    Standardised,
    composition,
    effects,
    standardised,
)
from c2b_ray.stats.shown_values import shown as shown_by
from c2b_ray.steps.answers import CellAnswers
from c2b_ray.steps.cells import CellGroup, CellImages
from c2b_ray.steps.draw import Ints

# Decides which findings hold on images that are alike in all other attributes: tests of the standardised φ.


NAMED = 0.25
"""A second attribute is named where it explains at least this share of what all attributes explain."""

CAUTION = 1.4
"""The test multiplies the variance that standardising adds by this: products of estimates have long tails."""


class Score(NamedTuple):
    """φ of values, with its limits."""

    phi: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class StandardisedScores:
    """Standardised scores of an attribute's values, in the order of the cells.

    `phi`: the standardised φ. `moved`: φ minus the standardised φ; `noise`: its standard error. `added`: by how much
    the variance of the standardised φ exceeds that of φ. `p_value`: of |standardised φ| ≤ τ, 1 where its sign is not
    φ's; `none_p_value`: of |standardised φ| ≥ τ. A finding, and `none`, must pass both the plain test and this one.
    `doubt`: why a finding does not count. `same`: the (attribute, value) of another attribute that nearly the same
    images show. NaN and None where nothing is known.
    """

    phi: Floats
    moved: Floats
    noise: Floats
    added: Floats
    p_value: Floats
    none_p_value: Floats
    doubt: tuple[str | None, ...]
    same: tuple[tuple[str, str] | None, ...]

    def limits(self, low: Floats, high: Floats, confidence: float) -> tuple[Floats, Floats]:
        """Returns the limits of φ at a confidence, widened until they contain those of the standardised φ."""
        phi, added_variance = self.phi + self.moved, deviations(confidence) ** 2 * self.added
        below, above = np.sqrt((phi - low) ** 2 + added_variance), np.sqrt((high - phi) ** 2 + added_variance)
        return np.fmin(low, np.maximum(self.phi - below, -1.0)), np.fmax(high, np.minimum(self.phi + above, 1.0))

    def among(self, positions: Sequence[int], values: int) -> StandardisedScores:
        """Returns the same scores at these positions among `values` values; NaN and None elsewhere."""
        arrays = {
            name: np.full(values, np.nan) for name in ("phi", "moved", "noise", "added", "p_value", "none_p_value")
        }
        for name, array in arrays.items():
            array[list(positions)] = getattr(self, name)
        nothing = (None,) * values
        return StandardisedScores(**arrays, doubt=nothing, same=nothing)


def adjusted(
    standardised: Standardised,
    group: CellGroup,
    attributes: Sequence[str],
    same: Mapping[str, tuple[str, str]],
    score: Score,
    thresholds: Thresholds,
) -> StandardisedScores:
    """Returns a group's scores as they would be on images that are alike in all other attributes.

    `attributes`: all attributes, in the order of `standardised.parts`. `same`: by value of the group, the value of
    another attribute that nearly the same images show.
    """
    phi, low, high = score
    tau, alpha = thresholds
    n = len(group.values)
    moved, noise, added, parts = (
        array[:n] for array in (standardised.moved, standardised.noise, standardised.added, standardised.parts)
    )
    standard = phi - moved
    reach = np.where(phi > 0, phi - low, high - phi) / deviations(1 - alpha)
    error = np.sqrt(reach**2 + CAUTION * added)
    p_value = _p_value(np.sign(phi) * standard, error, tau)
    none_p_value = _p_value(2 * tau - np.abs(standard), error, tau)
    plain = _p_value(np.abs(phi), reach, tau)
    in_doubt = (np.abs(phi) > tau) & (plain <= alpha) & (p_value > alpha)
    z = deviations(1 - alpha)
    doubts = [
        _doubt(value, float(phi[j]), (float(moved[j]), z * float(noise[j])), (parts[j], attributes), tau)
        if in_doubt[j]
        else None
        for j, value in enumerate(group.values)
    ]
    same_values = tuple(same.get(value) for value in group.values)
    return StandardisedScores(standard, moved, noise, added, p_value, none_p_value, tuple(doubts), same_values)


def standardised_over_classes(
    classes: Sequence[StandardisedScores | None], shares: Floats, score: Score, thresholds: Thresholds
) -> StandardisedScores:
    """Returns the standardised φ over several classes: the classes' standardised φ, weighted by their shares.

    `classes`: for every class, arrays of shape (values,); None where nothing is known about its other attributes, so
    that its φ stays unchanged. `shares`: (classes, values). `score`: φ over all classes with its limits at 1 - α, each
    (values,).
    """
    phi, low, high = score
    tau, alpha = thresholds
    zeros = np.zeros(shares.shape[1])
    moved = np.array([zeros if of_class is None else np.nan_to_num(of_class.moved) for of_class in classes])
    noise = np.array([zeros if of_class is None else np.nan_to_num(of_class.noise) for of_class in classes])
    added = np.array([zeros if of_class is None else np.nan_to_num(of_class.added) for of_class in classes])
    moves, added_variance = (shares * moved).sum(axis=0), (shares**2 * added).sum(axis=0)
    standard = phi - moves
    reach = np.where(phi > 0, phi - low, high - phi) / deviations(1 - alpha)
    error = np.sqrt(reach**2 + CAUTION * added_variance)
    p_value = _p_value(np.sign(phi) * standard, error, tau)
    none_p_value = _p_value(2 * tau - np.abs(standard), error, tau)
    is_uncertain = (np.abs(phi) > tau) & (_p_value(np.abs(phi), reach, tau) <= alpha) & (p_value > alpha)
    doubts = tuple(
        f"on images alike in the other attributes it is {remainder:+.2f}" if doubted else None
        for remainder, doubted in zip(standard.tolist(), is_uncertain.tolist(), strict=True)
    )
    spread = np.sqrt((shares**2 * noise**2).sum(axis=0))
    return StandardisedScores(
        standard, moves, spread, added_variance, p_value, none_p_value, doubts, (None,) * len(phi)
    )


def _doubt(
    value: str, phi: float, moved: tuple[float, float], parts: tuple[Floats, Sequence[str]], tau: float
) -> str | None:
    """Returns why a finding is in doubt once it is standardised; None where other attributes do not explain that.

    `moved`: by how much standardising moves φ, and the error of that. `parts`: what each attribute contributes to it.
    """
    toward, off = float(np.sign(phi)) * moved[0], moved[1]
    who = _carriers(np.sign(phi) * parts[0], toward, parts[1])
    gap, rest = f"{phi:+.2f} on the images of {value!r}", phi - moved[0]
    if toward > max(tau, off):
        return f"explained by {who}: {gap}, {rest:+.2f} on images alike in {who}"
    if toward + off > abs(phi) - tau:
        return f"cannot be told from {who}: {gap}, {rest - off:+.2f} to {rest + off:+.2f} on images alike in {who}"
    return None


def _p_value(beyond: Floats, error: Floats, tau: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        p_value: Floats = np.where(beyond > tau, ndtr(-(beyond - tau) / error), 1.0)
    return np.where(np.isnan(beyond), np.nan, p_value)


def _carriers(parts: Floats, toward: float, names: Sequence[str]) -> str:
    """Returns the attributes that explain most, at most two."""
    order = np.argsort(-parts, kind="stable")
    carriers = [names[order[0]]]
    if len(order) > 1 and parts[order[1]] >= NAMED * max(toward, parts[order[0]]):
        carriers.append(names[order[1]])
    return " and ".join(carriers)


SAME = 0.9
"""From this Cramér's V on, two attributes count as one: neither explains the other, and their findings agree."""

Floats = NDArray[np.float64]


class Confounding:
    """The known other attributes of a run's images."""

    def __init__(self, seen: CellObservations) -> None:
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
    ) -> StandardisedScores | None:
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


def _images_of_class(seen: CellObservations, target: str) -> _Class:
    """Returns the images of a class that the verifier described, in the order of their ids."""
    answers_of_verifier, cells = seen.verified.verifier_answers, seen.cells
    groups = {group.attribute: group for group in cells.groups_of_class.get(target, ())}
    row = cells.rows_of_class(target)
    row = row[seen.shows_class(seen.row[row], target) & answers_of_verifier.has_attributes(seen.row[row])]
    row = row[cells.ids.alphabetical(cells.image[row])]
    values = {
        name: answers_of_verifier.values(name, seen.row[row]) for name in answers_of_verifier.attributes(seen.row[row])
    }
    values = {name: codes for name, codes in values.items() if (codes != NOTHING).any()}
    listed, answers = {}, np.full((len(row), len(values)), -1)
    drawn_for = answers.copy()
    for column, (name, codes) in enumerate(values.items()):
        group_values = groups[name].values if name in groups else ()
        other_values = sorted(
            answers_of_verifier.word(word) for word in np.flatnonzero(np.bincount(codes[codes != NOTHING])).tolist()
        )
        # The group's values first, in the order of its cells.
        listed[name] = list(dict.fromkeys([*group_values, *other_values]))
        number = np.full(len(answers_of_verifier.words) + 1, -1)
        number[[answers_of_verifier.number(value) for value in other_values]] = [
            listed[name].index(value) for value in other_values
        ]
        answers[:, column] = number[codes]
        if name in groups:
            drawn_for[:, column] = _drawn_for(cells, groups[name], cells.image[row])
    calibrations = [seen.verified.calibration_of(name, of_name) for name, of_name in listed.items()]
    return _Class(row, listed, shown_by(answers, drawn_for, calibrations))


def _drawn_for(cells: CellImages, group: CellGroup, images: Ints) -> Ints:
    """Returns which value of an attribute each image was drawn for; -1 for none, and for an image drawn for two values,
    which leaves open which one it shows."""
    order = np.argsort(images)
    rows = cells.rows(group.cells)
    ranks = np.searchsorted(images, cells.image[rows], sorter=order)
    found_rows = np.flatnonzero(ranks < len(images))
    found_rows = found_rows[images[order[ranks[found_rows]]] == cells.image[rows][found_rows]]
    positions = order[ranks[found_rows]]
    values = np.full(len(images), -1)
    values[positions] = cells.cell[rows][found_rows] - group.cells.start
    values[np.bincount(positions, minlength=len(images)) > 1] = -1
    return values


class _Class:
    """The images of one target class, by their first rows among the cells'. The effects of the latest classifier are
    kept, because its groups are adjusted one after the other."""

    def __init__(self, row: Ints, attributes: Mapping[str, Sequence[str]], indicators: ShownValues) -> None:
        self.attributes = dict(attributes)
        self._row = row
        self._shown = indicators
        self._compositions: dict[str, Composition] = {}
        self._latest: tuple[CellAnswers, ShownValues, NDArray[np.bool_], Effects] | None = None

    def standardised(self, attribute: str, answers: CellAnswers) -> Standardised:
        if self._latest is None or self._latest[0] is not answers:
            answered = answers.answered[self._row]
            right = answers.right[self._row][answered]
            shown = self._shown if answered.all() else _rows(self._shown, answered)
            self._latest = answers, shown, right, effects(shown, right)
        _, shown, right, known_effects = self._latest
        spread = self.composition(attribute) if shown is self._shown else self._composed(shown, attribute)
        return standardised(shown, known_effects, right, spread)

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

    def _composed(self, shown: ShownValues, attribute: str) -> Composition:
        return composition(shown, list(self.attributes).index(attribute), self._alike(attribute))

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


def _rows(images: ShownValues, rows: NDArray[np.bool_]) -> ShownValues:
    by = {name: getattr(images, name)[rows] for name in ("columns", "drawn", "by_answer")}
    return replace(images, **by)


def _cramers_v(shares: Floats) -> float:
    """Returns Cramér's V of a table of shares, over its non-empty rows and columns; 0 with fewer than two of either."""
    non_empty = shares[shares.sum(axis=1) > 0][:, shares.sum(axis=0) > 0]
    size = min(non_empty.shape) - 1
    if size < 1:
        return 0.0
    expected = np.outer(non_empty.sum(axis=1), non_empty.sum(axis=0))
    return float(np.sqrt(((non_empty - expected) ** 2 / expected).sum() / size))
