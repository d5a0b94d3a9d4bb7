"""Simulates comparisons of two equally good classifiers on captions that differ: how many report a change.

    python bench/null_comparisons.py [--comparisons 100] [--seed 47] [--gain 0.15]

The cells of `null_audits.py`: 18, with 200 images each. Over all captions that might have been drawn, both classifiers
are right equally often on every cell. On a single caption either may be better: their accuracies on it lie about the
cell's, independently. A comparison should report no cell, and no value over all classes, as better or worse. Where B
gains `--gain` in every cell, the script prints the share of cells that it reports, and of intervals that hold the gain.
"""

import argparse

import numpy as np
from null_audits import answers, captions_and_draws

from c2b_ray.audits.c2b.scoring.comparison import ComparisonSide, SharedImages, compare, compare_pooled

CHANGED = {"better", "worse"}
LEVELS = 0.05, 0.05  # tau, alpha


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--seed", type=int, default=47)
    parser.add_argument("--gain", type=float, default=0.15)
    asked = parser.parse_args()
    for count in (1, 2, 5):
        captions, draws = captions_and_draws(count)
        for spread in (0.0, 0.05, 0.15):
            random = np.random.default_rng([asked.seed, count, round(100 * spread)])
            changed = pooled = 0
            found, held = [], []
            for _ in range(asked.comparisons):
                level = random.uniform(0.45, 0.6)
                a, b, better = (
                    ComparisonSide(captions, draws, answers(random, captions, draws, spread, accuracy), "m")
                    for accuracy in (level, level, level + asked.gain)
                )
                alike, apart = SharedImages(a, b), SharedImages(a, better)
                changed += bool(CHANGED & set(compare(alike, *LEVELS)["change"].to_pylist()))
                pooled += bool(CHANGED & set(compare_pooled(alike, *LEVELS)["change"].to_pylist()))
                rows = compare(apart, *LEVELS).to_pylist()
                found += [row["change"] == "better" for row in rows]
                held += [row["difference_low"] <= asked.gain <= row["difference_high"] for row in rows]
            print(
                f"{count} captions a cell, SD {spread:.2f}: with a change {changed}, over all classes {pooled} of "
                f"{asked.comparisons}; of gains found {np.mean(found):.3f}, intervals hold {np.mean(held):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
