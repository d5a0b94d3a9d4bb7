"""Looks for a map from a classifier's outputs to classes, other than its label names, by which its answers are right.

A map is chosen on a third of the images and tested on the others, so that the search among all maps does not count as
evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from c2b_ray.steps.classify import Classification

# A classifier's answers to images of known classes, as evidence about its set-up, and bounds of rates.


Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Kind = Literal["shifted", "sorted", "reordered", "exchanged", "one answer", "outside", "chance", "perfect"]

LEVEL = 0.001
"""The probability of calling a right set-up hopeless, at most, over all tests of one classifier."""

_LEAST_CAP = 10


@dataclass(frozen=True)
class LabelledAnswers:
    """Images in random order: `truth` is the number of each one's class, `answer` the position of the label that the
    classifier gave it, −1 where it gave no single one."""

    truth: Ints
    answer: Ints

    def __len__(self) -> int:
        return len(self.truth)

    def at(self, rows: NDArray[np.intp] | Mask) -> LabelledAnswers:
        return LabelledAnswers(self.truth[rows], self.answer[rows])


@dataclass(frozen=True)
class DetectedMapping:
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

    def __init__(self, asking: Classification, answered: LabelledAnswers) -> None:
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

    def is_right(self, answered: LabelledAnswers) -> Mask:
        right: Mask = self.class_of[answered.answer] == answered.truth
        return right

    def by_class(self, rows: LabelledAnswers, chosen: Mask) -> Ints:
        return np.bincount(rows.truth[chosen], minlength=self.classes)


def _ranks(values: Ints) -> Ints:
    """Returns for each element how many equal ones come before it."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(np.diff(values[order], prepend=-1))
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values)) - np.repeat(starts, np.diff(np.append(starts, len(values))))
    return ranks


def at_least(count: int, total: int, level: float) -> float:
    """Returns the lower bound of a rate (Clopper & Pearson 1934); it is too high with a probability of at most
    `level`."""
    return 0.0 if count == 0 else float(betaincinv(count, total - count + 1, level))


def at_most(count: int, total: int, level: float) -> float:
    """Returns the upper bound of a rate, as `at_least`."""
    return 1.0 if count >= total else float(betaincinv(count + 1, total - count, 1 - level))


def positions(labels: Sequence[str]) -> dict[str, int]:
    """Returns the position of each label name; of a name that two labels have, the first."""
    return {name: i for i, name in reversed(list(enumerate(labels)))}


TIMES = 2
"""Another map of answers to classes explains them if it makes at least this many times as many right as the labels."""

MOST_ASSIGNED = 2_000
"""The most classes among which the best one-to-one map is sought; its time grows with their cube."""

_OF_A_MAP = LEVEL / 2 / 8  # two bounds for each of three maps and for exchanged classes
_OF_AN_EXCHANGE = LEVEL / 8
"""The probability of naming two classes as exchanged that are not; nothing is stopped by it."""


def _overturns(counts: Sequence[int], level: float, least_share: float) -> bool:
    """Tells whether another map certainly explains at least the share `least_share` of the answers, and twice as many
    as are right. `counts`: of answers that it explains, of right answers, of images."""
    explained, right, images = counts
    if not images:
        return False
    return at_least(explained, images, level) >= max(least_share, TIMES * at_most(right, images, level))


Meaning = Callable[[LabelledAnswers], Mask]
"""Tells of which images the answer is right if labels meant what this map says."""


def other_meaning(evidence: Evidence) -> list[DetectedMapping]:
    """Looks for a map from labels to classes, other than the labels' own, that makes most classes' answers right."""
    places, assigned = _rank_places(evidence), _assigned(evidence)
    candidates: list[tuple[Kind, Meaning | None]] = [
        ("shifted", _shift_meaning(evidence, places) if places else None),
        ("sorted", _sorted_meaning(evidence) if evidence.classes > 2 else None),
        ("reordered", None if assigned is None else _assigned_meaning(evidence, assigned)),
    ]
    rows = evidence.tested_on
    right = evidence.is_right(rows)
    for kind, meaning in candidates:
        if meaning is None:
            continue
        explained = meaning(rows)
        right_of_class, explained_of_class = evidence.by_class(rows, right), evidence.by_class(rows, explained)
        wins, losses = (
            int((explained_of_class > right_of_class).sum()),
            int((explained_of_class < right_of_class).sum()),
        )
        counts = [int(explained.sum()), int(right.sum()), len(rows)]
        if wins >= max(2, 2 * losses) and _overturns(counts, _OF_A_MAP, 0.2):
            pairs = _moved(evidence, assigned)
            circles = _circles(_successors(evidence, assigned)) if assigned is not None else []
            if kind == "reordered" and [len(circle) for circle in circles] == [2] and len(pairs) == 2:
                kind = "exchanged"
            return [DetectedMapping(kind, counts[2], counts[1], counts[0], places, pairs=pairs)]
    return []


def _moved(evidence: Evidence, assigned: Ints | None) -> tuple[tuple[int, int], ...]:
    """Returns the classes to which another label than their own is assigned, each with this label."""
    if assigned is None:
        return ()
    return tuple(
        (k, label) for k, label in enumerate(assigned.tolist()) if label >= 0 and label not in evidence.groups[k]
    )


def _successors(evidence: Evidence, assigned: Ints) -> Ints:
    """Returns for each class the class whose label is assigned to it, −1 for none."""
    return np.where(assigned >= 0, evidence.class_of[assigned], -1)


def _rank_places(evidence: Evidence) -> int:
    """Returns the distance between an answer and the class's label that is most frequent beside 0."""
    rows = evidence.chosen_on
    distances = np.concatenate(
        [
            rows.answer[(rows.truth == number) & (rows.answer >= 0)] - label
            for number, group in enumerate(evidence.groups)
            for label in group
        ]
    )
    distances = distances[distances != 0]
    if not len(distances):
        return 0
    values, counts = np.unique(distances, return_counts=True)
    return int(values[counts.argmax()])


def _shift_meaning(evidence: Evidence, places: int) -> Meaning:
    def shifted(rows: LabelledAnswers) -> Mask:
        position = rows.answer - places
        in_range = (rows.answer >= 0) & (position >= 0) & (position < len(evidence.class_of) - 1)
        right: Mask = in_range & (evidence.class_of[np.where(in_range, position, -1)] == rows.truth)
        return right

    return shifted


def _sorted_meaning(evidence: Evidence) -> Meaning | None:
    """Returns the map by which the outputs stand for the names in alphabetical order, as those of folders do, or for
    sorted names in the order of their numbers; None where the names are in both orders."""
    names = evidence.labels
    order = np.array(sorted(range(len(names)), key=lambda i: names[i]), np.int64)
    if len(order) < 2 or (order == np.arange(len(order))).all():
        order = np.array(sorted(range(len(names)), key=lambda i: _numbered(names[i])), np.int64)
        if len(order) < 2 or (order == np.arange(len(order))).all():
            return None

    def meaning(rows: LabelledAnswers) -> Mask:
        in_range = (rows.answer >= 0) & (rows.answer < len(order))
        position = np.where(in_range, order[np.where(in_range, rows.answer, 0)], -1)
        right: Mask = in_range & (evidence.class_of[position] == rows.truth)
        return right

    return meaning


def _numbered(name: str) -> tuple[tuple[int, str], ...]:
    """Returns a key that sorts 2 before 10."""
    return tuple((int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name))


def _assigned(evidence: Evidence) -> Ints | None:
    """Returns the best one-to-one map: for each class the position of a label, −1 where it has no images; None for too
    many classes."""
    rows = evidence.chosen_on
    if evidence.classes > MOST_ASSIGNED:
        return None
    # All labels of a class are one answer: its first label.
    first = np.array([group[0] for group in evidence.groups], np.int64)
    answered_class = evidence.class_of[rows.answer]
    answers = np.where(answered_class >= 0, first[answered_class], rows.answer)
    columns = np.unique(np.concatenate([answers[answers >= 0], first]))
    counts = np.zeros((evidence.classes, len(columns)))
    has_answer = answers >= 0
    np.add.at(counts, (rows.truth[has_answer], np.searchsorted(columns, answers[has_answer])), 1)
    counts[np.arange(evidence.classes), np.searchsorted(columns, first)] += 0.5  # of equal maps, the labels' own
    from scipy.optimize import linear_sum_assignment  # not above: it takes long to import, and few runs get here

    classes, assigned = linear_sum_assignment(counts, maximize=True)
    result = np.full(evidence.classes, -1, np.int64)
    result[classes] = columns[assigned]
    result[np.bincount(rows.truth, minlength=evidence.classes) == 0] = -1
    return result


def _assigned_meaning(evidence: Evidence, assigned: Ints) -> Meaning:
    return lambda rows: _answers_with(evidence, rows, assigned)


def _answers_with(evidence: Evidence, rows: LabelledAnswers, assigned: Ints) -> Mask:
    """Tells which images are answered with the label that is assigned to their class, or with another of the same
    class's labels."""
    target = assigned[rows.truth]
    same_class = (evidence.class_of[rows.answer] >= 0) & (evidence.class_of[rows.answer] == evidence.class_of[target])
    matches: Mask = (target >= 0) & ((rows.answer == target) | same_class)
    return matches


def exchanged(evidence: Evidence) -> list[DetectedMapping]:
    """Looks for classes that are always taken for each other, among others that are right."""
    assigned = _assigned(evidence)
    if assigned is None:
        return _without_exception(evidence)
    rows = evidence.tested_on
    explained, right = _answers_with(evidence, rows, assigned), evidence.is_right(rows)
    counts = [evidence.by_class(rows, mask) for mask in (explained, right, np.ones(len(rows), bool))]
    circles = _circles(_successors(evidence, assigned))
    sums, pairs = np.zeros(3, np.int64), []
    for circle in circles:
        of_circle = [int(sum(count[k] for k in circle)) for count in counts]
        always = all(counts[0][k] > counts[1][k] for k in circle)
        if always and _overturns(of_circle, _OF_A_MAP / len(circles), 0.5):
            sums += of_circle
            pairs += [(k, int(assigned[k])) for k in circle]
    if not pairs:
        return _without_exception(evidence)
    two = all(assigned[evidence.class_of[label]] in evidence.groups[k] for k, label in pairs)
    explained_n, right_n, images = sums.tolist()
    kind: Kind = "exchanged" if two else "reordered"
    return [
        DetectedMapping(
            kind, images, right_n, explained_n, pairs=tuple(pairs), hopeless=2 * len(pairs) > evidence.classes
        )
    ]


def _without_exception(evidence: Evidence) -> list[DetectedMapping]:
    """Looks for two classes whose images are all taken for the other: few suffice to show that.

    Were an image of either class at least as often right as taken for the other, all n would be taken for it with a
    probability of at most 2**-n. There are as many chances as pairs of classes.
    """
    rows = evidence.balanced
    answered_class = evidence.class_of[rows.answer]
    images = np.bincount(rows.truth, minlength=evidence.classes)
    confused = np.zeros((evidence.classes, evidence.classes), np.int64)
    np.add.at(confused, (rows.truth[answered_class >= 0], answered_class[answered_class >= 0]), 1)
    always = (confused == images[:, None]) & (images > 0)[:, None]
    chances = evidence.classes * (evidence.classes - 1) / 2
    pairs = [
        (int(a), int(b))
        for a, b in np.argwhere(always & always.T)
        if a < b and chances * 0.5 ** int(images[a] + images[b]) <= _OF_AN_EXCHANGE
    ]
    if not pairs:
        return []
    count = int(sum(images[a] + images[b] for a, b in pairs))
    labels = tuple((k, evidence.groups[other][0]) for a, b in pairs for k, other in ((a, b), (b, a)))
    return [DetectedMapping("exchanged", count, 0, count, pairs=labels, hopeless=False)]


def _circles(successor: Ints) -> list[list[int]]:
    """Returns the circles of two classes or more in a map from classes to classes (−1: to none)."""
    circles, visited = [], set()
    for start in range(len(successor)):
        path: list[int] = []
        node = start
        while node >= 0 and node not in visited and node not in path:
            path.append(node)
            node = int(successor[node])
        if node in path and len(path) - path.index(node) > 1:
            circles.append(path[path.index(node) :])
        visited.update(path)
    return circles
