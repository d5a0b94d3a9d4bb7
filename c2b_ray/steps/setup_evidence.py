"""A classifier's answers to images of known classes, as evidence about its set-up, and bounds of rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from c2b_ray.steps.predict import Classification

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Kind = Literal["shifted", "sorted", "reordered", "exchanged", "one answer", "outside", "chance", "perfect"]

LEVEL = 0.001
"""The probability of calling a right set-up hopeless, at most, over all tests of one classifier."""

_LEAST_CAP = 10


@dataclass(frozen=True)
class Answered:
    """Images in random order: `truth` is the number of each one's class, `answer` the position of the label that the
    classifier gave it, −1 where it gave no single one."""

    truth: Ints
    answer: Ints

    def __len__(self) -> int:
        return len(self.truth)

    def at(self, rows: NDArray[np.intp] | Mask) -> Answered:
        return Answered(self.truth[rows], self.answer[rows])


@dataclass(frozen=True)
class Detected:
    """One way in which nearly all answers are wrong. `right` and `explained` of `images`: answers that are right, and
    that `kind` explains.

    `places`: by how many places answers are shifted. `label`: the position of the one answer; −1: no single answer.
    `pairs`: (class number, label position): images of the class are answered with this label. `guess`: the accuracy of
    the constant answer. `hopeless`: an audit of these answers would tell nothing about the classifier.
    """

    kind: Kind
    images: int
    right: int
    explained: int = 0
    places: int = 0
    label: int = -1
    pairs: tuple[tuple[int, int], ...] = field(default=())
    guess: float = 0.0
    hopeless: bool = True


class Evidence:
    """The answers, with about equally many images of each class, and the labels that stand for the classes."""

    def __init__(self, asking: Classification, answered: Answered) -> None:
        self.classes = len(asking.classes)
        self.groups = asking.labels_of_class
        self.labels = asking.labels
        self._size = 1 + max(len(asking.labels), 1 + max(max(group) for group in self.groups))
        rank = _ranks(answered.truth)
        counts = np.bincount(answered.truth, minlength=self.classes)
        # A class of most images would hide what happens to all others.
        cap = max(_LEAST_CAP, int(np.quantile(counts[counts > 0], 0.2, method="lower")))
        self.balanced = answered.at(rank < cap)
        third = _ranks(self.balanced.truth) % 3 == 0
        self.chosen_on, self.tested_on = self.balanced.at(third), self.balanced.at(~third)

    @cached_property
    def class_of(self) -> Ints:
        """The class of each label, −1 where it stands for none; the last element belongs to the answer −1."""
        result = np.full(self._size, -1, np.int64)
        for number, group in enumerate(self.groups):
            result[list(group)] = number
        return result

    def is_right(self, answered: Answered) -> Mask:
        right: Mask = self.class_of[answered.answer] == answered.truth
        return right

    def by_class(self, rows: Answered, chosen: Mask) -> Ints:
        return np.bincount(rows.truth[chosen], minlength=self.classes)


def _ranks(values: Ints) -> Ints:
    """Returns for each element how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=-1))
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    return ranks


def at_least(count: int, of: int, level: float) -> float:
    """Returns the lower bound of a rate (Clopper & Pearson 1934); it is too high with a probability of at most
    `level`."""
    return 0.0 if count == 0 else float(betaincinv(count, of - count + 1, level))


def at_most(count: int, of: int, level: float) -> float:
    """Returns the upper bound of a rate, as `at_least`."""
    return 1.0 if count >= of else float(betaincinv(count + 1, of - count, 1 - level))


def positions(labels: Sequence[str]) -> dict[str, int]:
    """Returns the position of each label name; of a name that two labels have, the first."""
    return {name: i for i, name in reversed(list(enumerate(labels)))}
