"""Simulates how often the number of images that an audit asks for (`images_to_settle`) settles a cell; .8 is promised.

    PYTHONPATH=. python bench/settling.py [--cases 300] [--samples 1500] [--seed 100000]

Each case has 2 to 5 values with accuracies drawn at random, near 1 as often as not, of which 20, 100 or 1,000 images
were seen; tau and alpha are drawn too. The accuracies seen are the truth; as many images as asked for are drawn anew.
Cases where all accuracies are 0 or 1 hold no chance, and are drawn again.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from c2b_ray.stats import bias_score_p_values, bias_scores, equivalence_p_values, images_to_settle

SEEN = (20, 100, 1000)
MOST = 20_000


def case(rng: np.random.Generator, seen: int) -> tuple[np.ndarray, float, float]:
    """Returns right answers, tau and alpha."""
    values = int(rng.integers(2, 6))
    level = 1 - rng.exponential(0.08) if rng.random() < 0.5 else rng.uniform(0.3, 1.0)
    accuracy = np.full(values, level) + rng.normal(0, 0.01, values)
    if rng.random() < 0.6:
        accuracy[0] -= rng.uniform(0.05, 0.4)
    correct = np.round(np.clip(accuracy, 0.02, 1.0) * seen).astype(np.int64)
    return correct, float(rng.choice([0.0, 0.02, 0.05, 0.1])), float(rng.choice([0.05, 0.01, 0.001]))


def settled(correct: np.ndarray, seen: int, n: int, levels: tuple[float, float], draws: np.ndarray) -> float:
    tau, alpha = levels
    phi, total = bias_scores(correct, np.full(len(correct), seen))[0], np.full(draws.shape, n)
    if abs(phi) <= tau:
        return float((equivalence_p_values(draws, total, tau)[:, 0] <= alpha).mean())
    same_way = bias_scores(draws, total)[:, 0] * phi > 0
    return float((same_way & (bias_score_p_values(draws, total, tau)[:, 0] <= alpha)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--samples", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=100_000)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    for seen in SEEN:
        chances = []
        while len(chances) < arguments.cases:
            correct, tau, alpha = case(rng, seen)
            n = int(images_to_settle(correct, np.full(len(correct), seen), tau, alpha)[0])
            if 0 < n <= MOST and ((correct > 0) & (correct < seen)).any():
                draws = rng.binomial(n, correct / seen, (arguments.samples, len(correct)))
                chances.append(settled(correct, seen, n, (tau, alpha), draws))
        least, tenth, middle, ninth, most = np.quantile(chances, [0, 0.1, 0.5, 0.9, 1]).round(2).tolist()
        told = {"least": least, "tenth": tenth, "median": middle, "ninth_tenth": ninth, "most": most}
        print(json.dumps({"seen": seen, **told, "below_.7": round(float(np.mean(np.array(chances) < 0.7)), 3)}))
    counts = rng.integers(50, 100, (1000, 4))
    began = time.process_time()
    images_to_settle(counts, np.full(counts.shape, 100), 0.05)
    print(json.dumps({"cpu_s_of_4000_cells": round(time.process_time() - began, 2)}))


if __name__ == "__main__":
    main()
