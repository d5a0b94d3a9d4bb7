"""Simulates numbers that are cut into values: into how many, at which shares, and within a class or over all of them.

    python bench/property_cuts.py [--runs 100] [--seed 100003]

A run has 10 classes of 150, 300 or 600 images and 12 independent numbers of each image. Classes differ in the mean of
each number by `spread` standard deviations. In one class the images with the lowest `share` of one number (10, 15 or
25 %) are right 40 % of the time, and all others 90 %. The numbers are cut without a look at an answer, and every
class, number and value is tested in one family, as an audit does. `found`: of the runs, the share in which a value of
the planted number has a finding in the planted class. `true`: of all findings, the share whose true φ, that of the
accuracies behind these very images, lies beyond τ on the same side. `control`: findings a run where nothing is planted.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

import numpy as np
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.stats.clustering import assigned, quantile_edges
from c2b_ray.stats.contrasts import contrast_p_values

CLASSES, NUMBERS, TAU, ALPHA = 10, 12, 0.05, 0.05
RIGHT, FAILING = 0.9, 0.4
SCHEMES = {
    "thirds": (1 / 3, 2 / 3),
    "20/60/20": (0.2, 0.8),
    "25/50/25": (0.25, 0.75),
    "10/80/10": (0.1, 0.9),
    "quintiles": (0.2, 0.4, 0.6, 0.8),
}
Floats = NDArray[np.float64]


def cut(x: Floats, shares: tuple[float, ...], within: bool) -> NDArray[np.int64]:
    """Returns the value of each image (classes, images, numbers)."""
    if not within:
        flat = x.reshape(-1, NUMBERS)
        return np.stack(
            [assigned(flat[:, k], quantile_edges(flat[:, k], shares)).reshape(x.shape[:2]) for k in range(NUMBERS)], -1
        )
    return np.stack(
        [np.stack([assigned(c[:, k], quantile_edges(c[:, k], shares)) for k in range(NUMBERS)], -1) for c in x]
    )


def findings(values: NDArray[np.int64], rates: Floats, right: NDArray[np.bool_], count: int) -> tuple[Floats, Floats]:
    """Returns the sign of each finding, 0 for none, and the true φ; (classes, numbers, values)."""
    one_hot = values[..., None] == np.arange(count)
    total = one_hot.sum(axis=1)
    correct, expected = ((one_hot * of[:, :, None, None]).sum(axis=1) for of in (right, rates))
    sign, true = np.zeros(total.shape), np.full(total.shape, np.nan)
    p = np.full(total.shape, np.nan)
    for held in {tuple(row) for row in (total > 0).reshape(-1, count)}:
        at = np.flatnonzero(held)
        if len(at) < 2:
            continue
        here = ((total > 0) == held).all(axis=-1)
        weights = np.eye(len(at)) - (1 - np.eye(len(at))) / (len(at) - 1)
        c, n = correct[here][:, at], total[here][:, at]
        block = np.stack([contrast_p_values(c, n, np.broadcast_to(w, c.shape), TAU) for w in weights], -1)
        rows = np.argwhere(here)
        for j, value in enumerate(at):
            index = (*rows.T, value)
            p[index] = block[:, j]
            true[index] = (expected[here][:, at] / n) @ weights[j]
            sign[index] = np.sign((c / n) @ weights[j])
    q = stats.benjamini_hochberg(p.ravel()).reshape(p.shape)
    with np.errstate(invalid="ignore"):
        return np.where(q <= ALPHA, sign, 0.0), true


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=100_003)
    args = parser.parse_args()
    began = time.process_time()
    print(
        "images spread within  scheme     " + "".join(f"found({s:.0%}) " for s in (0.1, 0.15, 0.25)) + " true   control"
    )
    for images, spread, within in product((150, 300, 600), (0.0, 1.0), (True, False)):
        for name, shares in SCHEMES.items():
            found, kept, good = {}, 0, 0
            for share in (0.1, 0.15, 0.25, 0.0):
                random = np.random.default_rng([args.seed, images, int(spread * 10)])  # the same images for each scheme
                hits = 0
                for _ in range(args.runs):
                    x = random.normal(size=(CLASSES, images, NUMBERS)) + spread * random.normal(
                        size=(CLASSES, 1, NUMBERS)
                    )
                    rates = np.full((CLASSES, images), RIGHT)
                    rates[0, np.argsort(x[0, :, 0])[: round(share * images)]] = FAILING
                    right = random.random(rates.shape) < rates
                    sign, true = findings(cut(x, shares, within), rates, right, len(shares) + 1)
                    if share:
                        kept += int((sign != 0).sum())
                        good += int(((sign != 0) & (sign * true > TAU)).sum())
                        hits += bool((sign[0, 0] * true[0, 0] > TAU).any())
                    else:
                        hits += int((sign != 0).sum())
                found[share] = hits / args.runs
            row = "".join(f"{found[s]:10.2f} " for s in (0.1, 0.15, 0.25))
            true = good / max(kept, 1)
            print(
                f"{images:6d} {spread:6.1f} {within!s:6s}  {name:10s} {row} {true:6.3f} {found[0.0]:7.2f}", flush=True
            )
    print(f"{time.process_time() - began:.0f} s of a CPU")


if __name__ == "__main__":
    main()
