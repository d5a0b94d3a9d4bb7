"""Images until a verdict is settled: drawing until the evidence suffices, against one size for all, of equal power.

    python bench/sequential.py RUN [--most N] [--repeats N] [--seed S]

RUN: a labelled audit of the world's zoo (`python bench/audits.py labelled --out D` leaves one at D/run-labelled). Its
accuracies are taken for the truth, and outcomes are drawn from them: right or wrong, in rounds of one image for each
cell of an attribute. Sequential: a group goes on until each of its cells is settled, looked at every `STEP` rounds, at
most `--most`. Fixed: every cell gets n images and the verdicts of `metrics.verdicts`; n is the smallest at which as
many cells have the right verdict (`for`/`against` where true |φ| > τ, `none` elsewhere) as sequentially.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict

import numpy as np

from c2b_ray import load_run, metrics
from c2b_ray.metrics.sequential import joined

TAU, ALPHA, STEP = 0.05, 0.05, 10


def groups_of(run: str) -> dict[str, list[np.ndarray]]:
    """classifier → the accuracies of each attribute's cells."""
    found: dict[tuple, list[float]] = defaultdict(list)
    for row in load_run(run).scores.to_pylist():
        found[row["classifier"], row["target_class"], row["attribute"]].append(row["accuracy"])
    groups = defaultdict(list)
    for (classifier, *_), accuracies in found.items():
        groups[classifier].append(np.array(accuracies))
    return groups


def right(verdicts: list[str], truth: np.ndarray) -> np.ndarray:
    expected = np.where(truth > TAU, "for", np.where(truth < -TAU, "against", "none"))
    return np.array(verdicts) == expected


def sequential(groups: list[np.ndarray], most: int, random: np.random.Generator) -> tuple[np.ndarray, float, float]:
    """Which cells have the right verdict, the mean images per cell, the share of wrong claims."""
    outcomes = [random.random((most, len(group))) < group for group in groups]
    rounds = np.full(len(groups), STEP)
    cells = sum(map(len, groups))
    open_groups = list(range(len(groups)))
    evidence = [metrics.sequential_evidence(o[:STEP], TAU) for o in outcomes]
    while open_groups:
        verdicts = metrics.sequential_verdicts(joined(evidence), TAU, ALPHA)
        ends = np.cumsum([len(group) for group in groups])
        still = []
        for i in open_groups:
            own = verdicts[ends[i] - len(groups[i]) : ends[i]]
            if "undetermined" in own and rounds[i] < most:
                rounds[i] += STEP
                evidence[i] = metrics.sequential_evidence(outcomes[i][: rounds[i]], TAU)
                still.append(i)
        open_groups = still
    verdicts = metrics.sequential_verdicts(joined(evidence), TAU, ALPHA)
    truth = np.concatenate([true_scores(group) for group in groups])
    images = sum(rounds[i] * len(group) for i, group in enumerate(groups)) / cells
    hits = right(verdicts, truth)
    called = np.isin(verdicts, ["for", "against"])
    wrong = float((called & (np.abs(truth) <= TAU)).sum() / max(1, called.sum()))
    return hits, float(images), wrong


def fixed(groups: list[np.ndarray], n: int, random: np.random.Generator) -> np.ndarray:
    phi, low, high, p, truth = [], [], [], [], []
    for group in groups:
        correct, total = random.binomial(n, group), np.full(len(group), n)
        phi.append(metrics.bias_scores(correct, total))
        limits = metrics.bias_score_interval(correct, total, 1 - ALPHA)
        low.append(limits[0])
        high.append(limits[1])
        p.append(metrics.bias_score_p_values(correct, total, TAU))
        truth.append(true_scores(group))
    q = metrics.benjamini_hochberg(np.concatenate(p))
    verdicts = metrics.verdicts(*map(np.concatenate, (phi, low, high)), q, TAU, ALPHA)
    return right(verdicts, np.concatenate(truth))


def true_scores(accuracies: np.ndarray) -> np.ndarray:
    return accuracies - (accuracies.sum() - accuracies) / (len(accuracies) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--most", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seed", type=int, default=100_003)
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    population = groups_of(args.run)
    done = [sequential(groups, args.most, random) for groups in population.values() for _ in range(args.repeats)]
    power, images = float(np.mean(np.concatenate([d[0] for d in done]))), float(np.mean([d[1] for d in done]))
    low, high = STEP, 4 * args.most
    while high - low > STEP:
        n = (low + high) // 2
        reached = np.mean(np.concatenate([fixed(g, n, random) for g in population.values()]))
        low, high = (low, n) if reached >= power else (n, high)
    print(
        json.dumps(
            {
                "images_per_cell": round(images, 1),
                "right_verdicts": round(power, 4),
                "wrong_claims": round(float(np.mean([d[2] for d in done])), 4),
                "fixed_images_per_cell": high,
                "ratio": round(images / high, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
