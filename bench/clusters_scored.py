"""Simulates images in clusters through the scoring steps: φ of cells, φ of all classes together, and comparisons.

    python bench/clusters_scored.py [--runs 10] [--seed 100021] [--cells]

A run has three classes, two attributes of two values and two classifiers, as accurate on one value as on the other or
not. Labelled cells have one caption, retrieved ones five, which differ by a standard deviation of .05. Each camera
shows one value of the attribute `place`, and all values of `light`; all cameras show all classes. Images of one camera
share an effect, on the probit scale, with the intraclass correlation ICC of right answers; a camera's effects on the
two classifiers have a correlation of .5, and so have those of captions and of single images.

Each line has the mean over the rest of the grid: intervals that hold the truth, and rejections of a true null at .05
(of φ = 0 or no difference). Cells in doubt are left out. What would hold if images were taken as independent is
measured in every tenth run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri, owens_t

from c2b_ray.audits.c2b.scoring.clusters import Clusters
from c2b_ray.audits.c2b.scoring.comparison import ComparisonSide, SharedImages, compare, compare_pooled
from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.tables import CAPTIONS, CLUSTERS, DRAWS, PREDICTIONS

CLASSES, ATTRIBUTES, VALUES = ("bus", "car", "van"), ("place", "light"), ("a", "b")
CELLS = list(product(CLASSES, ATTRIBUTES, VALUES))
CLASSIFIERS = ("m", "other")
CAPTION_SPREAD = 0.05
CORRELATION = 0.5

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Tally = dict[str, list[bool]]


class Setting(NamedTuple):
    source: str
    icc: float
    clusters: int
    sizes: str
    accuracy: float
    images: int  # a cell
    gap: float


def settings() -> Iterator[Setting]:
    grid = product((0.02, 0.05, 0.2), (5, 10, 20, 50), ("equal", "unequal"), (0.6, 0.8, 0.95))
    for number, one in enumerate(grid):
        for source in ("labelled", "retrieve"):
            yield Setting(source, *one, images=(60, 200)[number % 2], gap=(0.0, 0.1)[number // 2 % 2])


def deviation(accuracy: float, icc: float) -> float:
    """Returns the share of the probit scale's variance that gives right answers this intraclass correlation."""
    at = ndtri(accuracy)

    def excess(share: float) -> float:
        both = accuracy - 2 * owens_t(at, np.sqrt((1 - share) / (1 + share)))
        return float((both - accuracy**2) / (accuracy * (1 - accuracy)) - icc)

    return float(brentq(excess, 0.0, 0.999))


class Images:
    """The images of all runs of a setting; a row per image."""

    def __init__(self, s: Setting) -> None:
        each = 1 if s.source == "labelled" else 5
        names = [f"{'/'.join(cell)}/{k}" for cell in CELLS for k in range(each)]
        fields = [
            {"caption_id": name, "proposal_id": "-".join(cell[:2]), "kind": "attribute", "number": k, "text": name}
            | dict(zip(("target_class", "attribute", "bias_class"), cell, strict=True))
            for name, (cell, k) in zip(names, product(CELLS, range(each)), strict=True)
        ]
        self.captions = pa.Table.from_pylist(fields, CAPTIONS)
        self.caption = np.repeat(np.arange(len(names)), s.images // each)
        self.cell = self.caption // each
        self.ids = pa.array([f"image {i}" for i in range(len(self.caption))])
        columns = {
            "caption_id": pa.array(names).take(pa.array(self.caption)),
            "image_id": self.ids,
            "rank": pa.array(np.arange(len(self.ids)) % (s.images // each), pa.int32()),
            "similarity": pa.nulls(len(self.ids), pa.float32()),
            "source": pa.repeat(s.source, len(self.ids)),
        }
        self.draws = pa.table(columns).cast(DRAWS)
        self.classes = np.array([cell[0] for cell in CELLS])[self.cell]
        self.value = np.array([VALUES.index(cell[2]) for cell in CELLS])[self.cell]
        self.constant = np.array([cell[1] == "place" for cell in CELLS])[self.cell]

    def cameras(self, s: Setting, random: np.random.Generator) -> Ints:
        size = random.lognormal(0, 0.9, s.clusters) if s.sizes == "unequal" else np.ones(s.clusters)
        shows = np.arange(s.clusters) % 2  # the value of `place`
        camera = np.zeros(len(self.ids), np.int64)
        for value in (None, 0, 1):
            here = ~self.constant if value is None else self.constant & (self.value == value)
            chance = size if value is None else size * (shows == value)
            camera[here] = random.choice(s.clusters, here.sum(), p=chance / chance.sum())
        return camera

    def right(self, s: Setting, camera: Ints, random: np.random.Generator) -> tuple[Floats, Floats]:
        """Returns right answers of both classifiers, bool (2, images), and the accuracies of the values."""
        true = np.array([s.accuracy - s.gap, s.accuracy])
        result = np.zeros((2, len(self.ids)))
        effects = [_pairs(random, n) for n in (s.clusters, len(self.captions), len(self.ids))]
        for value, accuracy in enumerate(true):
            here = self.value == value
            of_caption = 0.0 if s.source == "labelled" else CAPTION_SPREAD**2 / (accuracy * (1 - accuracy))
            shares = [deviation(accuracy, s.icc), deviation(accuracy, of_caption) if of_caption else 0.0]
            shares.append(1 - sum(shares))
            numbers = camera[here], self.caption[here], np.flatnonzero(here)
            total = sum(np.sqrt(v) * one[:, at] for v, one, at in zip(shares, effects, numbers, strict=True))
            result[:, here] = total < ndtri(accuracy)
        return result, true


def _pairs(random: np.random.Generator, n: int) -> Floats:
    """Returns normal effects on both classifiers, (2, n)."""
    shared, own = random.normal(size=n), random.normal(size=(2, n))
    effects: Floats = np.sqrt(CORRELATION) * shared + np.sqrt(1 - CORRELATION) * own
    return effects


def predictions(images: Images, right: Floats) -> pa.Table:
    tables = []
    for name, of_classifier in zip(CLASSIFIERS, right, strict=True):
        columns: dict[str, Any] = {field.name: pa.nulls(len(images.ids), field.type) for field in PREDICTIONS}
        columns |= {
            "prediction_id": pa.array([f"{name} {i}" for i in range(len(images.ids))]),
            "image_id": images.ids,
            "classifier": pa.repeat(name, len(images.ids)),
            "revision": pa.repeat("1", len(images.ids)),
            "predicted_class": pa.array(np.where(of_classifier > 0, images.classes, "none")),
        }
        tables.append(pa.table(columns).cast(PREDICTIONS))
    return pa.concat_tables(tables)


def run(s: Setting, images: Images, random: np.random.Generator, tally: Tally, independent: bool) -> None:
    camera = images.cameras(s, random)
    right, true = images.right(s, camera, random)
    answers, thresholds = predictions(images, right), Thresholds(0.0, 0.05)
    named = pa.array([f"camera {number}" for number in camera])
    known = Clusters(pa.table({"image_id": images.ids, "cluster": named}).cast(CLUSTERS), "camera")
    for how, clusters in (("", known), (", independent", None))[: 1 + independent]:
        of_cells, pooled = scored(images.captions, images.draws, answers, CLASSIFIERS, thresholds, clusters=clusters)
        sides = [
            ComparisonSide(images.captions, images.draws, answers, name, clusters=clusters) for name in CLASSIFIERS
        ]
        shared = SharedImages(*sides)
        pairs, pooled_pairs = compare(shared, 0.0, 0.05), compare_pooled(shared, 0.0, 0.05)
        tables = (
            ("cells", of_cells, "phi", "p_value"),
            ("pooled", pooled, "phi", "p_value"),
            ("pairs", pairs, "difference", "p_value"),
            ("pairs of phi", pairs, "phi_difference", "phi_p_value"),
            ("pooled pairs", pooled_pairs, "difference", "p_value"),
        )
        for name, table, number, p_value in tables:
            for row in table.to_pylist():
                low, high = row[f"{number}_low"], row[f"{number}_high"]
                if row["doubt"] is not None or not low <= high:  # NaN where there is nothing to compare
                    continue
                truth = (-1) ** VALUES.index(row["bias_class"]) * (true[0] - true[1]) if number == "phi" else 0.0
                tally.setdefault(f"{name}{how}", []).append(low <= truth <= high)
                if not truth:
                    tally.setdefault(f"false {name}{how}", []).append(row[p_value] <= 0.05)


def show(title: str, rows: list[tuple[Setting, dict[str, float]]]) -> None:
    names = list(dict.fromkeys(name for _, row in rows for name in row))
    numbers = "; ".join(f"{name} {np.mean([row[name] for _, row in rows if name in row]):.3f}" for name in names)
    print(f"{title}: {numbers}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="of each setting")
    parser.add_argument("--seed", type=int, default=100_021)
    parser.add_argument("--cells", action="store_true", help="print each setting too")
    args = parser.parse_args()
    began, random = time.process_time(), np.random.default_rng(args.seed)
    rows = []
    for setting in settings():
        images, tally = Images(setting), Tally()
        for number in range(args.runs):
            run(setting, images, random, tally, number % 10 == 0)
        rows.append((setting, {name: float(np.mean(held)) for name, held in tally.items()}))
        if args.cells:
            show(str(tuple(setting)), rows[-1:])
    for source in ("labelled", "retrieve"):
        chosen = [row for row in rows if row[0].source == source]
        show(source, chosen)
        for field in ("icc", "clusters", "sizes", "accuracy"):
            for value in dict.fromkeys(getattr(setting, field) for setting, _ in chosen):
                show(f"{source} {field} {value}", [row for row in chosen if getattr(row[0], field) == value])
    print(json.dumps({"runs": args.runs, "seed": args.seed, "cpu_s": round(time.process_time() - began)}))


if __name__ == "__main__":
    main()
