"""Cuts numbers into a few ordered values, without a look at anything but the numbers.

Edges are quantiles of the numbers. As no answer of a classifier takes part, a test of the values is as valid as one of
values that somebody wrote down: the cut is a function of the images alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.stats.scores import Floats, Ints

__all__ = ["assigned", "quantile_edges", "shortest_between"]

LEAST_SHARE = 0.05
"""The least share of the numbers between two edges, or beyond one: the few images of a smaller part would weigh as much
in what others are compared with as all of another part."""


def quantile_edges(numbers: ArrayLike, shares: Sequence[float]) -> Floats:
    """Returns edges, ascending, at which the numbers are cut: a number below an edge is on its lower side.

    `numbers`: (n,), finite or NaN, which is left out. `shares`: ascending, in (0, 1): the intended share of the numbers
    below each edge. Equal numbers are never separated, so an edge lies between the two distinct numbers where the share
    below it is nearest to the intended one: pictures of two widths are cut between these. An edge is left out where a
    part would hold less than `LEAST_SHARE` of the numbers. Each edge is the decimal number of fewest digits between its
    two neighbours, so that what a report prints is what was used. Without edges, the numbers are too alike to be
    compared: (0,). So for no numbers.

    Raises ValueError where `shares` are not ascending within (0, 1), or a number is infinite.
    """
    targets = np.asarray(shares, np.float64)
    if not (np.all(np.diff(targets) > 0) and np.all((targets > 0) & (targets < 1))):
        raise ValueError(f"shares must ascend within (0, 1), not {list(shares)}")
    x = np.asarray(numbers, np.float64)
    x = x[~np.isnan(x)]
    if not np.isfinite(x).all():
        raise ValueError("numbers must be finite, or NaN where there is none")
    distinct, counts = np.unique(x, return_counts=True)
    if len(distinct) < 2:
        return np.zeros(0)
    shares_below = np.cumsum(counts)[:-1] / len(x)
    edge_indices: list[int] = []
    for share in targets:
        i_edge = int(np.argmin(np.abs(shares_below - share)))
        last_share = shares_below[edge_indices[-1]] if edge_indices else 0.0
        if min(shares_below[i_edge] - last_share, 1 - shares_below[i_edge]) >= LEAST_SHARE - 1e-12:
            edge_indices.append(i_edge)
    return np.array([shortest_between(distinct[i], distinct[i + 1]) for i in edge_indices], np.float64)


def assigned(numbers: ArrayLike, edges: ArrayLike) -> Ints:
    """Returns the number of edges at or below each number, 0 to len(edges); −1 for NaN. Shape of `numbers`, int64."""
    x = np.asarray(numbers, np.float64)
    places: NDArray[np.int64] = np.searchsorted(np.asarray(edges, np.float64), x, side="right").astype(np.int64)
    return np.where(np.isnan(x), -1, places)


def shortest_between(low: float, high: float) -> float:
    """Returns the decimal number x of fewest decimal places with low < x ≤ high, the one nearest to their middle.

    Raises ValueError unless low < high.
    """
    if not low < high:
        raise ValueError(f"nothing lies above {low} and up to {high}")
    exact_low, exact_high = Decimal(float(low)), Decimal(float(high))
    middle = (exact_low + exact_high) / 2
    for places in range(-max(0, exact_high.copy_abs().adjusted()), 18):
        unit = Decimal(1).scaleb(-places)
        first = (exact_low / unit).to_integral_value(ROUND_CEILING) * unit
        first = first + unit if first == exact_low else first
        if first > exact_high:
            continue
        steps = max(Decimal(0), ((middle - first) / unit).to_integral_value())
        candidate = first + steps * unit
        candidate = candidate if candidate <= exact_high else first
        if low < float(candidate) <= high:
            return float(candidate)
    return float(high)
