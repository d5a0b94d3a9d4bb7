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

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from c2b_ray.metrics.scores import Floats, Ints

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
class Found:
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


def find_value_sets(codes: Ints, failed: Mask, least_ratio: float) -> tuple[list[Found], Search]:
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
    found, left = list[Found](), np.ones(len(failed), bool)
    while len(found) < MOST_SETS and (best := values.best(left, failed, least_ratio, penalties)) is not None:
        found.append(Found(tuple(values.codes[best.at].tolist()), best.score))
        left &= ~values.shown[:, best.at].all(axis=1)
    return found, Search((singles, pairs, triples), pairs - len(values.extended), float(penalties[-1]))


@dataclass
class _Best:
    """The best set so far, as positions of its values."""

    at: Ints
    score: float = -np.inf

    def consider(self, sets: Ints, score: Floats) -> None:
        if len(score) and score[at := int(np.argmax(score))] > self.score:
            self.at, self.score = sets[at], float(score[at])


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
            known, counts = np.unique(codes[failed, column], return_counts=True)
            mine = known[(known >= 0) & (counts >= FEWEST)]
            names.append(mine)
            columns.append(np.full(len(mine), column))
        values, of = np.concatenate(names), np.concatenate(columns)
        shown = codes[:, of] == values
        failures, images = _together(shown[failed]), _together(shown)
        pairs = np.argwhere((of[:, None] < of[None, :]) & (failures >= FEWEST))
        at = tuple(pairs.T)
        most = WORK // max(len(codes) * len(values), 1)
        promise = excess(failures[at], images[at], int(failed.sum()), len(failed))
        extended = np.sort(np.argsort(-promise, kind="stable")[:most])
        return cls(values, of, shown, pairs, extended)

    def best(self, left: Mask, failed: Mask, least_ratio: float, penalties: Floats) -> _Best | None:
        """Returns the set with the greatest G - log K of those whose rate, among the images that are left, is above
        `least_ratio` times the others'."""
        shown, among = self.shown[left], failed[left]
        numbers = shown.astype(np.float32)
        whole = int(among.sum()), len(among)
        best = _Best(np.zeros(0, np.int64))

        def consider(sets: Ints, failures: Floats, images: Floats) -> None:
            usual = (whole[0] - failures + 0.5) / (whole[1] - images + 1)
            is_more = (failures >= FEWEST) & (failures > least_ratio * usual * images)
            score = excess(failures, images, *whole) - penalties[sets.shape[1] - 1]
            best.consider(sets, np.where(is_more, score, -np.inf))

        failures, images = _together(shown[among]), _together(shown)
        consider(np.arange(len(self.codes))[:, None], np.diag(failures), np.diag(images))
        at = tuple(self.pairs.T)
        consider(self.pairs, failures[at], images[at])
        support = failures[at][self.extended]
        bound = np.where(support >= FEWEST, excess(support, support, *whole) - penalties[-1], -np.inf)
        order = np.argsort(-bound, kind="stable")
        for start in range(0, len(order), _PAIRS_AT_ONCE):
            chunk = order[start : start + _PAIRS_AT_ONCE]
            chunk = chunk[bound[chunk] > best.score]
            if not len(chunk):
                break
            for sets, of_failed, of_all in _triples(self, self.extended[chunk], numbers, among):
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


def _together(shown: Mask) -> Floats:
    """Returns how many images show both of two values, float64 (values, values)."""
    as_numbers = shown.astype(np.float32)  # whole numbers up to 2^24 are exact
    counts: Floats = (as_numbers.T @ as_numbers).astype(np.float64)
    return counts


def _log_likelihood(failures: Floats, images: Floats) -> Floats:
    rate = np.divide(failures, images, out=np.zeros_like(images), where=images > 0)
    value: Floats = xlogy(failures, rate) + xlogy(images - failures, 1 - rate)
    return value
