"""Simulates tables with known bad cells: counts false interactions, and planted ones that are found.

    python bench/intersections.py [--tables N] [--images N] [--seed S]

Every table has random effects of both attributes (standard deviation .03). Some tables also have a bad row (-.4), one
bad cell (-.4), or two bad cells in different rows and columns. Cells have between N/2 and N images. Each table is a
family of its own.
"""

from __future__ import annotations

import argparse

import numpy as np

from c2b_ray.stats import Crossed, Floats, crossed
from c2b_ray.stats.interaction import separated

SHAPES = ((2, 2), (2, 3), (3, 3), (3, 4), (4, 5))
KINDS = ("nothing", "a row", "a cell", "two cells")
TAU = ALPHA = 0.05


def made(
    random: np.random.Generator, shape: tuple[int, int], kind: str, base: float, most: int
) -> tuple[Crossed, set[int]]:
    """Returns a table and the numbers of its bad cells, in row-major order."""
    truth: Floats = base + random.normal(0, 0.03, (shape[0], 1)) + random.normal(0, 0.03, shape[1])
    if kind == "a row":
        truth[random.integers(shape[0])] -= 0.4
    count = {"a cell": 1, "two cells": 2}.get(kind, 0)
    down, across = random.permutation(shape[0])[:count], random.permutation(shape[1])[:count]
    truth[down, across] -= 0.4
    total = random.integers(most // 2, most + 1, shape)
    bad = {int(i * shape[1] + j) for i, j in zip(down, across, strict=True)}
    return crossed(random.binomial(total, np.clip(truth, 0, 1)), total), bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seed", type=int, default=100_000)
    asked = parser.parse_args()
    print(f"{'accuracy':>8} {'table':>6} {'planted':>10} {'false discovery rate':>21} {'found':>6}")
    for base in (0.75, 0.9, 0.97):
        for shape in SHAPES:
            for kind in KINDS:
                if kind == "two cells" and shape == (2, 2):
                    continue  # in a 2 × 2 table, such two bad cells are a single interaction
                random = np.random.default_rng([asked.seed, int(100 * base), *shape, KINDS.index(kind)])
                rates, planted, hit = [], 0, 0
                for _ in range(asked.tables):
                    table, bad = made(random, shape, kind, base, asked.images)
                    (result,) = separated([table], TAU, ALPHA)
                    told = set(np.flatnonzero(result.findings).tolist())
                    rates.append(len(told - bad) / max(len(told), 1))
                    planted, hit = planted + len(bad), hit + len(told & bad)
                found = f"{hit / planted:.2f}" if planted else "-"
                print(
                    f"{base:8.2f} {shape[0]:>3}x{shape[1]:<2} {kind:>10} {np.mean(rates):21.3f} {found:>6}", flush=True
                )


if __name__ == "__main__":
    main()
