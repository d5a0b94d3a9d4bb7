"""Simulates findings on labelled images: measures the coverage of the intervals of their rates and ratios.

    python bench/labelled_intervals.py [--runs 1000] [--images 3000] [--seed 11]

The script runs what `c2b failures` does with answers to a labelled table, on simulated answers. A run's images have
three independent columns, of 6, 4 and 3 values. It has three classifiers with a target rate of 1e-3 to 1e-1 and an
ordinary confusion; each is raised 1.5 to 10 times where one or two columns have a value, and one classifier in four is
not. As in the audit, a third of the images chooses captions, a third tests them, and a third measures the rates of
findings. Truth is the rate over the whole population, of the images with the values and of those without.

The findings of a run share images, so that the limits of a coverage treat runs as clusters.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
from failure_intervals import AT_BASELINE, AT_CAPTION, LABEL, OTHER, TARGET, show
from numpy.typing import NDArray

from c2b_ray.audits.failures.config import FailuresConfig
from c2b_ray.audits.failures.discovery.value_sets import Condition, LabelledAnswers
from c2b_ray.audits.failures.drawing import MEASURE, SEARCH, TEST
from c2b_ray.audits.failures.labelled_claims import ClaimAnswers, Parts, claims_of, hypotheses
from c2b_ray.stats import Trials, failure_rates, rate_ratios
from c2b_ray.tables.failures import HypothesisRow

SITES, LIGHTS, ANGLES = (
    ("ABCDEF", (0.3, 0.25, 0.2, 0.1, 0.1, 0.05)),
    ("uvwx", (0.4, 0.3, 0.2, 0.1)),
    ("123", (1 / 3,) * 3),
)
COLUMNS = {"site": SITES, "light": LIGHTS, "angle": ANGLES}
CELLS = [dict(zip(COLUMNS, values, strict=True)) for values in product(*(values for values, _ in COLUMNS.values()))]
SHARES = np.array([np.prod(shares) for shares in product(*(shares for _, shares in COLUMNS.values()))])
CLASSIFIERS = 3
CONFIG = FailuresConfig.model_validate(
    {"labels": [LABEL], "classifier": "fake:", "images": {"labelled": {"table": "labels.csv"}}, "rule": "top1"}
)


class Finding(NamedTuple):
    """Counts of a finding and of the label's other images in the part that measures, and both true rates."""

    failures: int
    images: int
    other_failures: int
    others: int
    truth: float
    other_truth: float


def rates(random: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns a classifier's true rates towards the target and towards another label, in every cell."""
    target = np.full(len(CELLS), 10 ** random.uniform(-3, -1))
    if random.random() > 1 / 4:
        names = random.choice(list(COLUMNS), random.integers(1, 3), replace=False)
        cause = {name: random.choice(list(COLUMNS[name][0])) for name in names}
        of_cause = np.array([all(cell[name] == value for name, value in cause.items()) for cell in CELLS])
        target = np.where(of_cause, np.minimum(0.9, target * 10 ** random.uniform(0.18, 1)), target)
    return target, np.full(len(CELLS), 10 ** random.uniform(-4, -1.5)) * (1 - target)


def findings(images: int, random: np.random.Generator) -> Iterator[Finding]:
    cells = random.choice(len(CELLS), images, p=SHARES)
    true = {f"classifier-{number}": rates(random) for number in range(CLASSIFIERS)}
    predicted = {}
    for name, (target, other) in true.items():
        chance = random.random(images)
        of_target, any_failure = chance < target[cells], chance < (target + other)[cells]
        predicted[name] = np.where(of_target, TARGET, np.where(any_failure, OTHER, LABEL)).astype(object)
    columns = {name: np.array([cell[name] for cell in CELLS], object)[cells] for name in COLUMNS}
    parts = random.choice(np.array([SEARCH, TEST, MEASURE], object), images)
    answered = LabelledAnswers(np.full(images, LABEL, object), columns, parts, np.arange(images))
    answers = ClaimAnswers(
        {},
        {name: np.ones(images, bool) for name in true},
        {name: answer != LABEL for name, answer in predicted.items()},
        {name: answer.tolist() for name, answer in predicted.items()},
    )
    claims = claims_of(answered, answers, CONFIG)
    rows: list[HypothesisRow] = hypotheses(CONFIG, "table", Parts(answered, answers), claims).to_pylist()
    for claim, row in zip(claims, rows[: len(claims)], strict=True):
        if row["verdict"] == "failure":
            target, other = true[claim.classifier]
            yield _finding(
                row, target if claim.target == TARGET else other if claim.target else target + other, claim.condition
            )


def _finding(row: HypothesisRow, rate: NDArray[np.float64], condition: Condition) -> Finding:
    shown = np.array([all(cell[name] == value for name, value in condition.values) for cell in CELLS])
    truths = (float((rate * SHARES)[side].sum() / SHARES[side].sum()) for side in (shown, ~shown))
    return Finding(row["failures"], row["draws"], row["baseline_failures"], row["baseline_draws"], *truths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--images", type=int, default=3000, help="labelled images of each run")
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    began, random = time.process_time(), np.random.default_rng(args.seed)
    every = [(run, *row) for run in range(args.runs) for row in findings(args.images, random)]
    rows = np.array([row for row in every if row[2] and row[4]])
    run, (f1, n1, f0, n0, p1, p0) = rows[:, 0].astype(np.int64), rows[:, 1:].T
    of_rates, of_ratios = failure_rates(f1, n1), rate_ratios(Trials.of(f1, n1), Trials.of(f0, n0))
    show("rates", (of_rates.low <= p1) & (p1 <= of_rates.high), n1 * p1, AT_CAPTION, run)
    show("ratios", (of_ratios.low <= p1 / p0) & (p1 / p0 <= of_ratios.high), n0 * p0, AT_BASELINE, run)
    about = {
        "runs": args.runs,
        "findings": len(every),
        "unmeasured": len(every) - len(rows),
        "false": int((p1 <= p0 * (1 + 1e-9)).sum()),
        "mean_rate_over_truth": round(float((f1 / n1 / p1).mean()), 4),
    }
    print(json.dumps(about | {"images": args.images, "seed": args.seed, "cpu_s": round(time.process_time() - began)}))


if __name__ == "__main__":
    main()
