"""Counts images until verdicts are settled: drawing until the evidence suffices, against one size for all cells.

    python bench/sequential.py [--truth N] [--most N …] [--every N] [--seed S]

The population is the world's zoo: the accuracies of all cells of all classifiers, measured on N fresh scenes of each
class, count as the truth. The script draws right and wrong answers from them, in rounds of one image for each cell of
an attribute.

Sequential: a group of cells is tested every `STEP` rounds and ends when each of its cells is settled, or after `--most`
rounds. Fixed: every cell gets n images and the verdicts of `stats.verdicts`; n is the smallest number at which as
many cells have the right verdict (`for`/`against` where true |φ| > τ, `none` elsewhere) as in the sequential test. That
share of cells is the power.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from c2b_ray import stats
from c2b_ray.models import catalog
from c2b_ray.stats.sequential import joined
from c2b_ray.world.truth import true_accuracies
from c2b_ray.world.zoo import ZOO

TAU, ALPHA, STEP = 0.05, 0.05, 10
Groups = list[np.ndarray]


def population(scenes: int, every: int, cache: Path | None) -> list[Groups]:
    """Returns the accuracies of each attribute's cells, for each classifier."""
    if cache is not None and cache.exists():
        tables = json.loads(cache.read_text())
    else:
        names = [f"world:{name}" for name in ZOO]
        found = true_accuracies({name: catalog.classifier(name) for name in names}, scenes, 1_100_001)
        tables = {name: table.to_pylist() for name, table in found.items()}
        if cache is not None:
            cache.write_text(json.dumps(tables))
    several = []
    for rows in list(tables.values())[::every]:
        groups: dict[tuple[str, str], list[float]] = defaultdict(list)
        for row in rows:
            groups[row["target_class"], row["attribute"]].append(row["correct"] / row["total"])
        several.append([np.array(group) for group in groups.values()])
    return several


def true_scores(accuracies: np.ndarray) -> np.ndarray:
    return accuracies - (accuracies.sum() - accuracies) / (len(accuracies) - 1)


def right(verdicts: list[str], truth: np.ndarray) -> np.ndarray:
    expected = np.where(truth > TAU, "for", np.where(truth < -TAU, "against", "none"))
    return np.array(verdicts) == expected


def sequential(groups: Groups, most: int, random: np.random.Generator) -> tuple[np.ndarray, float, float]:
    """Returns which cells have the right verdict, the mean images per cell, and the share of wrong claims."""
    paths = [stats.evidence_paths(random.random((most, len(group))) < group, TAU, STEP) for group in groups]
    looks, ends = np.ones(len(groups), int), np.cumsum([len(group) for group in groups])

    def verdicts() -> list[str]:
        now = joined([path[at - 1] for path, at in zip(paths, looks, strict=True)])
        return stats.sequential_verdicts(now, TAU, ALPHA)

    still = range(len(groups))
    while still:
        by_now = verdicts()
        still = [
            i
            for i in still
            if "undetermined" in by_now[ends[i] - len(groups[i]) : ends[i]] and looks[i] < len(paths[i])
        ]
        looks[still] += 1
    found, truth = verdicts(), np.concatenate([true_scores(group) for group in groups])
    called = np.isin(found, ["for", "against"])
    wrong = float((called & (np.abs(truth) <= TAU)).sum() / max(1, called.sum()))
    images = sum(looks[i] * STEP * len(group) for i, group in enumerate(groups)) / ends[-1]
    return right(found, truth), float(images), wrong


def fixed(groups: Groups, n: int, random: np.random.Generator) -> np.ndarray:
    columns: list[list[np.ndarray]] = [[], [], []]
    for group in groups:
        correct, total = random.binomial(n, group), np.full(len(group), n)
        found = stats.contrast_test(correct / total, total, TAU, 1 - ALPHA)
        for column, values in zip(columns, (found.phi, found.p_value, found.none_p_value), strict=True):
            column.append(values)
    phi, p, none_p = map(np.concatenate, columns)
    q, none_q = stats.benjamini_hochberg(p), stats.benjamini_hochberg(none_p)
    verdicts = stats.verdicts(phi, q, none_q, TAU, ALPHA)
    return right(verdicts, np.concatenate([true_scores(group) for group in groups]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--truth", type=int, default=4000, help="scenes of each class")
    parser.add_argument("--most", type=int, nargs="+", default=[400, 800, 1200, 1600], help="most rounds")
    parser.add_argument("--every", type=int, default=3, help="use every Nth classifier of the zoo")
    parser.add_argument("--seed", type=int, default=100_003)
    parser.add_argument("--cache", type=Path, help="a JSON file that keeps the population")
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    several = population(args.truth, args.every, args.cache)
    for most in args.most:
        done = [sequential(groups, most, random) for groups in several]
        power, images = float(np.mean(np.concatenate([d[0] for d in done]))), float(np.mean([d[1] for d in done]))
        low, high = STEP, 8 * most
        while high - low > STEP:
            n = (low + high) // 2
            reached = np.mean(np.concatenate([fixed(groups, n, random) for groups in several]))
            low, high = (low, n) if reached >= power else (n, high)
        print(
            json.dumps(
                {
                    "most": most,
                    "right_verdicts": round(power, 4),
                    "wrong_claims": round(float(np.mean([d[2] for d in done])), 4),
                    "images_per_cell": round(images, 1),
                    "fixed_images_per_cell": high,
                    "ratio": round(images / high, 3),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
