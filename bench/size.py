"""Computes size, power and coverage of the tests of bias scores exactly, by enumeration of all outcomes.

    python bench/size.py [--fine]

Two cells have 20 to 400 images each, of equal and of different number. Their true accuracies lie between .5 and 1 and
differ by exactly tau = .05 (either cell may be the better one) or are equal (tau = 0).

Size: the largest P(p <= a)/a of `bias_score_p_values`, for a = .05, .001 and 1e-4, and of `equivalence_p_values`.
Power: for accuracies of .80 and .65 with 100 images a cell, at tau = .05. Coverage: the least and the mean coverage of
95 % intervals of `bias_score_interval`, for true differences of 0 to .2. With `--fine`, every number from 20 to 60 is
also paired with itself, and accuracies have steps of .005; this takes about five minutes.
"""

from __future__ import annotations

import argparse
from itertools import combinations_with_replacement

import numpy as np
from scipy.stats import binom

from c2b_ray import stats

LEVELS = (0.05, 0.001, 1e-4)
SIZES = (20, 21, 23, 25, 30, 40, 50, 75, 100, 200, 400)
Worst = tuple[float, tuple[int, int], tuple[float, float]]


def outcomes(sizes: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns all pairs of counts of right answers, (outcomes, 2), and the totals."""
    grid = np.stack(np.meshgrid(*(np.arange(n + 1) for n in sizes), indexing="ij"), axis=-1).reshape(-1, 2)
    return grid, np.broadcast_to(np.array(sizes), grid.shape)


def chance(event: np.ndarray, sizes: tuple[int, int], accuracies: tuple[float, float]) -> float:
    """Returns the probability of the outcomes for which `event` (outcomes,) is true."""
    first, second = (
        binom.pmf(np.arange(n + 1), n, min(max(a, 0.0), 1.0)) for n, a in zip(sizes, accuracies, strict=True)
    )
    return float(first @ event.reshape(len(first), len(second)) @ second)


def edges(tau: float, accuracies: np.ndarray) -> list[tuple[float, float]]:
    """Returns true accuracies of two cells with |phi| = tau, all between .45 and 1."""
    return [pair for a in accuracies for pair in {(a, a - tau), (a - tau, a)} if min(pair) > 0.449]


def worst_sizes(pairs: list[tuple[int, int]], tau: float, accuracies: np.ndarray, none: bool) -> dict[float, Worst]:
    worst: dict[float, Worst] = dict.fromkeys(LEVELS, (0.0, (0, 0), (0.0, 0.0)))
    test = stats.equivalence_p_values if none else stats.bias_score_p_values
    for sizes in pairs:
        p = test(*outcomes(sizes), tau)[:, 0]
        for pair in edges(tau, accuracies):
            for level in LEVELS:
                worst[level] = max(worst[level], (chance(p <= level, sizes, pair) / level, sizes, pair))
    return worst


def coverage(sizes: tuple[int, int], accuracies: np.ndarray) -> list[float]:
    low, high = (limits[:, 0] for limits in stats.bias_score_interval(*outcomes(sizes)))
    held = []
    for gap in (0.0, 0.05, 0.1, 0.2):
        for pair in edges(gap, accuracies):
            truth = pair[0] - pair[1]
            held.append(chance((low <= truth + 1e-12) & (high >= truth - 1e-12), sizes, pair))
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fine", action="store_true")
    fine = parser.parse_args().fine
    accuracies = np.round(np.r_[np.arange(0.5, 1.0001, 0.005 if fine else 0.02), 0.95, 0.97, 0.99, 0.995, 0.999], 4)
    pairs = list(combinations_with_replacement(SIZES, 2))
    if fine:
        pairs += [(n, n) for n in range(20, 61)]
    for tau in (0.05, 0.0):
        for level, (ratio, sizes, pair) in worst_sizes(pairs, tau, accuracies, none=False).items():
            where = f"{sizes[0]} and {sizes[1]} images, accuracies {pair[0]:.3f} and {pair[1]:.3f}"
            print(f"size, tau = {tau}: worst P(p <= {level:g})/{level:g} = {ratio:.2f}  ({where})", flush=True)
    for level, (ratio, sizes, _) in worst_sizes(pairs, 0.05, accuracies, none=True).items():
        print(f"size of none, tau = 0.05: worst P(p <= {level:g})/{level:g} = {ratio:.2f}  ({sizes})", flush=True)
    for n, better, worse in ((100, 0.80, 0.65), (50, 0.95, 0.80), (200, 0.80, 0.65)):
        p = stats.bias_score_p_values(*outcomes((n, n)), 0.05)[:, 0]
        power = chance(p <= 0.05, (n, n), (better, worse))
        print(f"power, {n} images a cell, {better:.2f} against {worse:.2f}, tau = 0.05, level .05: {power:.3f}")
    held = [value for sizes in pairs if max(sizes) <= 200 for value in coverage(sizes, accuracies[::2])]
    print(f"coverage of 95 % intervals: least {min(held):.3f}, mean {np.mean(held):.3f}")


if __name__ == "__main__":
    main()
