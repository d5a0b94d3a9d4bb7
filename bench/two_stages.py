"""Simulates an audit in two stages against one of a fixed size, on cells whose true accuracies are known.

    PYTHONPATH=. python bench/two_stages.py [--runs 20] [--spread 0] [--captions 5] [--classes 10] [--cache FILE]
                                            [--retrieved]

The accuracies of all cells of the world's zoo, measured on `--truth` scenes of each class, count as the truth. Each run
draws right and wrong answers anew; the classifiers of the zoo are audited one by one, a family of 280 cells each. Two
stages: 60 (or 100) images of every cell; then 300 fresh ones of the attributes in which a value has |φ| of .10 (.08) or
more, or a finding, which alone are tested. Strong cells have |φ| ≥ .15. `--spread`: the standard deviation in accuracy
between the captions of a cell, of which both stages draw; an accuracy beyond 0 or 1 is cut off. An audit of drawn
images does not know it, and allows for it by the effective number of images, as this script does. The true φ is that of
all captions there could be. `--classes`: families of so many classes, drawn anew for each audit. `--plant`: in so many
attributes of each audit, one value is made worse by .08 to .5, so that many cells lie near what is promised.
`--retrieved`: instead 200 images of every cell, then 400 more of these attributes; the 600 are tested together, in one
family with the cells that were not selected, which count as p = 1.

Prints for each design: images a cell; strong cells found; findings whose true |φ| > τ has their direction; intervals
that hold, of all cells, and of two stages also those of the selected and of the other cells; `none` verdicts for which
|φ| ≥ τ is true; and, of cells near the smallest |φ| that two stages promise to find in four of five audits, those that
they find.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import ndtri
from sequential import Groups, population, true_scores

from c2b_ray import stats
from c2b_ray.stats.roots import deviations
from c2b_ray.stats.sample_size import TwoStages, Variation, two_stage_power
from c2b_ray.world.scenes import CLASSES

TAU, ALPHA, STRONG = 0.05, 0.05, 0.15
FRESH = 300
DESIGNS = ((60, 0.10), (100, 0.08))
"""Images of a cell in the first stage, and the |φ| from which fresh ones are drawn; the second is the default."""
FIXED = (60, 100, 120, 150, 200)
RETRIEVED, MORE, FIXED_RETRIEVED = (200, 0.08), 400, (200, 400, 600)
NAMES = ("phi", "low", "high", "verdict")
PLANTED = 0.08, 0.5
QUANTILES = ndtri((np.arange(400) + 0.5) / 400)


def draw(groups: Groups, captions: Sequence[np.ndarray], n: int, random: np.random.Generator) -> list[np.ndarray]:
    """Returns right answers of each group, (cells, captions), of n images a cell.

    `captions`: for each group, what every caption adds to the accuracy, (cells, captions).
    """
    return [
        random.binomial(n // more.shape[1], np.clip(of[:, None] + more, 0, 1))
        for of, more in zip(groups, captions, strict=True)
    ]


def scored(groups: Groups, right: Sequence[np.ndarray], n: int, others: int = 0) -> dict:
    """Returns the scores of one sample of n images a cell, tested as one family with `others` that are no findings.

    `variation`: what φ varies by, as fields of `stats.sample_size.Variation`.
    """
    known = _known(np.concatenate(right), n // right[0].shape[1]) if groups else None
    most, start = max(map(len, groups), default=0), 0
    rate, images, answers, between = np.full((4, len(groups), most), np.nan)
    for row, group in enumerate(groups):
        here, cells = slice(start, start + len(group)), slice(0, len(group))
        rate[row, cells], images[row, cells], spread = known.rate[here], known.effective[here], known.spread[here]
        smooth = (rate[row, cells] * n + 0.5) / (n + 1)
        answers[row, cells] = stats.bias_score_deviations(np.sqrt(smooth * (1 - smooth)), np.full(len(group), n))
        between[row, cells] = stats.bias_score_deviations(spread, np.full(len(group), right[0].shape[1]))
        start = here.stop
    held = ~np.isnan(rate)

    def tests(confidence: float) -> list[np.ndarray]:
        found = stats.contrast_test(rate, np.nan_to_num(images), TAU, confidence)
        return [getattr(found, name)[held] for name in ("phi", "phi_low", "phi_high", "p_value", "none_p_value")]

    phi, low, high, p, none_p = tests(1 - ALPHA)
    whole = (high - low) / (2 * deviations(1 - ALPHA))
    q = stats.benjamini_hochberg(np.append(p, np.ones(others)))[: len(p)]
    none_q = stats.benjamini_hochberg(none_p)
    verdict = np.array(stats.verdicts(phi, q, none_q, TAU, ALPHA), dtype="<U12")
    finding = np.isin(verdict, ["for", "against"])
    if finding.any():  # as in an audit, limits of findings have the false coverage rate α
        family = len(finding) + others
        _, wide_low, wide_high, *_ = tests(stats.selected_confidence(int(finding.sum()), family, ALPHA))
        low, high = np.where(finding, wide_low, low), np.where(finding, wide_high, high)
    smooth, answers, between = (rate[held] * n + 0.5) / (n + 1), answers[held], between[held]
    given = np.maximum(whole**2 - between**2, answers**2)
    variation = {
        "rate": rate[held] - phi,
        "others": n * answers**2 - smooth * (1 - smooth),
        "inflation": given / answers**2,
        "captions": between**2 / (n * answers**2),
    }
    return dict(zip(NAMES, (phi, low, high, verdict), strict=True)) | {"p": p, "variation": variation}


@dataclass(frozen=True)
class _Known:
    rate: np.ndarray
    effective: np.ndarray
    spread: np.ndarray


def _known(right: np.ndarray, each: int) -> _Known:
    """`right`: right answers, (cells, captions), of `each` images a caption."""
    worth = stats.effective_images(right, np.full(right.shape, each))
    return _Known(right.mean(axis=1) / each, worth.effective, worth.spread)


def two_stages(
    groups: Groups,
    captions: Sequence[np.ndarray],
    design: tuple[int, float],
    random: np.random.Generator,
    together: bool = False,
) -> dict:
    """Returns the scores after both stages, with `selected` cells, `images` a cell, and the smallest |φ| promised.

    `together`: both stages' images are tested."""
    screened, least = design
    answers = draw(groups, captions, screened, random)
    first = scored(groups, answers, screened)
    ends = np.cumsum([0, *map(len, groups)])
    large = (np.abs(first["phi"]) >= least) | np.isin(first["verdict"], ["for", "against"])
    large |= together & (first["p"] <= ALPHA)
    chosen = [i for i in range(len(groups)) if large[ends[i] : ends[i + 1]].any()]
    selected = np.zeros(ends[-1], bool)
    for i in chosen:
        selected[ends[i] : ends[i + 1]] = True
    images, others = (MORE, int((~selected).sum())) if together else (FRESH, 0)
    right = draw([groups[i] for i in chosen], [captions[i] for i in chosen], images, random)
    if together:
        right = [of_group + answers[i] for of_group, i in zip(right, chosen, strict=True)]
    tested = images + screened * together
    fresh = scored([groups[i] for i in chosen], right, tested, others)
    after = {name: first[name].copy() for name in NAMES}
    for name in NAMES:
        after[name][selected] = fresh[name]
    findings = np.isin(fresh["verdict"], ["for", "against"]).sum()
    level = ALPHA * min(1.0, (findings + 1) / max(1, selected.sum() + others))
    variation = {name: of_cells.copy() for name, of_cells in first["variation"].items()}
    for name, of_cells in variation.items():
        of_cells[selected] = fresh["variation"][name]
    sizes = [len(group) for group in groups]
    largest = np.repeat([np.abs(true_scores(group)).max() for group in groups], sizes)
    farthest = np.abs(np.concatenate([true_scores(group) for group in groups])) > 0.999 * largest
    stages = TwoStages((float(screened), float(tested)), least, TAU, level)

    def power(phi: np.ndarray) -> np.ndarray:
        return two_stage_power(phi, Variation(**variation), stages)

    return after | {
        "selected": selected,
        "images": screened + images * selected.mean(),
        "power": power,
        "farthest": farthest,
    }


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
        power = scores["power"](truth)
        near = (power >= 0.7) & (power <= 0.9) & scores["farthest"]
        counts |= {
            "intervals_selected": ((hold & selected).sum(), selected.sum()),
            "intervals_others": ((hold & ~selected).sum(), (~selected).sum()),
            "found_where_promised": ((right & near).sum(), near.sum()),
            "promised": (power[near].sum(), near.sum()),
        }
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=int, default=600, help="scenes of each class")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--spread", type=float, default=0.0)
    parser.add_argument("--captions", type=int, default=5)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--plant", type=int, default=0)
    parser.add_argument("--only", action="store_true", help="the default design alone")
    parser.add_argument("--retrieved", action="store_true", help="the design of retrieved images")
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--cache", type=Path, help="a JSON file that keeps the population")
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    several = population(args.truth, 1, args.cache)
    designs: dict[str, list[tuple[dict, float]]] = {}
    for whole in several * args.runs:
        groups = _planted(_of_classes(whole, args.classes, random), args.plant, random)
        captions = [random.normal(0, args.spread, (len(group), args.captions)) for group in groups]
        truth = np.concatenate([true_scores(_over_captions(group, args.spread)) for group in groups])
        for n in () if args.only else FIXED_RETRIEVED if args.retrieved else FIXED:
            scores = scored(groups, draw(groups, captions, n, random), n)
            designs.setdefault(f"fixed {n}", []).append((counted(scores, truth), n))
        for design in (RETRIEVED,) if args.retrieved else DESIGNS[-1:] if args.only else DESIGNS:
            scores = two_stages(groups, captions, design, random, args.retrieved)
            more = f"{MORE} more" if args.retrieved else f"{FRESH}"
            name = f"{design[0]}, then {more} where |φ| >= {design[1]:.2f}"
            designs.setdefault(name, []).append((counted(scores, truth), scores["images"]))
    for name, runs in designs.items():
        sums = {of: np.sum([counts[of] for counts, _ in runs], axis=0) for of in runs[0][0]}
        shares = {of: round(float(hits / max(1, cases)), 4) for of, (hits, cases) in sums.items()}
        images = round(float(np.mean([n for _, n in runs])), 1)
        if "promised" in sums:
            shares["promised_of"] = int(sums["promised"][1])
        print(json.dumps({"design": name, "images_per_cell": images} | shares), flush=True)


def _of_classes(groups: Groups, classes: int, random: np.random.Generator) -> Groups:
    """Returns the groups of some classes. All classes have as many attributes, one after the other."""
    attributes = len(groups) // len(CLASSES)
    chosen = sorted(random.choice(len(CLASSES), classes, replace=False))
    return [groups[c * attributes + a] for c in chosen for a in range(attributes)]


def _planted(groups: Groups, attributes: int, random: np.random.Generator) -> Groups:
    """Returns the groups, one value of some of them made worse."""
    groups = [group.copy() for group in groups]
    for i in random.choice(len(groups), attributes, replace=False):
        worse = random.integers(len(groups[i]))
        groups[i][worse] = max(0.0, groups[i][worse] - random.uniform(*PLANTED))
    return groups


def _over_captions(group: np.ndarray, spread: float) -> np.ndarray:
    """Returns the mean accuracy of all captions there could be."""
    return np.clip(group[:, None] + spread * QUANTILES, 0, 1).mean(axis=1)


if __name__ == "__main__":
    main()
