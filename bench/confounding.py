"""Tests findings about an attribute that correlates with another, both verified with errors: claims against the truth.

    python bench/confounding.py [--repeats N] [--seed S] [--only NAME …]

Images are drawn for every value of A and of B, and show what they were drawn for. They have seven attributes; A and B
agree in .8 of the images, the others are independent. The verifier is right on each attribute as often as the case
says; 150 images of each value calibrate it. The columns are about the first value of A (or B):

    before   share of runs in which φ by itself is a finding (p ≤ .05 of |φ| ≤ .05)
    finding  share of runs in which it remains a finding after standardisation by the other attributes
    held     share of runs in which the widened limits of φ contain the true φ
    mean     mean of the standardised φ
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.scoring.confounding import Confounding
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.c2b.verification.verified import Verified
from c2b_ray.stats import contrast_test
from c2b_ray.stats.noisy_labels import Known, corrected
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.cells import images_of_cells
from c2b_ray.steps.intersect import ATTRIBUTE
from c2b_ray.tables import CALIBRATION, CAPTIONS, DRAWS, PREDICTIONS, VERIFICATIONS

TAU, ALPHA = 0.05, 0.05
ATTRIBUTES = "ABCDEFG"


@dataclass(frozen=True)
class Case:
    """`a`, `b`: what the first value of A or of B alone adds to accuracy; `both`: what their joint presence adds."""

    of: str
    n: int
    values: int
    skill: float
    a: float = 0.0
    b: float = 0.0
    both: float = 0.0
    together: float = 0.8
    drawn: str = "AB"

    @property
    def phi(self) -> float:
        return (self.a if self.of == "A" else self.b) + self.both / self.values


CASES = {
    f"{name}, {values} values, n {n}, verified {skill}": Case(of, n, values, skill, **more)
    for values in (2, 3, 6)
    for n in (100, 200, 400)
    for skill in (1.0, 0.9, 0.7)
    for name, of, more in (
        ("B is the cause: A", "A", {"b": -0.4}),
        ("B is the cause: B", "B", {"b": -0.4}),
        ("A alone, nothing goes with it: A", "A", {"a": -0.3, "together": 1 / values}),
        ("A and B: A", "A", {"a": -0.3, "b": -0.3}),
        ("A, B and both: A", "A", {"a": -0.1, "b": -0.2, "both": -0.3}),
    )
}


def confusion(values: int, skill: float) -> np.ndarray:
    return np.where(np.eye(values, dtype=bool), skill, (1 - skill) / (values - 1))


def drawn(random: np.random.Generator, case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Returns the values that images show, and the attribute that each was drawn for."""
    shows, groups = [], []
    for group in case.drawn:
        own, other = (0, 1) if group == "A" else (1, 0)
        for value in range(case.values):
            at = random.integers(0, case.values, (case.n, len(ATTRIBUTES)))
            apart = (value + random.integers(1, case.values, case.n)) % case.values
            at[:, own], at[:, other] = value, np.where(random.random(case.n) < case.together, value, apart)
            shows.append(at)
            groups.append(np.full(case.n, own))
    return np.vstack(shows), np.concatenate(groups)


def run(random: np.random.Generator, case: Case) -> tuple[bool, bool, bool, float]:
    shows, groups = drawn(random, case)
    first = shows == 0
    chance = 0.95 + case.a * first[:, 0] + case.b * first[:, 1] + case.both * (first[:, 0] & first[:, 1])
    right, rates = random.random(len(shows)) < chance, confusion(case.values, case.skill)
    said = (random.random((*shows.shape, 1)) > rates.cumsum(axis=1)[shows]).sum(axis=2).clip(0, case.values - 1)
    known = [np.array([random.multinomial(150, row) for row in rates], float) for _ in ATTRIBUTES]
    cells = images_of_cells(captions_of(case), draws_of(shows, groups))
    at = ATTRIBUTES.index(case.of)
    table = np.zeros((2, case.values, case.values))
    here = groups == at
    np.add.at(table, (1 - right[here], shows[here, at], said[here, at]), 1)
    estimate = corrected(table[0], table[1], Known(known[at], None), 1 - ALPHA)
    scores = contrast_test(estimate.accuracy, estimate.effective, TAU, 1 - ALPHA, estimate.covariance)
    (group,) = (one for one in cells.groups if one.attribute == case.of)
    adjusted = Confounding(Verified(verifications_of(said), calibration_of(known)).of(cells)).adjust(
        group,
        answers_of(predictions_of(right), "m").to(cells),
        Thresholds(TAU, ALPHA),
        scores.phi,
        scores.phi_low,
        scores.phi_high,
    )
    if adjusted is None:
        raise RuntimeError("nothing is known of other attributes")
    low, high = adjusted.limits(scores.phi_low, scores.phi_high, 1 - ALPHA)
    before = bool(scores.p_value[0] <= ALPHA)
    stands = before and bool(adjusted.p_value[0] <= ALPHA) and adjusted.doubt[0] is None
    return before, stands, bool(low[0] <= case.phi <= high[0]), float(adjusted.phi[0])


def captions_of(case: Case) -> pa.Table:
    rows = [
        {"caption_id": f"{b}-{v}", "proposal_id": b, "target_class": "bus", "attribute": b, "bias_class": f"{v}"}
        | {"number": 0, "text": f"{b}-{v}", "kind": ATTRIBUTE}
        for b in case.drawn
        for v in range(case.values)
    ]
    return pa.Table.from_pylist(rows, CAPTIONS)


def draws_of(shows: np.ndarray, groups: np.ndarray) -> pa.Table:
    rows = [
        {"caption_id": f"{ATTRIBUTES[group]}-{shows[i, group]}", "image_id": f"{i}", "rank": i, "source": "retrieve"}
        for i, group in enumerate(groups)
    ]
    return pa.Table.from_pylist(rows, DRAWS)


def verifications_of(said: np.ndarray) -> pa.Table:
    rows = [
        {"verification_id": f"{i}", "image_id": f"{i}", "target_class": "bus", "class_shown": None, "revision": "1"}
        | {"attributes": list(ATTRIBUTES), "values": [f"{v}" for v in row], "certainties": [None] * len(ATTRIBUTES)}
        for i, row in enumerate(said)
    ]
    return pa.Table.from_pylist(rows, VERIFICATIONS)


def calibration_of(known: list[np.ndarray]) -> pa.Table:
    rows = [
        {"attribute": b, "value": f"{k}", "answer": f"{w}", "images": images, "source": "table"}
        for b, table in zip(ATTRIBUTES, known, strict=True)
        for (k, w), images in np.ndenumerate(table)
    ]
    return pa.Table.from_pylist(rows, CALIBRATION)


def predictions_of(right: np.ndarray) -> pa.Table:
    rows = [
        {"prediction_id": f"{i}", "image_id": f"{i}", "classifier": "m", "revision": "1"}
        | {"predicted_class": "bus" if good else "boat"}
        for i, good in enumerate(right)
    ]
    return pa.Table.from_pylist(rows, PREDICTIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100_009)
    parser.add_argument("--only", nargs="*", default=[], help="cases whose names hold all of these")
    args = parser.parse_args()
    for number, (name, case) in enumerate(CASES.items()):
        if not all(word in name for word in args.only):
            continue
        results = [run(np.random.default_rng([args.seed, number, repeat]), case) for repeat in range(args.repeats)]
        means = np.mean(np.array(results, float), axis=0).round(3)
        columns = dict(zip(("before", "finding", "held", "mean"), means.tolist(), strict=True))
        print(json.dumps({"case": name, "true": round(case.phi, 3), **columns}), flush=True)


if __name__ == "__main__":
    main()
