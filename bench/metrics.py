"""Measures intervals and findings of metrics other than accuracy on simulated classifiers, and their cost.

    python bench/metrics.py [--runs N] [--seed S]

Images of three classes and an attribute of three values, 150 or 400 of a value. A classifier's answer and probabilities
depend on the class; in half of the runs one class's images are also answered worse with one value, or answered with
another class more often. Four kinds: no effect; an effect; the classes in another mix with one value and no effect; few
images. The true values are those of 400,000 images. It goes through the audit's own scoring, from tables of
predictions.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.scoring.metric import Measure
from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.stats.classification import METRICS, Outcomes
from c2b_ray.tables import CAPTIONS, DRAWS, PREDICTIONS

CLASSES, VALUES = ("bus", "cat", "mug"), ("sun", "fog", "rain")
LEVELS = Thresholds(0.05, 0.05)
KINDS = ("no effect", "effect", "mix", "few images")
NAMES = ("precision", "f1", "auroc", "confidence", "calibration")
TRUTH = 400_000


def drawn(kind: str, images: int, random: np.random.Generator) -> tuple[Any, Any, Any]:
    """Returns class and value of each image, and the probabilities of the classes."""
    value = np.arange(images) % 3
    shares = np.full((3, 3), 1 / 3)
    if kind == "mix":
        shares[1] = [0.1, 0.45, 0.45]  # in fog
    truth = (random.random(images)[:, None] > np.cumsum(shares[value], axis=1)[:, :2]).sum(axis=1)
    logits = random.normal(0, 1, (images, 3)) + 1.8 * np.eye(3)[truth]
    if kind == "effect":  # cats in fog look like buses
        logits[(truth == 1) & (value == 1)] += [1.8, -1.2, 0]
    shares_of = np.exp(logits)
    return truth, value, shares_of / shares_of.sum(axis=1, keepdims=True)


def true_phi(kind: str, random: np.random.Generator) -> dict[str, Any]:
    """Returns φ of every metric, (classes, values)."""
    truth, value, probabilities = drawn(kind, TRUTH, random)
    answers, phi = probabilities.argmax(axis=1), {}
    for name in NAMES:
        rows = []
        for number in range(3):
            outcomes = Outcomes.of(truth == number, answers == number, probabilities[:, number])
            values = METRICS[name].estimate(outcomes, value, 3).value
            rows.append([values[j] - np.delete(values, j).mean() for j in range(3)])
        phi[name] = np.array(rows)
    return phi


def tables(truth: Any, value: Any, probabilities: Any) -> tuple[pa.Table, pa.Table, pa.Table]:
    ids = np.array([f"{i:020x}" for i in range(len(truth))])
    cells = [(c, v) for c in range(3) for v in range(3)]
    captions = pa.table(
        {
            "caption_id": [f"{c}{v}" for c, v in cells],
            "proposal_id": [f"{c}" for c, _ in cells],
            "kind": ["attribute"] * 9,
            "target_class": [CLASSES[c] for c, _ in cells],
            "attribute": ["weather"] * 9,
            "bias_class": [VALUES[v] for _, v in cells],
            "number": [0] * 9,
            "text": [""] * 9,
        }
    ).cast(CAPTIONS)
    draws = pa.table(
        {
            "caption_id": [f"{c}{v}" for c, v in zip(truth.tolist(), value.tolist(), strict=True)],
            "image_id": ids,
            "rank": np.arange(len(ids), dtype=np.int32),
            "similarity": pa.nulls(len(ids), pa.float32()),
            "source": ["labelled"] * len(ids),
        }
    ).cast(DRAWS)
    names = [CLASSES[number] for number in probabilities.argmax(axis=1)]
    columns = {
        "prediction_id": ids, "image_id": ids, "classifier": ["c"] * len(ids), "revision": ["1"] * len(ids),
        "label": names, "predicted_class": names, "probabilities": probabilities.astype(np.float32).tolist(),
    }  # fmt: skip
    filled = {f.name: columns.get(f.name, pa.nulls(len(ids), f.type)) for f in PREDICTIONS}
    return captions, draws, pa.table(filled).cast(PREDICTIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=100_800)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    begun = time.process_time()
    for kind in KINDS:
        phi = true_phi("no effect" if kind == "few images" else kind, random)
        counts: dict[str, Any] = defaultdict(lambda: np.zeros(8, int))
        for _ in range(arguments.runs):
            data = drawn(kind, 180 if kind == "few images" else 1200, random)
            captions, draws, predictions = tables(*data)
            for name in NAMES:
                measure = Measure.of(name, CLASSES, int(random.integers(2**31)))
                rows = scored(captions, draws, predictions, ["c"], LEVELS, measure=measure)[0].to_pylist()
                for row in rows:
                    true = phi[name][CLASSES.index(row["target_class"]), VALUES.index(row["bias_class"])]
                    finding = row["verdict"] in ("for", "against")
                    none = row["verdict"] == "none"
                    false = finding and (np.sign(row["phi"]) != np.sign(true) or abs(true) <= LEVELS.tau)
                    strong = abs(true) > 0.1 and kind != "mix"
                    counts[name] += (
                        1, row["phi_low"] <= true <= row["phi_high"], finding, false, strong, strong and finding,
                        none, none and abs(true) > LEVELS.tau,
                    )  # fmt: skip
        for name, (cells, held, findings, false, strong, found, none, wrong) in counts.items():
            print(
                f"| {kind}, {name}: intervals of φ hold; findings, false; cells beyond .1, found; none, wrong | "
                f"**{held / cells:.3f}**; {findings}, {false}; {strong}, {found}; {none}, {wrong} (of {cells}) |"
            )
    print(f"{time.process_time() - begun:.0f} CPU-s")


if __name__ == "__main__":
    main()
