"""Finds column values of labelled images that correlate with failures in one part, and counts failures in others.

A caption is a label and the values of up to three columns: "images of cat. its texture is elephant." Its failures are
compared with those of the label's other images of the same part: two disjoint samples, in each of which a picture
counts once, however many copies of it there are. Each part is used as a whole, so that nothing stops early. It knows
arrays of rows, not images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.config.failures import ANY_LABEL
from c2b_ray.metrics.clustered_rates import ClusteredSides
from c2b_ray.steps.discovery.candidates import Candidate
from c2b_ray.steps.discovery.value_sets import FEWEST, Found, Search, find_value_sets
from c2b_ray.steps.image_ids import Ints, distinct_count, repeated

TARGETS = 12
"""The most predicted labels examined per label."""

Mask = NDArray[np.bool_]
Texts = NDArray[np.object_]


@dataclass(frozen=True)
class Answered:
    """For every labelled image of the run: its label, its columns' values (None where it has none), its part, and a
    number for its picture, the same for all copies of one. `clusters`: the number of its cluster, from 0, such as its
    camera; None where images are independent. All images of a cluster are in one part."""

    labels: Texts
    columns: Mapping[str, Texts]
    parts: Texts
    pictures: Ints
    clusters: Ints | None = None

    def without_copies(self, pictures: Ints) -> tuple[Mask, Answered]:
        """Returns which images count, and these alone: of a picture's images with the same label and values only the
        first. All images of a picture are in the part, and the cluster, of its first one."""
        _, first, picture = np.unique(pictures, return_index=True, return_inverse=True)
        rows = zip(pictures.tolist(), self.labels.tolist(), *(c.tolist() for c in self.columns.values()), strict=True)
        seen: dict[tuple[object, ...], int] = {}
        counts = np.array([seen.setdefault(row, number) == number for number, row in enumerate(rows)], bool)
        columns = {name: values[counts] for name, values in self.columns.items()}
        parts = self.parts[first[picture]]
        clusters = None if self.clusters is None else self.clusters[first[picture]][counts]
        return counts, Answered(self.labels[counts], columns, parts[counts], pictures[counts], clusters)

    @cached_property
    def coded(self) -> tuple[Ints, list[tuple[str, str]]]:
        """The columns' values as numbers, int64 (images, columns), -1 where an image has none; and what each number
        stands for."""
        codes, meaning = np.full((len(self.labels), len(self.columns)), -1, np.int64), list[tuple[str, str]]()
        for at, (name, values) in enumerate(self.columns.items()):
            encoded = pa.array(values.tolist(), pa.string()).dictionary_encode()
            of_column = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
            codes[:, at] = np.where(of_column < 0, -1, of_column + len(meaning))
            meaning += [(name, value) for value in encoded.dictionary.to_pylist()]
        return codes, meaning

    def of_part(self, part: str) -> Mask:
        return np.asarray(self.parts == part, bool)

    def once(self, images: Mask) -> Mask:
        """Returns these images with one alone of each picture, at random: a picture is evidence once."""
        shared = np.flatnonzero(images & self._has_copies)
        if not len(shared):
            return images
        shared = shared[np.argsort(self._order[shared])]
        _, first = np.unique(self.pictures[shared], return_index=True)
        left = images.copy()
        left[shared] = False
        left[shared[first]] = True
        return left

    @property
    def copies(self) -> int:
        """The number of images that are copies of an earlier one."""
        return len(self.pictures) - distinct_count(self.pictures)

    @cached_property
    def _has_copies(self) -> Mask:
        return repeated(self.pictures)

    @cached_property
    def _order(self) -> Ints:
        return np.random.default_rng(0).permutation(len(self.pictures))

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
        origin = ("baseline", "sentence", "pair", "triple")[len(self.values)]
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

    def is_promising(self, smallest_ratio: float) -> bool:
        """Returns whether the ratio of the rates is nearer to `smallest_ratio` than to 1, or above it."""
        usual = (self.other_failures + 0.5) / (self.others + 1)
        return self.failures >= FEWEST and self.failures > (1 + smallest_ratio) / 2 * usual * self.images


def sides(answered: Answered, condition: Condition, failed: Mask, among: Mask) -> Sides:
    """`failed`: which images fail towards the target; `among`: those of the part that have an answer."""
    of_label = answered.of_label(condition.label) & among
    shown = answered.showing(condition.values)
    inside, outside = answered.once(of_label & shown), answered.once(of_label & ~shown)
    return Sides(*(int(mask.sum()) for mask in (inside & failed, inside, outside & failed, outside)))


def clustered_sides(answered: Answered, condition: Condition, failed: Mask, among: Mask) -> ClusteredSides:
    """Returns what `sides` counts, by cluster."""
    assert answered.clusters is not None
    of_label = answered.of_label(condition.label) & among
    shown = answered.showing(condition.values)
    inside, outside = answered.once(of_label & shown), answered.once(of_label & ~shown)
    names, cluster = np.unique(answered.clusters[inside | outside], return_inverse=True)
    numbers = np.zeros(len(answered.labels), np.int64)
    numbers[inside | outside] = cluster
    failures, images = (
        np.stack([np.bincount(numbers[side & counted], minlength=len(names)) for side in (inside, outside)])
        for counted in (failed, np.ones(len(failed), bool))
    )
    return ClusteredSides.of(failures, images)


def targets(predicted: Sequence[str | None], failed: Mask, of_label: Mask) -> list[str]:
    """Returns the labels that most failures of a label are taken for."""
    names = [predicted[row] for row in np.flatnonzero(failed & of_label).tolist()]
    counts = Counter(name for name in names if name is not None)
    return [name for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))][:TARGETS]


@dataclass(frozen=True)
class Suggested:
    """The conditions that a search suggests, best first, and how the search went."""

    conditions: list[Condition]
    search: Search
    found: list[Found]


def conditions(answered: Answered, label: str, failed: Mask, among: Mask, smallest_ratio: float) -> Suggested:
    """Returns the conditions of up to three columns that correlate best with failures, in the part `among`.

    `smallest_ratio`: of the rate to that of the label's other images, which is searched for. Of a picture with several
    copies one image takes part in the search; the counts that decide are those of `sides`.
    """
    rows = answered.once(answered.of_label(label) & among)
    codes, meaning = answered.coded
    found, search = find_value_sets(codes[rows], failed[rows], (1 + smallest_ratio) / 2)
    chosen = []
    for one in found:
        condition = Condition(label, tuple(meaning[code] for code in one.codes))
        if sides(answered, condition, failed, among).is_promising(smallest_ratio):
            chosen.append((condition, one))
    return Suggested([condition for condition, _ in chosen], search, [one for _, one in chosen])
