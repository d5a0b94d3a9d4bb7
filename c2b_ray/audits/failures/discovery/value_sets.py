"""Finds sets of column values that go with failures: all sets of up to three columns, by branch and bound.

A set of values that f of F failures show, among n of N images, has the excess

    G = log-likelihood(f of n) + log-likelihood(F - f of N - n) - log-likelihood(F of N)

(the log likelihood ratio of two rates against one). Of K sets without any effect the largest G is about log K, so that
sets are ranked by G - log K, where K counts the sets of as many columns and of fewer: a longer set must explain more
than the shorter ones, because there are more of it.

Of all sets that add values to a set with f failures, none has a greater G than f failures among f images would (G is
convex in f and n; Morishita & Sese 2000, "Traversing itemset lattices with statistical metric pruning", theorem 3). So
a pair of values whose bound is below the best set so far is not extended, and the best set is still the best of all
(but for `WORK`).

The images of the best set are then set aside and the search is repeated on the others. So each set explains failures
that the sets before it do not, and a part of a cause, or a cause with one value too many, is not chosen beside the
cause. This module knows numbers of images and nothing of captions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from c2b_ray.audits.failures.config import ANY_LABEL
from c2b_ray.audits.failures.discovery.candidates import Candidate
from c2b_ray.stats.clusters import ClusteredSides
from c2b_ray.stats.scores import Floats, Ints
from c2b_ray.steps.draw import distinct_count, repeated

MOST_COLUMNS = 3
MOST_SETS = 5
"""The most sets of one search: each that is tested makes all tests of the run more demanding."""
FEWEST = 2
"""Failures that show a set: fewer say nothing."""
WORK = 3 * 10**9
"""Multiplications for all sets of three columns, about half a second of one core. Where all would take more, the pairs
that go with failures most are extended, as many as that allows."""
_PAIRS_AT_ONCE = 256

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ValueSet:
    """A set of values. `excess`: G - log K, in the images that the sets before it left."""

    codes: tuple[int, ...]
    excess: float


@dataclass(frozen=True)
class Search:
    """How many sets of one, two and three columns were tried: those that at least `FEWEST` failures show. Sets of three
    that cannot be the best, by the bound, are among them. `not_extended`: pairs to which no third value was added,
    for `WORK`. `penalty`: log K of sets of three columns."""

    tried: tuple[int, int, int]
    not_extended: int
    penalty: float


def excess(failures: ArrayLike, images: ArrayLike, all_failures: ArrayLike, all_images: ArrayLike) -> Floats:
    """Returns G in nats, float64 of the arguments' common shape; 0 where a side is empty or the set does not fail more
    often than the other images.

    Args: failures <= images of the set; those of all images, with failures <= all_failures and so on.
    """
    f1, n1, f, n = np.broadcast_arrays(
        *(np.asarray(x, np.float64) for x in (failures, images, all_failures, all_images))
    )
    f0, n0 = f - f1, n - n1
    result = _log_likelihood(f1, n1) + _log_likelihood(f0, n0) - _log_likelihood(f, n)
    gain: Floats = np.where((n1 > 0) & (n0 > 0) & (f1 * n0 > f0 * n1), np.maximum(result, 0.0), 0.0)
    return gain


def find_value_sets(codes: Ints, failed: Mask, least_ratio: float) -> tuple[list[ValueSet], Search]:
    """Returns at most `MOST_SETS` sets, in the order in which they were found, and how the search went.

    Args: codes: a number for each image's value of each column, int (images, columns), -1 where it has none; a number
    stands for one value of one column. failed: bool (images,). least_ratio: of the rate of a set to that of the other
    images, above which it is of interest.
    """
    values = _Values.of(codes, failed)
    singles, pairs = len(values.codes), len(values.pairs)
    of_failed = values.shown[failed].astype(np.float32)
    triples = sum(len(sets) for sets, *_ in _triples(values, values.extended, of_failed, np.ones(len(of_failed), bool)))
    penalties = np.log(np.maximum(np.cumsum([singles, pairs, triples]), 1))
    value_sets, unexplained = list[ValueSet](), np.ones(len(failed), bool)
    while (
        len(value_sets) < MOST_SETS and (best := values.best(unexplained, failed, least_ratio, penalties)) is not None
    ):
        value_sets.append(ValueSet(tuple(values.codes[best.at].tolist()), best.score))
        unexplained &= ~values.shown[:, best.at].all(axis=1)
    return value_sets, Search((singles, pairs, triples), pairs - len(values.extended), float(penalties[-1]))


@dataclass
class _Best:
    """The best set so far, as positions of its values."""

    at: Ints
    score: float = -np.inf

    def consider(self, sets: Ints, score: Floats) -> None:
        if len(score) and score[i := int(np.argmax(score))] > self.score:
            self.at, self.score = sets[i], float(score[i])


@dataclass(frozen=True)
class _Values:
    """The values that at least `FEWEST` failures show, ordered by column, and which images show each, bool (images,
    values). `pairs`: of values of two columns that as many failures show, int (pairs, 2). `extended`: the rows of
    `pairs` to which values of later columns are added."""

    codes: Ints
    columns: Ints
    shown: Mask
    pairs: Ints
    extended: Ints

    @classmethod
    def of(cls, codes: Ints, failed: Mask) -> _Values:
        names, columns = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for column in range(codes.shape[1]):
            values_of_column, counts = np.unique(codes[failed, column], return_counts=True)
            frequent = values_of_column[(values_of_column >= 0) & (counts >= FEWEST)]
            names.append(frequent)
            columns.append(np.full(len(frequent), column))
        values, column_of_value = np.concatenate(names), np.concatenate(columns)
        shown = codes[:, column_of_value] == values
        failures, images = _joint_counts(shown[failed]), _joint_counts(shown)
        pairs = np.argwhere((column_of_value[:, None] < column_of_value[None, :]) & (failures >= FEWEST))
        joint = tuple(pairs.T)
        most = WORK // max(len(codes) * len(values), 1)
        promise = excess(failures[joint], images[joint], int(failed.sum()), len(failed))
        extended = np.sort(np.argsort(-promise, kind="stable")[:most])
        return cls(values, column_of_value, shown, pairs, extended)

    def best(self, left: Mask, failed: Mask, least_ratio: float, penalties: Floats) -> _Best | None:
        """Returns the set with the greatest G - log K of those whose rate, among the images that are left, is above
        `least_ratio` times the others'."""
        shown, failed_left = self.shown[left], failed[left]
        numbers = shown.astype(np.float32)
        totals = int(failed_left.sum()), len(failed_left)
        best = _Best(np.zeros(0, np.int64))

        def consider(sets: Ints, failures: Floats, images: Floats) -> None:
            usual = (totals[0] - failures + 0.5) / (totals[1] - images + 1)
            is_more = (failures >= FEWEST) & (failures > least_ratio * usual * images)
            score = excess(failures, images, *totals) - penalties[sets.shape[1] - 1]
            best.consider(sets, np.where(is_more, score, -np.inf))

        failures, images = _joint_counts(shown[failed_left]), _joint_counts(shown)
        consider(np.arange(len(self.codes))[:, None], np.diag(failures), np.diag(images))
        joint = tuple(self.pairs.T)
        consider(self.pairs, failures[joint], images[joint])
        support = failures[joint][self.extended]
        bound = np.where(support >= FEWEST, excess(support, support, *totals) - penalties[-1], -np.inf)
        order = np.argsort(-bound, kind="stable")
        for start in range(0, len(order), _PAIRS_AT_ONCE):
            chunk = order[start : start + _PAIRS_AT_ONCE]
            chunk = chunk[bound[chunk] > best.score]
            if not len(chunk):
                break
            for sets, of_failed, of_all in _triples(self, self.extended[chunk], numbers, failed_left):
                consider(sets, of_failed, of_all)
        return best if np.isfinite(best.score) else None


def _triples(
    values: _Values, rows: Ints, shown: NDArray[np.float32], failed: Mask
) -> Iterator[tuple[Ints, Floats, Floats]]:
    """Yields these rows of `pairs` with a value of a later column, where at least `FEWEST` failures show all three:
    the positions of the values, int (sets, 3), and the failures and images that show them.

    Args: shown (images, values), 0 or 1; failed (images,).
    """
    of_failed = shown[failed]
    for start in range(0, len(rows), _PAIRS_AT_ONCE):
        first, second = values.pairs[rows[start : start + _PAIRS_AT_ONCE]].T
        failures = (of_failed[:, first] * of_failed[:, second]).T @ of_failed
        later = values.columns[second][:, None] < values.columns[None, :]
        pair, third = np.nonzero(later & (failures >= FEWEST))
        if len(pair):
            images = ((shown[:, first] * shown[:, second]).T @ shown)[pair, third]
            sets = np.stack([first[pair], second[pair], third], axis=1)
            yield sets, failures[pair, third].astype(np.float64), images.astype(np.float64)


def _joint_counts(shown: Mask) -> Floats:
    """Returns how many images show both of two values, float64 (values, values)."""
    as_numbers = shown.astype(np.float32)  # whole numbers up to 2^24 are exact
    counts: Floats = (as_numbers.T @ as_numbers).astype(np.float64)
    return counts


def _log_likelihood(failures: Floats, images: Floats) -> Floats:
    rate = np.divide(failures, images, out=np.zeros_like(images), where=images > 0)
    value: Floats = xlogy(failures, rate) + xlogy(images - failures, 1 - rate)
    return value


# Finds column values of labelled images that correlate with failures in one part, and counts failures in others.


TARGETS = 12
"""The most predicted labels examined per label."""

Texts = NDArray[np.object_]


@dataclass(frozen=True)
class LabelledAnswers:
    """For every labelled image of the run: its label, its columns' values (None where it has none), its part, and a
    number for its picture, the same for all copies of one. `clusters`: the number of its cluster, from 0, such as its
    camera; None where images are independent. All images of a cluster are in one part."""

    labels: Texts
    columns: Mapping[str, Texts]
    parts: Texts
    pictures: Ints
    clusters: Ints | None = None

    def without_copies(self, pictures: Ints) -> tuple[Mask, LabelledAnswers]:
        """Returns which images count, and these alone: of a picture's images with the same label and values only the
        first. All images of a picture are in the part, and the cluster, of its first one."""
        _, first, picture = np.unique(pictures, return_index=True, return_inverse=True)
        rows = zip(pictures.tolist(), self.labels.tolist(), *(c.tolist() for c in self.columns.values()), strict=True)
        seen: dict[tuple[object, ...], int] = {}
        counts = np.array([seen.setdefault(row, number) == number for number, row in enumerate(rows)], bool)
        columns = {name: values[counts] for name, values in self.columns.items()}
        parts = self.parts[first[picture]]
        clusters = None if self.clusters is None else self.clusters[first[picture]][counts]
        return counts, LabelledAnswers(self.labels[counts], columns, parts[counts], pictures[counts], clusters)

    @cached_property
    def coded(self) -> tuple[Ints, list[tuple[str, str]]]:
        """The columns' values as numbers, int64 (images, columns), -1 where an image has none; and what each number
        stands for."""
        codes, meaning = np.full((len(self.labels), len(self.columns)), -1, np.int64), list[tuple[str, str]]()
        for column, (name, values) in enumerate(self.columns.items()):
            encoded = pa.array(values.tolist(), pa.string()).dictionary_encode()
            of_column = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
            codes[:, column] = np.where(of_column < 0, -1, of_column + len(meaning))
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
        result = images.copy()
        result[shared] = False
        result[shared[first]] = True
        return result

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
class ConditionCounts:
    """Failures and images that show a condition, and those of the label's other images."""

    failures: int
    images: int
    other_failures: int
    others: int

    def is_promising(self, smallest_ratio: float) -> bool:
        """Returns whether the ratio of the rates is nearer to `smallest_ratio` than to 1, or above it."""
        usual = (self.other_failures + 0.5) / (self.others + 1)
        return self.failures >= FEWEST and self.failures > (1 + smallest_ratio) / 2 * usual * self.images


def condition_counts(answered: LabelledAnswers, condition: Condition, failed: Mask, among: Mask) -> ConditionCounts:
    """`failed`: which images fail towards the target; `among`: those of the part that have an answer."""
    of_label = answered.of_label(condition.label) & among
    shown = answered.showing(condition.values)
    inside, outside = answered.once(of_label & shown), answered.once(of_label & ~shown)
    return ConditionCounts(*(int(mask.sum()) for mask in (inside & failed, inside, outside & failed, outside)))


def clustered_condition_counts(
    answered: LabelledAnswers, condition: Condition, failed: Mask, among: Mask
) -> ClusteredSides:
    """Returns what `condition_counts` counts, by cluster."""
    assert answered.clusters is not None
    of_label = answered.of_label(condition.label) & among
    shown = answered.showing(condition.values)
    inside, outside = answered.once(of_label & shown), answered.once(of_label & ~shown)
    names, cluster = np.unique(answered.clusters[inside | outside], return_inverse=True)
    numbers = np.zeros(len(answered.labels), np.int64)
    numbers[inside | outside] = cluster
    failures, images = (
        np.stack([np.bincount(numbers[side & mask], minlength=len(names)) for side in (inside, outside)])
        for mask in (failed, np.ones(len(failed), bool))
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
    value_sets: list[ValueSet]


def conditions(answered: LabelledAnswers, label: str, failed: Mask, among: Mask, smallest_ratio: float) -> Suggested:
    """Returns the conditions of up to three columns that correlate best with failures, in the part `among`.

    `smallest_ratio`: of the rate to that of the label's other images, which is searched for. Of a picture with several
    copies one image takes part in the search; the counts that decide are those of `condition_counts`.
    """
    rows = answered.once(answered.of_label(label) & among)
    codes, meaning = answered.coded
    value_sets, search = find_value_sets(codes[rows], failed[rows], (1 + smallest_ratio) / 2)
    chosen = []
    for value_set in value_sets:
        condition = Condition(label, tuple(meaning[code] for code in value_set.codes))
        if condition_counts(answered, condition, failed, among).is_promising(smallest_ratio):
            chosen.append((condition, value_set))
    return Suggested([condition for condition, _ in chosen], search, [value_set for _, value_set in chosen])
