"""Finds column values of labelled images that correlate with failures on one half, and counts failures on the other.

A caption is a label and the values of one or two columns: "images of cat. its texture is elephant." Its failures are
compared with those of the label's other images of the same half: two disjoint samples. Each half is used as a whole, so
that nothing stops early. It knows arrays of rows, not images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from c2b_ray.config.failures import ANY_LABEL
from c2b_ray.steps.discovery.candidates import Candidate

MOST, TARGETS = 5, 12
"""The most captions of each kind that are confirmed; the most predicted labels examined per label."""
FEWEST, WORTH = 2, 1.5

Mask = NDArray[np.bool_]
Texts = NDArray[np.object_]


@dataclass(frozen=True)
class Answered:
    """For every labelled image of the run: its label, its columns' values (None where it has none), and its half."""

    labels: Texts
    columns: Mapping[str, Texts]
    is_discovery: Mask

    def without_copies(self, contents: Sequence[str | None]) -> tuple[Mask, Answered]:
        """Returns which images count, and these alone: of images of a label with the same content only the first.

        An image of several labels is in the half of the first of its rows. `contents`: of each image; None: unknown.
        """
        first: dict[str, int] = {}
        seen: set[tuple[str, str]] = set()
        halves, counts = self.is_discovery.copy(), np.ones(len(contents), bool)
        for row, (content, label) in enumerate(zip(contents, self.labels.tolist(), strict=True)):
            if content is not None:
                halves[row] = halves[first.setdefault(content, row)]
                counts[row] = (content, label) not in seen
                seen.add((content, label))
        columns = {name: values[counts] for name, values in self.columns.items()}
        return counts, Answered(self.labels[counts], columns, halves[counts])

    def of_label(self, label: str) -> Mask:
        if label == ANY_LABEL:
            return np.ones(len(self.labels), bool)
        return np.asarray(self.labels == label, bool)

    def showing(self, conditions: Sequence[tuple[str, str]]) -> Mask:
        mask = np.ones(len(self.labels), bool)
        for column, value in conditions:
            mask &= np.asarray(self.columns[column] == value, bool)
        return mask


@dataclass(frozen=True)
class Condition:
    """Images of a label that show these values of columns."""

    label: str
    values: tuple[tuple[str, str], ...] = ()

    @property
    def caption(self) -> Candidate:
        sentences = tuple(f"its {column} is {value}" for column, value in self.values)
        origin = ("baseline", "sentence", "pair")[len(self.values)]
        base = Candidate(self.label, f"images of {self.label}.", (), "baseline")
        if not self.values:
            return base
        return Candidate(self.label, base.prompt, sentences, origin, base.caption_id)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Sides:
    """Failures and images that show a condition, and those of the label's other images."""

    failures: int
    images: int
    other_failures: int
    others: int

    @property
    def gain(self) -> float:
        """The log likelihood ratio of two rates against one; 0 where the first is not the higher."""
        f1, n1, f0, n0 = self.failures, self.images, self.other_failures, self.others
        if not n1 or not n0 or f1 * n0 <= f0 * n1:
            return 0.0
        return _log_likelihood(f1, n1) + _log_likelihood(f0, n0) - _log_likelihood(f1 + f0, n1 + n0)

    @property
    def is_promising(self) -> bool:
        usual = (self.other_failures + 0.5) / (self.others + 1)
        return self.failures >= FEWEST and self.failures > WORTH * usual * self.images


def _log_likelihood(failures: int, images: int) -> float:
    rate = failures / images
    return float(xlogy(failures, rate) + xlogy(images - failures, 1 - rate))


def sides(answered: Answered, condition: Condition, failed: Mask, among: Mask) -> Sides:
    """`failed`: which images fail towards the target; `among`: those of the half that have an answer."""
    of_label = answered.of_label(condition.label) & among
    shown = answered.showing(condition.values)
    inside, outside = of_label & shown, of_label & ~shown
    return Sides(*(int(mask.sum()) for mask in (inside & failed, inside, outside & failed, outside)))


def targets(predicted: Sequence[str | None], failed: Mask, of_label: Mask) -> list[str]:
    """Returns the labels that most failures of a label are taken for."""
    names = [predicted[row] for row in np.flatnonzero(failed & of_label).tolist()]
    counts = Counter(name for name in names if name is not None)
    return [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))][:TARGETS]


def conditions(answered: Answered, label: str, failed: Mask, among: Mask) -> list[Condition]:
    """Returns the conditions of one or two columns that correlate best with failures, in the half `among`."""
    scored = []
    for values in _values(answered, answered.of_label(label) & among & failed):
        condition = Condition(label, values)
        split = sides(answered, condition, failed, among)
        if split.is_promising:
            scored.append((-split.gain, len(values), values, condition))
    return [condition for *_, condition in sorted(scored, key=lambda item: item[:3])[:MOST]]


def _values(answered: Answered, rows: Mask) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yields the values, and pairs of values of two columns, of these images, each once."""
    seen: dict[tuple[tuple[str, str], ...], None] = {}
    for row in np.flatnonzero(rows).tolist():
        shown = [(name, value) for name, values in answered.columns.items() if (value := values[row]) is not None]
        for size in (1, 2):
            seen.update(dict.fromkeys(combinations(shown, size)))
    yield from seen
