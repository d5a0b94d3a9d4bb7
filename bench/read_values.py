"""Intervals of scores whose values a model read off photographs, against the world's truth.

    python bench/read_values.py [--readers world:clip ...] [--runs 40] [--seed 100900] [--calibrated 150]

Each reader reads all seven attributes off 1,200 scenes of each of four classes, and off 600 more of each for
calibration, once, as an audit asks it. In each run a classifier answers 400 of the scenes of each class. `random`: its
accuracy is .5 to .98 for each value of one attribute, drawn at random, a new attribute each run. `hard`: it is right in
fog on 40 % and otherwise on 93 %, and readers that err more in fog err where it fails: what the correction takes as
independent is not. Scores are corrected on `--calibrated` images of each value of the audited classes, as an audit
draws them.

`held`: intervals of φ at .95 that hold the true φ, that of the mean accuracy behind all 1,200 scenes that truly show
each value; `counted`: the same without correction. `false`: of the findings (p ≤ .05 each), those whose true φ does
not lie beyond τ on their side.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.c2b.verification.verified import LEAST_SHOWN, LEAST_SKILL
from c2b_ray.models import catalog
from c2b_ray.stats.read_values import read_accuracies
from c2b_ray.steps.caption import caption
from c2b_ray.steps.observe import checks
from c2b_ray.steps.propose import propose
from c2b_ray.world import ATTRIBUTES, render, sample
from c2b_ray.world.zoo import WEIGHTS

CHOSEN = ("airplane", "bus", "chair", "fish")
READERS = [
    "world:clip",
    *(f"open_clip:local-dir:{WEIGHTS / name}" for name in ("clip-08", "clip-04", "clip-00", "clip-base-s")),
]
TAU, POOL, DRAWN = 0.05, 1200, 400
Ints = NDArray[np.int64]
Readings = dict[str, tuple[Ints, dict[str, Ints], dict[str, Ints]]]


def readings(spec: str, seed: int) -> Readings:
    """Returns class → the split (0: to audit, 1: to calibrate), and the true and the read value of each attribute, of
    all scenes of the class."""
    proposals, _ = propose("Name the object.", CHOSEN, None, ATTRIBUTES, 0)
    captions, _ = caption("Name the object.", proposals, None, 1, 0, {})
    asked = checks(spec, "", CHOSEN, captions).attributes
    captioner = catalog.captioner(spec)
    found = {}
    for place, name in enumerate(CHOSEN):
        scenes = [*sample(POOL, seed + place, target_class=name), *sample(600, seed + 50 + place, target_class=name)]
        true = {key: np.array([of.index(one.attribute(key)) for one in scenes]) for key, of in ATTRIBUTES.items()}
        said = {key: np.full(len(scenes), -1, np.int64) for key in ATTRIBUTES}
        for start in range(0, len(scenes), 100):
            pixels = [render(one) for one in scenes[start : start + 100]]
            for key, question in asked[name].items():
                replies = captioner.answer(pixels, [question] * len(pixels))
                said[key][start : start + len(pixels)] = [ATTRIBUTES[key].index(one.choice) for one in replies]
        found[name] = np.r_[np.zeros(POOL, np.int64), np.ones(600, np.int64)], true, said
    return found


def table(read: Readings, key: str, each: int, random: np.random.Generator) -> Ints:
    """Returns calibration counts (true, read), on about `each` images of each value, of all classes alike."""
    n = len(ATTRIBUTES[key])
    counts = np.zeros((n, n), np.int64)
    for split, true, said in read.values():
        for value in range(n):
            at = np.flatnonzero((split == 1) & (true[key] == value))
            at = random.permutation(at)[: each // len(read)]
            counts[value] += np.bincount(said[key][at], minlength=n)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", nargs="+", default=READERS)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100_900)
    parser.add_argument("--calibrated", type=int, default=150)
    args = parser.parse_args()
    began = time.process_time()
    whole: dict[str, list[int]] = defaultdict(lambda: [0] * 8)
    for spec in args.readers:
        read = readings(spec, args.seed)
        skill = np.mean([np.mean(said[key] == true[key]) for _, true, said in read.values() for key in ATTRIBUTES])
        for kind in ("random", "hard"):
            tally = [0] * 8
            for run in range(args.runs):
                random = np.random.default_rng([args.seed, run])
                for found in one_run(read, kind, run, args.calibrated, random):
                    for at, number in enumerate(found):
                        tally[at] += number
                        whole[kind][at] += number
            print(f"{spec.rsplit('/', 1)[-1]} ({skill:.3f} of values right), {kind}: {said_of(tally)}", flush=True)
    for kind, tally in whole.items():
        print(f"all, {kind}: {said_of(tally)}")
    print(f"{time.process_time() - began:.0f} s of a CPU")


def one_run(read: Readings, kind: str, run: int, calibrated: int, random: np.random.Generator) -> list[list[int]]:
    """Returns for each class and attribute: intervals that hold, of how many; the same uncorrected; findings, false
    ones; those left out as in doubt; strong values found."""
    cause = "weather" if kind == "hard" else list(ATTRIBUTES)[run % len(ATTRIBUTES)]
    values = ATTRIBUTES[cause]
    known = {key: table(read, key, calibrated, random) for key in ATTRIBUTES}
    result = []
    for split, true, said in read.values():
        rates = random.uniform(0.5, 0.98, len(values))
        if kind == "hard":
            rates = np.array([0.4 if value == "fog" else 0.93 for value in values])
        pool = np.flatnonzero(split == 0)
        rate = rates[true[cause]]
        at = random.permutation(pool)[:DRAWN]
        right = random.random(len(at)) < rate[at]
        for key in [cause] if kind == "random" else list(ATTRIBUTES):
            n = len(ATTRIBUTES[key])
            truth = np.array([rate[pool][true[key][pool] == value].mean() for value in range(n)])
            phi = truth - (truth.sum() - truth) / (n - 1)
            r, x = (np.bincount(said[key][at][chosen], minlength=n) for chosen in (right, ~right))
            found = read_accuracies(r, x, known[key])
            test = stats.contrast_test(found.accuracy, found.effective, TAU, 0.95, found.covariance)
            plain_low, plain_high = stats.bias_score_interval(r, r + x)
            sure = (found.sensitivity + found.specificity - 1 >= LEAST_SKILL) & (found.shown >= LEAST_SHOWN)
            sure &= (r + x) > 0
            is_finding = sure & (np.abs(test.phi) > TAU) & (test.p_value <= 0.05)
            is_true = np.where(test.phi > 0, phi > TAU, phi < -TAU)
            counts = [
                int(((test.phi_low <= phi) & (phi <= test.phi_high))[sure].sum()),
                int(sure.sum()),
                int(((plain_low <= phi) & (phi <= plain_high))[sure].sum()),
                int(is_finding.sum()),
                int((is_finding & ~is_true).sum()),
                int((~sure).sum()),
                int((is_finding & (np.abs(phi) > 0.2)).sum()),
                int((sure & (np.abs(phi) > 0.2)).sum()),
            ]
            result.append(counts)
    return result


def said_of(tally: list[int]) -> str:
    held, of, plain, findings, false, doubt, strong, strongs = tally
    return (
        f"held {held / max(of, 1):.3f} of {of} (counted {plain / max(of, 1):.3f}); findings {findings}, false {false}; "
        f"strong found {strong} of {strongs}; in doubt {doubt}"
    )


if __name__ == "__main__":
    main()
