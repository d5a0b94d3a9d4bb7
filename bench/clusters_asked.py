"""How often an audit of labelled images asks about a column: one of cameras, and one that says nothing.

    python bench/clusters_asked.py --runs 200

Simulates answers to 1,200 images of two classes and two lights; cameras are crossed with both. Every run has one column
of cameras, with the intraclass correlation of its line, and one of batches, which is random.
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.scoring.clusters import answered_alike
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.cells import CellImages, CellName
from c2b_ray.steps.draw import ImageIds
from c2b_ray.tables import PREDICTIONS

IMAGES = 1200
CLASSES, LIGHTS = ("dog", "cat"), ("day", "dark")


def asked(random: np.random.Generator, accuracy: float, correlation: float, cameras: int) -> list[str]:
    """Returns the columns that one audit asks about. Accuracy differs by `cells`, by up to half its distance from 1."""
    cell = np.sort(random.integers(0, 4, IMAGES))
    camera, batch = random.integers(0, cameras, IMAGES), random.integers(0, cameras, IMAGES)
    mean = accuracy + (1 - accuracy) / 2 * (np.arange(4) / 3)
    rate = np.repeat(mean[:, None], cameras, axis=1)
    if correlation:
        size = 1 / correlation - 1
        rate = random.beta(mean[:, None] * size, (1 - mean[:, None]) * size, (4, cameras))
    right = random.random(IMAGES) < rate[cell, camera]
    ids = [f"{n:05}" for n in range(IMAGES)]
    names = tuple(CellName(target, "light", light) for target in CLASSES for light in LIGHTS)
    cells = CellImages(names, ImageIds(pa.array(ids, pa.large_string())), cell, np.arange(IMAGES), cell)
    label = [CLASSES[k // 2] if good else CLASSES[1 - k // 2] for k, good in zip(cell, right, strict=True)]
    columns = {"image_id": ids, "classifier": ["a"] * IMAGES, "label": label, "predicted_class": label}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    answers = answers_of(pa.Table.from_pylist(rows, PREDICTIONS), "a").to(cells)
    found = answered_alike({"a": answers}, np.arange(IMAGES), {"camera": camera, "batch": batch})
    return [one.column for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    print("accuracy  correlation  cameras  asked: camera  batch")
    for accuracy in (0.6, 0.9, 0.97):
        for correlation in (0.0, 0.02, 0.05, 0.1, 0.2):
            for cameras in (5, 20, 60):
                random = np.random.default_rng([int(1000 * accuracy), int(1000 * correlation), cameras])
                found = [asked(random, accuracy, correlation, cameras) for _ in range(runs)]
                shares = (sum(name in one for one in found) / runs for name in ("camera", "batch"))
                print(f"{accuracy:8}  {correlation:11}  {cameras:7}", *(f"{share:13.3f}" for share in shares))


if __name__ == "__main__":
    main()
