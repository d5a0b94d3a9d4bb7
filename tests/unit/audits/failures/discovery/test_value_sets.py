"""The search over sets of values is exact, and a longer set must explain more than the shorter ones."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom

from c2b_ray.audits.failures.discovery.value_sets import FEWEST, MOST_SETS, excess, find_value_sets


def coded(random, images, sizes):
    """Values of columns: numbers of their own for each column, and -1 for some."""
    first = np.cumsum([0, *sizes[:-1]])
    codes = np.stack([random.integers(size, size=images) + at for size, at in zip(sizes, first, strict=True)], axis=1)
    return np.where(random.random(codes.shape) < 0.1, -1, codes)


def every_set(codes, failed):
    """All sets of up to three columns that at least two failures show, with the images that show each."""
    sets = {}
    for depth in (1, 2, 3):
        for columns in combinations(range(codes.shape[1]), depth):
            for values in {tuple(row) for row in codes[:, columns].tolist() if -1 not in row}:
                shown = (codes[:, columns] == values).all(axis=1)
                if (shown & failed).sum() >= FEWEST:
                    sets[values] = shown
    return sets


@pytest.mark.parametrize("seed", range(8))
def test_the_best_set_is_the_best_of_all(seed):
    random = np.random.default_rng(seed)
    codes = coded(random, 400, (2, 3, 3, 4, 2))
    cause = (codes[:, 0] == 1) & (codes[:, 1] == 2) & (codes[:, 3] == 9)
    failed = random.random(400) < np.where(cause, 0.7, 0.1)
    found, search = find_value_sets(codes, failed, 1.5)
    sets = every_set(codes, failed)
    counts = [sum(len(values) == depth for values in sets) for depth in (1, 2, 3)]
    assert search.tried == tuple(counts)
    penalties = np.log(np.cumsum(counts))
    scores = {}
    for values, shown in sets.items():
        others = (failed & ~shown).sum() + 0.5, (~shown).sum() + 1
        if (failed & shown).sum() > 1.5 * others[0] / others[1] * shown.sum():
            of_set = excess((failed & shown).sum(), shown.sum(), failed.sum(), len(failed))
            scores[values] = float(of_set) - penalties[len(values) - 1]
    assert found[0].codes == max(scores, key=scores.get)
    assert found[0].excess == pytest.approx(max(scores.values()), abs=1e-6)


def test_excess_is_a_log_likelihood_ratio():
    best, same = (
        binom.logpmf(9, 30, p) + binom.logpmf(6, 170, q) for p, q in ((9 / 30, 6 / 170), (15 / 200, 15 / 200))
    )
    assert float(excess(9, 30, 15, 200)) == pytest.approx(best - same)
    assert excess([1, 0, 5], [20, 0, 5], [20, 3, 5], [200, 9, 5]).tolist() == [0, 0, 0]  # less often, none, all


def test_a_cause_of_three_values_is_found_once_and_nothing_else_beside_it():
    random = np.random.default_rng(3)
    codes = coded(random, 2000, (2, 2, 3, 4))
    cause = (codes[:, 0] == 0) & (codes[:, 1] == 3) & (codes[:, 2] == 5)
    failed = random.random(2000) < np.where(cause, 0.6, 0.001)
    found, _ = find_value_sets(codes, failed, 1.5)
    assert found[0].codes == (0, 3, 5)
    assert not [one for one in found[1:] if one.excess > 0]


def test_two_causes_are_found_one_after_the_other():
    random = np.random.default_rng(4)
    codes = coded(random, 2000, (2, 4, 4))
    failed = (random.random(2000) < 0.8) & ((codes[:, 1] == 2) | ((codes[:, 0] == 1) & (codes[:, 2] == 6)))
    found, _ = find_value_sets(codes, failed, 1.5)
    assert [one.codes for one in found[:2]] == [(2,), (1, 6)]
    assert len(found) <= MOST_SETS


def test_without_failures_or_columns_nothing_is_found():
    codes = coded(np.random.default_rng(0), 50, (2, 3))
    assert find_value_sets(codes, np.zeros(50, bool), 1.5)[0] == []
    assert find_value_sets(np.zeros((50, 0), np.int64), np.ones(50, bool), 1.5)[0] == []
    assert find_value_sets(codes[:0], np.zeros(0, bool), 1.5)[1].tried == (0, 0, 0)
