"""How often a verifier is right: counted on images of known content, or estimated from its own certainty, or
unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.steps.draw import Ints, codes, counted, numbered, vocabulary
from c2b_ray.steps.observe import CLASS, OTHER
from c2b_ray.tables import CALIBRATION

# Estimates how often a verifier is right from its own certainty, where there is no image of known content.


SELF_TRUST = 20.0
"""Without a calibration table, a verifier's certainty counts as this many labelled images of each value."""


def self_assessed_calibration(verifications: pa.Table) -> pa.Table:
    """Returns what the verifier's certainty implies for its answers: a table of `tables.CALIBRATION`, counted in
    images.

    An image answered w with certainty p counts p for w and divides 1 - p among the other values that were answered for
    its class. Each value's row is scaled to at most SELF_TRUST images: a model's assessment of itself is weak evidence.
    """
    names, values, certainties = (
        pc.list_flatten(verifications[column]) for column in ("attributes", "values", "certainties")
    )
    rows_with_certainty = np.flatnonzero(pc.and_(values.is_valid(), certainties.is_valid()).to_numpy())
    names, values, certainties = (column.take(pa.array(rows_with_certainty)) for column in (names, values, certainties))
    words = vocabulary(names, values)
    text = words.to_pylist()
    name, value, certainty = codes(names, words), codes(values, words), certainties.to_numpy().astype(np.float64)
    promised: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for rows in _by_class(name, _targets(verifications)[rows_with_certainty]):
        _add(promised[text[name[rows[0]]]], value[rows], certainty[rows], text)
    table = [row for attribute, images in sorted(promised.items()) for row in _rows(attribute, images)]
    return pa.Table.from_pylist(table, CALIBRATION)


def _targets(verifications: pa.Table) -> Ints:
    """Returns the class, as a number, of each value of all rows."""
    _, target = numbered(verifications["target_class"])
    return np.repeat(target, pc.list_value_length(verifications["attributes"]).to_numpy())


def _by_class(name: Ints, target: Ints) -> list[Ints]:
    """Returns the positions of the answers about each attribute of each class, in the order of their first answers."""
    keys = name * (np.int64(target.max(initial=0)) + 1) + target
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.r_[True, keys[order][1:] != keys[order][:-1]][: len(keys)])
    return sorted(np.split(order, starts[1:]), key=lambda rows: int(rows[0])) if len(keys) else []


def _add(promised: dict[tuple[str, str], float], answers: Ints, certainty: Floats, text: list[str]) -> None:
    """Adds the images, by value and answer, of one attribute of one class."""
    numbers, _ = counted(answers)
    values = sorted(text[number] for number in numbers)
    for number in sorted(numbers.tolist(), key=lambda number: int(np.argmax(answers == number))):
        answer, certainties = text[number], certainty[answers == number]
        for value in values:
            images = certainties if value == answer else (1 - certainties) / max(1, len(values) - 1)
            # Added one by one, so that the sums over parts of a table equal those over the whole.
            before = promised.get((value, answer), 0.0)
            promised[value, answer] = float(np.cumsum(np.append(before, images))[-1])


def _rows(attribute: str, promised: dict[tuple[str, str], float]) -> list[dict[str, object]]:
    images_of_value: dict[str, float] = defaultdict(float)
    for (value, _), images in promised.items():
        images_of_value[value] += images
    return [
        {"attribute": attribute, "value": value, "answer": answer, "source": "self"}
        | {"images": images * min(1.0, SELF_TRUST / images_of_value[value]) if images_of_value[value] else 0.0}
        for (value, answer), images in sorted(promised.items())
    ]


ASSUMED = 0.95
"""The assumed rate of right answers on a class, where neither a calibration nor the verifier's certainty gives one."""

Floats = NDArray[np.float64]


class VerifierSkill:
    """How well a verifier recognises values and classes, from tables of `tables.VERIFICATIONS` and `CALIBRATION`.

    For values and classes without calibration, the verifier's certainty is used instead.
    """

    def __init__(self, verifications: pa.Table, calibration: pa.Table) -> None:
        self._counts: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
        self._checked = set(zip(calibration["attribute"].to_pylist(), calibration["value"].to_pylist(), strict=True))
        self_rows = [row for row in self_assessed_calibration(verifications).to_pylist() if not self._is_checked(row)]
        for row in [*calibration.to_pylist(), *self_rows]:
            self._counts[row["attribute"]][row["value"], row["answer"]] = row["images"]
        self._certainty = _class_certainty(verifications)

    def _is_checked(self, row: dict[str, str]) -> bool:
        return (row["attribute"], row["value"]) in self._checked

    def values(self, attribute: str, values: Sequence[str]) -> Floats:
        """Returns images that show each value (row) for which it named each value (column)."""
        counts = self._counts.get(attribute, {})
        return np.array([[counts.get((value, answer), 0.0) for answer in values] for value in values])

    def values_checked(self, attribute: str, values: Sequence[str]) -> bool:
        """Returns whether all of these were counted on images of known content."""
        return all((attribute, value) in self._checked for value in values)

    def classes(self, target: str, something_else: float | None = None) -> Floats:
        """Returns images that show the class and images that do not (rows), by whether it said that they do.

        `something_else`: the share, among the run's images that do not show the class, of those that show none of the
        audit's classes. A verifier takes these for the class more often than it takes another class for it, and the
        proportion of the two in a calibration is arbitrary: with the share, both are weighted as they occur in the run.
        """
        counts = self._table(target)
        if something_else is not None:
            counts[1] = self._mixed(target, something_else)
        right = self._certainty.get(target, ASSUMED)
        guess = SELF_TRUST * np.array([[right, 1 - right], [1 - right, right]])
        return np.where(counts.sum(axis=1, keepdims=True) > 0, counts, guess)

    def _mixed(self, target: str, something_else: float) -> Floats:
        """Returns images without the class, by whether the verifier saw it: the two kinds weighted by their shares."""
        kinds = (
            self._table(target, lambda value: value == OTHER)[1],
            self._table(target, lambda value: value != OTHER)[1],
        )
        shares = np.array([something_else, 1 - something_else])
        images = np.array([kind.sum() for kind in kinds])
        if not images.all():
            summed: Floats = kinds[0] + kinds[1]
            return summed
        rate = float(shares @ [(kind[0] + 0.5) / (kind.sum() + 1) for kind in kinds])
        worth = 1 / float((shares**2 / images).sum())
        return worth * np.array([rate, 1 - rate])

    def classes_checked(self, target: str) -> bool:
        """Returns whether both were counted on images of known content: some that show the class, and some that
        do not."""
        return bool((self._table(target).sum(axis=1) > 0).all())

    def something_else(self) -> float:
        """Returns the number of calibration images that show none of the audit's classes."""
        return sum(images for (value, _), images in self._counts.get(CLASS, {}).items() if value == OTHER)

    def classes_known(self, target: str) -> bool:
        """Returns whether more than an assumption says how often it is right on the class."""
        return self.classes_checked(target) or target in self._certainty

    def class_rates(self, target: str) -> tuple[float, float]:
        """Returns sensitivity and specificity on the class, each 1 where it was not counted on images of known
        content."""
        counts = self._table(target)
        totals = counts.sum(axis=1)
        right = np.divide(np.diag(counts), totals, out=np.ones(2), where=totals > 0)
        return float(right[0]), float(right[1])

    def images_of_class(self, target: str) -> float:
        """Returns the number of calibration images that show the class."""
        return float(self._table(target)[0].sum())

    def _table(self, target: str, counts_for: Callable[[str], bool] = lambda value: True) -> Floats:
        """Returns images that show the class and that do not (rows; of other classes only those that `counts_for`
        accepts), by whether it said that they do."""
        counts = np.zeros((2, 2))
        for (value, answer), images in self._counts.get(CLASS, {}).items():
            if value == target or counts_for(value):
                counts[int(value != target), int(answer != target)] += images
        return counts


def _class_certainty(verifications: pa.Table) -> dict[str, float]:
    """Returns the verifier's mean certainty about the class, over the images drawn for each class, where it
    gave one."""
    certainty = verifications["class_certainty"]
    rows_with_certainty = np.flatnonzero(certainty.is_valid().to_numpy())
    names, target = numbered(verifications["target_class"].take(pa.array(rows_with_certainty)))
    certainties = certainty.take(pa.array(rows_with_certainty)).to_numpy().astype(np.float64)
    return {name: float(np.mean(certainties[target == i])) for i, name in enumerate(names.to_pylist())}
