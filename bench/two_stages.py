"""Simulates an audit in two stages against one of a fixed size, on cells whose true accuracies are known.

    PYTHONPATH=. python bench/two_stages.py [--truth 600] [--runs 20] [--spread 0] [--seed 100000] [--cache FILE]

The accuracies of all cells of the world's zoo, measured on `--truth` scenes of each class, count as the truth. Each run
draws right and wrong answers anew; the classifiers of the zoo are audited one by one, a family of 280 cells each. Two
stages: 60 (or 100) images of every cell; then 300 fresh ones of the attributes in which a value has |φ| of .10 (.08) or
more, or a finding, which alone are tested. Strong cells have |φ| ≥ .15. `--spread`: the standard deviation in accuracy
between the five captions of a cell, of which both stages draw: an audit of drawn images allows for it by the effective
number of images, as this script does. The true φ is that of all captions there could be.

Prints for each design: images a cell; strong cells found; findings whose true |φ| > τ has their direction; intervals
that hold, of all cells, and of two stages also those of the selected and of the other cells; `none` verdicts for which
|φ| ≥ τ is true; and, of cells near the smallest |φ| that two stages promise to find in four of five audits, those that
they find.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sequential import Groups, population, true_scores

from c2b_ray import metrics
from c2b_ray.metrics.levels import deviations
from c2b_ray.metrics.screening import least_found

TAU, ALPHA, STRONG = 0.05, 0.05, 0.15
FRESH, CAPTIONS = 300, 5
DESIGNS = ((60, 0.10), (100, 0.08))
"""Images of a cell in the first stage, and the |φ| from which fresh ones are drawn; the second is the default."""
FIXED = (60, 100, 120, 150, 200)
NAMES = ("phi", "low", "high", "verdict")


def draw(groups: Groups, captions: Sequence[np.ndarray], n: int, random: np.random.Generator, spread: float) -> dict:
    """Returns the scores of one sample of n images a cell, tested as one family. `captions`: for each group, what every
    caption adds to the accuracy, (cells, captions)."""
    most = max(map(len, groups), default=0)
    rate, images = np.full((2, len(groups), most), np.nan)
    for row, (group, more) in enumerate(zip(groups, captions, strict=True)):
        right = random.binomial(n // CAPTIONS, np.clip(group[:, None] + more, 0, 1))
        rate[row, : len(group)], images[row, : len(group)] = right.sum(axis=1) / n, _effective(right, n, spread)
    held = ~np.isnan(rate)

    def tests(confidence: float) -> list[np.ndarray]:
        found = metrics.contrast_test(rate, np.nan_to_num(images), TAU, confidence)
        return [getattr(found, name)[held] for name in ("phi", "phi_low", "phi_high", "p_value", "none_p_value")]

    phi, low, high, p, none_p = tests(1 - ALPHA)
    q, none_q = metrics.benjamini_hochberg(p), metrics.benjamini_hochberg(none_p)
    verdict = np.array(metrics.verdicts(phi, q, none_q, TAU, ALPHA), dtype="<U12")
    finding = np.isin(verdict, ["for", "against"])
    if finding.any():  # as in an audit, limits of findings have the false coverage rate α
        _, wide_low, wide_high, *_ = tests(metrics.selected_confidence(int(finding.sum()), len(finding), ALPHA))
        low, high = np.where(finding, wide_low, low), np.where(finding, wide_high, high)
    return dict(zip(NAMES, (phi, low, high, verdict), strict=True))


def _effective(right: np.ndarray, n: int, spread: float) -> np.ndarray:
    if not spread:
        return np.full(len(right), float(n))
    return metrics.effective_images(right, np.full(right.shape, n // CAPTIONS)).effective


def two_stages(
    groups: Groups,
    captions: Sequence[np.ndarray],
    design: tuple[int, float],
    random: np.random.Generator,
    spread: float,
) -> dict:
    """Returns the scores after both stages, with `selected` cells, `images` a cell, and the smallest |φ| promised."""
    screened, least = design
    first = draw(groups, captions, screened, random, spread)
    ends = np.cumsum([0, *map(len, groups)])
    large = (np.abs(first["phi"]) >= least) | np.isin(first["verdict"], ["for", "against"])
    chosen = [i for i in range(len(groups)) if large[ends[i] : ends[i + 1]].any()]
    fresh = draw([groups[i] for i in chosen], [captions[i] for i in chosen], FRESH, random, spread)
    selected = np.zeros(ends[-1], bool)
    for i in chosen:
        selected[ends[i] : ends[i + 1]] = True
    after = {name: first[name].copy() for name in NAMES}
    for name in NAMES:
        after[name][selected] = fresh[name]
    findings = np.isin(fresh["verdict"], ["for", "against"]).sum()
    level = ALPHA * min(1.0, (findings + 1) / max(1, selected.sum()))
    s = (first["high"] - first["low"]) / (2 * deviations(1 - ALPHA))
    promised = least_found(s, (float(screened), float(FRESH)), least, TAU, level)
    return after | {"selected": selected, "images": screened + FRESH * selected.mean(), "promised": promised}


def counted(scores: dict, truth: np.ndarray) -> dict[str, tuple[float, float]]:
    """Returns hits and cases of everything that is printed."""
    finding = np.isin(scores["verdict"], ["for", "against"])
    sign = np.where(scores["verdict"] == "for", 1, -1)
    strong, none = np.abs(truth) >= STRONG, scores["verdict"] == "none"
    hold = (scores["low"] <= truth) & (truth <= scores["high"])
    right = finding & (sign * truth > 0)
    counts = {
        "strong_found": ((strong & right).sum(), strong.sum()),
        "true": ((finding & (sign * truth > TAU)).sum(), finding.sum()),
        "false_discoveries_a_family": ((finding & (sign * truth <= TAU)).sum() / max(1, finding.sum()), 1),
        "intervals": (hold.sum(), len(hold)),
        "strong_intervals": ((hold & strong).sum(), strong.sum()),
        "none_wrong": ((none & (np.abs(truth) >= TAU)).sum(), none.sum()),
        "none_of_cells": (none.sum(), len(none)),
    }
    if "selected" in scores:
        selected = scores["selected"]
        near = np.abs(np.abs(truth) - scores["promised"]) < 0.01
        counts |= {
            "intervals_selected": ((hold & selected).sum(), selected.sum()),
            "intervals_others": ((hold & ~selected).sum(), (~selected).sum()),
            "found_near_promised": ((right & near).sum(), near.sum()),
        }
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=int, default=600, help="scenes of each class")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--spread", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--cache", type=Path, help="a JSON file that keeps the population")
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    several = population(args.truth, 1, args.cache)
    designs: dict[str, list[tuple[dict, float]]] = {}
    for groups in several * args.runs:
        captions = [random.normal(0, args.spread, (len(group), CAPTIONS)) for group in groups]
        truth = np.concatenate([true_scores(group) for group in groups])
        for n in FIXED:
            scores = draw(groups, captions, n, random, args.spread)
            designs.setdefault(f"fixed {n}", []).append((counted(scores, truth), n))
        for design in DESIGNS:
            scores = two_stages(groups, captions, design, random, args.spread)
            name = f"{design[0]}, then {FRESH} where |φ| >= {design[1]:.2f}"
            designs.setdefault(name, []).append((counted(scores, truth), scores["images"]))
    for name, runs in designs.items():
        sums = {of: np.sum([counts[of] for counts, _ in runs], axis=0) for of in runs[0][0]}
        shares = {of: round(float(hits / max(1, cases)), 4) for of, (hits, cases) in sums.items()}
        images = round(float(np.mean([n for _, n in runs])), 1)
        print(json.dumps({"design": name, "images_per_cell": images} | shares), flush=True)


if __name__ == "__main__":
    main()
