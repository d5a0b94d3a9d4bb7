"""Simulates confirmed failures: measures the coverage of the intervals of rates and ratios after test and measurement.

    python bench/failure_intervals.py [--runs 1000] [--draws 1000000] [--seed 11]

The script runs the confirmation of `c2b failures` on binomial numbers in place of images. Each run has one label and
five classifiers that share its baseline. A classifier fails at a rate of 1e-4 to 1e-1 on 1 in 12 to 1 in 150 images,
and in 7 of 10 cases has an ordinary confusion too. Each classifier has three captions, with a hypothesis about its
target and one about any failure. Hypotheses that fail twice in discovery are tested.

Only confirmed findings are measured, and the findings of a run share a baseline. The limits of a coverage therefore
treat runs as clusters.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from c2b_ray.audits.failures.confirmation import TEST_SHARE, Confirmation
from c2b_ray.audits.failures.discovery.candidates import Candidate
from c2b_ray.audits.failures.drawing import CONFIRMATION, DISCOVERY, MEASURE, SEARCH, Counts, WantedDraws
from c2b_ray.audits.failures.state import FailuresState, Hypothesis, Kind
from c2b_ray.stats import Trials, failure_rates, rate_ratios

LABEL, TARGET, OTHER = "boat", "house", "bird"
CLASSIFIERS, CAPTIONS = 5, 3
AT_BASELINE = (0, 0.07, 0.25, 1, 3, 6, 12, np.inf)
AT_CAPTION = (0, 3, 6, 12, 24, np.inf)
Rates = Mapping[str, float]


class Binomials:
    """Stands in for `Drawing`: draws failures of each caption and classifier towards each label at their true rates."""

    source = "binomial"

    def __init__(self, rates: Mapping[tuple[str, str], Rates], random: np.random.Generator) -> None:
        self._rates, self._random = rates, random
        self._counts: dict[tuple[str, str, str, str], Counts] = defaultdict(Counts)
        self.spent: Counter[tuple[str, str]] = Counter()

    def draw(self, wanted: Sequence[WantedDraws], *_: Any) -> None:
        for one in wanted:
            self.spent[one.stage, one.part] += one.draws
            for (caption_id, classifier), rates in self._rates.items():
                if caption_id == one.caption.caption_id:
                    numbers = self._random.multinomial(one.draws, [*rates.values(), 1 - sum(rates.values())])[:-1]
                    taken_for = Counter(dict(zip(rates, numbers.tolist(), strict=True)))
                    counts = Counts(one.draws, int(numbers.sum()), 0, taken_for)
                    self._counts[caption_id, classifier, one.stage, one.part].add(counts)

    def counts(self, caption: Candidate, classifier: str, stage: str, part: str) -> Counts:
        return self._counts[caption.caption_id, classifier, stage, part]


def caption(*sentences: str) -> Candidate:
    return Candidate(LABEL, f"a photo of a {LABEL}", sentences, "cluster", None)


def drawn(random: np.random.Generator) -> tuple[list[Hypothesis], dict[tuple[str, str], Rates]]:
    """Returns the hypotheses of a run, and the true rates of each caption and classifier."""
    base, hypotheses = caption(), []
    rates: dict[tuple[str, str], Rates] = {}
    for number in range(CLASSIFIERS):
        name = f"classifier-{number}"
        noise = 0.0 if random.random() < 0.3 else 10 ** random.uniform(-4, -1.5)
        rate, share = 10 ** random.uniform(-4, -1), random.choice([1 / 12, 1 / 20, 1 / 60, 1 / 150])
        parts = [share] * CAPTIONS if random.random() < 0.3 else [1.0, *random.choice([1.0, 0.3, 0.1], CAPTIONS - 1)]
        mine = [caption(f"it is number {number}, {other}") for other in range(CAPTIONS)]
        for one, part in zip([base, *mine], [share, *parts], strict=True):
            rates[one.caption_id, name] = {TARGET: rate * part, OTHER: noise * (1 - rate * part)}
        hypotheses += [Hypothesis(Kind(name, LABEL, target), one) for one in mine for target in (TARGET, None)]
    return hypotheses, rates


def confirmed(draws: int, random: np.random.Generator) -> list[tuple[float, ...]]:
    """Returns for each finding of a run its failures and draws, those of its baseline, and both true rates."""
    hypotheses, rates = drawn(random)
    drawing, base = Binomials(rates, random), caption()
    config = SimpleNamespace(alpha=0.05, rule="top1")
    work = cast(FailuresState, SimpleNamespace(config=config, drawing=drawing, baselines={LABEL: base}, steps=None))
    captions = list(dict.fromkeys(one.caption for one in hypotheses))
    looked = [WantedDraws(one, DISCOVERY, SEARCH, int(draws * 0.15 / len(captions))) for one in captions]
    drawing.draw([WantedDraws(base, DISCOVERY, SEARCH, int(draws * 0.45)), *looked])

    def counts(one: Candidate, kind: Kind, stage: str, part: str) -> tuple[int, int]:
        of_one = drawing.counts(one, kind.classifier, stage, part)
        return of_one.towards(kind.target), of_one.draws

    def truth(one: Candidate, kind: Kind) -> float:
        of_one = rates[one.caption_id, kind.classifier]
        return sum(of_one.values()) if kind.target is None else of_one[kind.target]

    def left() -> int:
        return draws - sum(drawing.spent.values())

    confirmation = Confirmation(work, [one for one in hypotheses if counts(*_of(one), DISCOVERY, SEARCH)[0] >= 2])
    confirmation.test(int(left() * TEST_SHARE))
    confirmation.test(int(confirmation.spare(left()) * TEST_SHARE))
    confirmation.measure(left())
    return [
        (
            *counts(*_of(one), CONFIRMATION, MEASURE),
            *counts(base, one.kind, CONFIRMATION, MEASURE),
            truth(one.caption, one.kind),
            truth(base, one.kind),
        )
        for one in confirmation.findings
    ]


def _of(one: Hypothesis) -> tuple[Candidate, Kind]:
    return one.caption, one.kind


def coverage(held: NDArray[np.bool_], run: NDArray[np.int64]) -> dict[str, object]:
    """Returns the share of findings whose interval contains the truth, with 1.96 standard errors, runs as clusters."""
    _, inverse = np.unique(run, return_inverse=True)
    hits, number = np.bincount(inverse, held), np.bincount(inverse)
    share, runs = hits.sum() / number.sum(), len(number)
    error = np.sqrt(runs / max(runs - 1, 1) * ((hits - share * number) ** 2).sum()) / number.sum()
    return {"held": round(float(share), 4), "within": round(1.96 * float(error), 4), "of": int(number.sum())}


def show(of: str, held: NDArray[np.bool_], expected: NDArray[np.float64], bounds: Sequence[float], run: Any) -> None:
    rows: list[dict[str, object]] = [{"what": of} | coverage(held, run)]
    for least, most in pairwise(bounds):
        if (rows_of := (expected >= least) & (expected < most)).any():
            rows.append({"what": of, "expected_failures": [least, most]} | coverage(held[rows_of], run[rows_of]))
    for row in rows:
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=1_000_000, help="draws of each run")
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    began, random = time.process_time(), np.random.default_rng(args.seed)
    rows = [(run, *row) for run in range(args.runs) for row in confirmed(args.draws, random)]
    run, f1, n1, f0, n0, p1, p0 = np.array(rows).T
    rates, ratios = failure_rates(f1, n1), rate_ratios(Trials.of(f1, n1), Trials.of(f0, n0))
    show("rates", (rates.low <= p1) & (p1 <= rates.high), n1 * p1, AT_CAPTION, run.astype(np.int64))
    ratio = p1 / p0
    show("ratios", (ratios.low <= ratio) & (ratio <= ratios.high), n0 * p0, AT_BASELINE, run.astype(np.int64))
    false = int((p1 <= p0 * (1 + 1e-9)).sum())
    about = {
        "runs": args.runs,
        "findings": len(rows),
        "false": false,
        "mean_rate_over_truth": float((f1 / n1 / p1).mean()),
    }
    print(json.dumps(about | {"cpu_s": round(time.process_time() - began)}))


if __name__ == "__main__":
    main()
