"""Simulates audits of an unbiased classifier whose captions differ: how many have a finding.

    .venv/bin/python bench/null_audits.py [--audits 100] [--seed 43]

Two classes with attributes of two, three and four values, 200 images a cell. All cells have one accuracy; that of each
caption lies about it.
"""

import argparse

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.tables import CAPTIONS, DRAWS, PREDICTIONS

VALUES = (2, 3, 4)
IMAGES = 200


def captions_and_draws(captions: int) -> tuple[pa.Table, pa.Table]:
    cells = [(c, a, v) for c in range(2) for a, values in enumerate(VALUES) for v in range(values)]
    rows, draws = [], []
    for c, a, v in cells:
        for k in range(captions):
            name = f"{c}-{a}-{v}-{k}"
            cell = {"target_class": f"class {c}", "attribute": f"attribute {a}", "bias_class": f"value {v}"}
            about = {"caption_id": name, "proposal_id": f"{c}-{a}", "kind": "attribute", "number": k, "text": name}
            rows.append(about | cell)
            drawn = ({"image_id": f"{name}-{i}", "rank": i} for i in range(IMAGES // captions))
            draws += [{"caption_id": name, "source": "generate", **image} for image in drawn]
    return pa.Table.from_pylist(rows, CAPTIONS), pa.Table.from_pylist(draws, DRAWS)


def answers(
    random: np.random.Generator, captions: pa.Table, draws: pa.Table, spread: float, accuracy: float
) -> pa.Table:
    """Answers of a classifier as good at every value; captions differ by a standard deviation of `spread`."""
    rates = np.clip(accuracy + spread * random.normal(size=len(captions)), 0, 1)
    images = draws["image_id"].to_pylist()
    each = len(images) // len(captions)
    right = random.random(len(images)) < np.repeat(rates, each)
    classes = np.repeat(captions["target_class"].to_pylist(), each)
    columns = {"prediction_id": images, "image_id": images, "predicted_class": np.where(right, classes, "other")}
    constants = {"classifier": "m", "revision": "1"}
    rows = [dict(zip(columns, row, strict=True)) | constants for row in zip(*columns.values(), strict=True)]
    return pa.Table.from_pylist(rows, PREDICTIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=100)
    parser.add_argument("--seed", type=int, default=43)
    asked = parser.parse_args()
    for count in (1, 2, 5):
        captions, draws = captions_and_draws(count)
        for spread in (0.0, 0.05, 0.15):
            random = np.random.default_rng([asked.seed, count, round(100 * spread)])
            found = 0
            for _ in range(asked.audits):
                predictions = answers(random, captions, draws, spread, random.uniform(0.6, 0.9))
                verdicts = scored(captions, draws, predictions, ["m"], Thresholds(0.05, 0.05))[0]["verdict"].to_pylist()
                found += bool({"for", "against"} & set(verdicts))
            print(f"{count} captions a cell, SD {spread:.2f}: {found} of {asked.audits} with a finding", flush=True)


if __name__ == "__main__":
    main()
