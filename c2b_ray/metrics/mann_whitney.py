"""Whether the values of one group of runs tend to be larger than those of another: the test of Mann & Whitney.

Knows values only. Wiles et al. 2022 (App. B, Table 6) compare the failure rates of ten runs of a caption with ten of
the baseline and print p = 6.34e-5: the normal approximation, corrected for ties and continuity, where all ten baseline
rates are 0, all of the caption's are larger and two of them are equal (their other one, 0.00015, is that of six
baseline rates of 0). Here the default is exact, ties or not: 1.08e-5.
"""

from __future__ import annotations

from math import comb
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.metrics.scores import Floats, Ints

__all__ = ["Alternative", "MannWhitney", "mann_whitney"]

Alternative = Literal["two-sided", "greater", "less"]

MOST_EXACT = 60  # values a side: a tenth of a second


class MannWhitney(NamedTuple):
    """The test's result. u: pairs (x, y) with x > y, a tie counting half, in [0, len(x) * len(y)]; p_value in
    [0, 1]."""

    u: float
    p_value: float
    method: Literal["exact", "asymptotic"]


def mann_whitney(
    x: ArrayLike,
    y: ArrayLike,
    alternative: Alternative = "two-sided",
    method: Literal["exact", "asymptotic"] = "exact",
) -> MannWhitney:
    """Performs Mann & Whitney's (1947) test of two groups of values.

    u = number of pairs (i, j) with x_i > y_j, plus half the number of those with x_i = y_j

    exact: the share of the ways to deal all the values into groups of these sizes whose u is as far out (Pitman 1937's
    permutation test), so ties need no correction and p is never below 1/C(len(x) + len(y), len(x)); two-sided p is
    twice the smaller one-sided p, at most 1, as SciPy's. asymptotic: SciPy's normal approximation, corrected for ties
    and for continuity, which is what the paper's 6.34e-5 is.

    Args: x, y: finite floats, one-dimensional, one or more each, 60 a side at most when exact. alternative "greater": x
    tends to be larger.
    Returns: `MannWhitney`. All values equal: p = 1.
    Raises: ValueError for another shape, for values that are not finite, or too many of them.
    """
    from scipy import stats  # not above: it takes a second of a core to import, and few runs get here

    first, second = _checked("x", x), _checked("y", y)
    if method == "asymptotic":
        if np.ptp(np.concatenate([first, second])) == 0:
            return MannWhitney(first.size * second.size / 2, 1.0, method)
        test = stats.mannwhitneyu(first, second, use_continuity=True, alternative=alternative, method="asymptotic")
        return MannWhitney(float(test.statistic), float(test.pvalue), method)
    if max(first.size, second.size) > MOST_EXACT:
        raise ValueError(
            f"{first.size} and {second.size} values: an exact test takes at most {MOST_EXACT} a side; "
            'use method="asymptotic"'
        )
    ranks = np.rint(2 * stats.rankdata(np.concatenate([first, second]))).astype(np.int64)
    doubled = int(ranks[: first.size].sum())
    below, above = _tails(ranks, first.size, doubled)
    p = {"less": below, "greater": above, "two-sided": min(1.0, 2 * min(below, above))}[alternative]
    return MannWhitney((doubled - first.size * (first.size + 1)) / 2, p, method)


def _tails(ranks: Ints, size: int, total: int) -> tuple[float, float]:
    """Computes P(sum <= total) and P(sum >= total) for the sum of the ranks of `size` values picked at random.

    ways[k, s]: how many ways there are to pick k of the ranks so far with sum s; whole numbers up to 2^53, beyond it to
    fifteen digits.
    """
    ways = np.zeros((size + 1, int(ranks.sum()) + 1))
    ways[0, 0] = 1
    for rank in ranks.tolist():
        ways[1:, rank:] += ways[:-1, :-rank].copy()
    everything = comb(len(ranks), size)
    below, above = float(ways[size, : total + 1].sum()), float(ways[size, total:].sum())
    return min(1.0, below / everything), min(1.0, above / everything)


def _checked(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise ValueError(f"{name} must be one or more finite values in one dimension, got {array.tolist()}")
    return array
