"""Simulates labelled images that come in clusters: measures the coverage of φ's intervals, and false findings.

    python bench/clusters.py [--runs 400] [--seed 100011] [--cells]

A run has two or three values of one attribute, of equal accuracy or not. Images of one cluster share a draw of the
accuracy from a beta distribution with the intraclass correlation ICC. An attribute is constant within a cluster (each
camera shows one value), or varies (half and half, or mostly one), and then clusters shift its values together, or each
by itself. False findings are those of the test of φ = 0 at .05 where all values are equally accurate, without a margin.

Each line is the mean over the rest of the grid. `independent` is the interval without `cluster`. Runs without a result,
in which one cluster has all images of a value, are counted in `unknown` and left out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from c2b_ray.stats.clusters import LEAST_DEGREES, cluster_design
from c2b_ray.stats.contrasts import contrast_interval, contrast_p_values

Floats = NDArray[np.float64]
KINDS = "constant", "crossed", "crossed, by value", "crossed, mostly one"


class Setting(NamedTuple):
    icc: float
    clusters: int
    sizes: str
    kind: str
    accuracy: float
    images: int  # a cluster
    values: int
    gap: float


def settings() -> Iterator[Setting]:
    grid = product((0.02, 0.05, 0.1, 0.2), (5, 10, 20, 50), ("equal", "unequal"), KINDS, (0.5, 0.8, 0.95, 0.98))
    for number, (icc, clusters, sizes, kind, accuracy) in enumerate(grid):
        gap = 0.1 if number % 2 and accuracy < 0.98 else 0.0
        for images, values in ((20, 2), (6, 2), (20, 3)):
            yield Setting(icc, clusters, sizes, kind, accuracy, images, values, gap)


def simulated(s: Setting, runs: int, random: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Returns right answers and images (runs, values, clusters), and the values' true accuracies."""
    true = np.full(s.values, s.accuracy)
    true[0] -= s.gap
    whole = np.full((runs, s.clusters), s.images)
    if s.sizes == "unequal":  # sizes differ by a factor of ten and more
        whole = np.maximum(np.round(s.images * random.lognormal(-0.4, 0.9, whole.shape)), 1).astype(np.int64)
    main = np.arange(s.clusters) % s.values
    main = random.permuted(np.tile(main, (runs, 1)), axis=1)
    share = {"constant": 1.0, "crossed, mostly one": 0.8}.get(s.kind, 1 / s.values)
    chances = np.where(np.arange(s.values) == main[..., None], share, (1 - share) / (s.values - 1))
    n = np.moveaxis(random.multinomial(whole, chances), -1, 1)
    shape = 1 / s.icc - 1
    if s.kind == "crossed, by value":
        rates = random.beta(true[:, None] * shape, (1 - true[:, None]) * shape, n.shape)
    else:  # one quantile of a cluster, for all its values
        shared = random.random((runs, 1, s.clusters))
        rates = betaincinv(true[:, None] * shape, (1 - true[:, None]) * shape, shared)
    return random.binomial(n, rates).astype(np.float64), n.astype(np.float64), true


def measured(s: Setting, runs: int, random: np.random.Generator) -> dict[str, float]:
    right, n, true = simulated(s, runs, random)
    held = (n.sum(axis=2) > 0).all(axis=1)
    right, n = right[held], n[held]
    correct, total = right.sum(axis=2), n.sum(axis=2)
    weights = np.where(np.arange(s.values) == 0, 1.0, -1 / (s.values - 1))[None]
    phi, smooth = float(weights[0] @ true), (correct + 0.5) / (total + 1)
    design = cluster_design(right, n, smooth * (1 - smooth), np.broadcast_to(weights, (len(n), 1, s.values)))
    known = design.degrees[:, 0] > LEAST_DEGREES
    counts = correct[:, None], total[:, None], np.broadcast_to(weights, (len(n), 1, s.values))
    result = {"unknown": 1 - known.sum() / runs}
    if known.mean() < 0.1:  # too few runs for a share
        return result
    for name, given in (("independent", None), ("clustered", design)):
        low, high = (limits[known, 0] for limits in contrast_interval(*counts, design=given))
        result[name] = float(((low <= phi) & (phi <= high)).mean())
        result[f"width {name}"] = float((high - low).mean())
        if not s.gap:
            result[f"false {name}"] = float((contrast_p_values(*counts, design=given)[known, 0] <= 0.05).mean())
    return result


def show(title: str, rows: list[tuple[Setting, dict[str, float]]], key: Callable[[Setting], object]) -> None:
    for group in dict.fromkeys(key(setting) for setting, _ in rows):
        chosen = [row for setting, row in rows if key(setting) == group]
        names = list(dict.fromkeys(name for row in chosen for name in row))
        means = {name: float(np.nanmean([row[name] for row in chosen if name in row])) for name in names}
        held = [row["clustered"] for row in chosen if "clustered" in row]
        numbers = "  ".join(f"{name} {value:.3f}" for name, value in means.items())
        print(f"{title} {group!s:22} {numbers}  worst {min(held):.3f}  most {max(held):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400, help="of each setting")
    parser.add_argument("--seed", type=int, default=100_011)
    parser.add_argument("--cells", action="store_true", help="print each setting too")
    args = parser.parse_args()
    began, random = time.process_time(), np.random.default_rng(args.seed)
    rows = [(setting, measured(setting, args.runs, random)) for setting in settings()]
    if args.cells:
        for setting, row in rows:
            print(*setting, *(f"{name} {value:.3f}" for name, value in row.items()))
    show("all", rows, lambda s: "")
    for field in Setting._fields:
        show(field, rows, lambda s, field=field: getattr(s, field))  # type: ignore[misc]
    print(json.dumps({"runs": args.runs, "seed": args.seed, "cpu_s": round(time.process_time() - began)}))


if __name__ == "__main__":
    main()
