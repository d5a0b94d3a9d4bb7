"""Measures a classifier's true accuracy in every cell, on scenes rendered for the purpose.

Knows scenes, pictures and the Classifier role; does not know how a classifier was trained, nor what was planted in it.
It caches nothing: callers with many classifiers render once with `labelled` and count with `count_cells`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.roles import Classifier, Pixels
from c2b_ray.stats.scores import bias_scores
from c2b_ray.world.render import render
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES, Scene, sample

EVALUATION_SEEDS = 1000
"""The first seed of evaluation: training uses lower seeds; benchmarks and judges use seeds from 100,000 on."""

_CHUNK = 512  # scenes that are rendered and classified together

SCHEMA = pa.schema(
    [
        ("target_class", pa.string()),
        ("attribute", pa.string()),
        ("value", pa.string()),
        ("correct", pa.int64()),
        ("total", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Labelled:
    """Scenes and their pictures, uint8 (scenes, 64, 64, 3)."""

    scenes: tuple[Scene, ...]
    images: NDArray[np.uint8]


def render_all(scenes: Sequence[Scene], workers: int = 1) -> NDArray[np.uint8]:
    """Renders many scenes, uint8 (scenes, 64, 64, 3); `workers` processes share the work."""
    images = np.empty((len(scenes), 64, 64, 3), dtype=np.uint8)
    if workers <= 1 or len(scenes) < _CHUNK:
        for row, scene in enumerate(scenes):
            images[row] = render(scene)
        return images
    # Spawned, not forked: forking a process whose torch threads run can hang.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for row, image in enumerate(pool.map(render, scenes, chunksize=256)):
            images[row] = image
    return images


def labelled(n: int, seed: int, classes: Sequence[str] = CLASSES, workers: int = 1) -> Labelled:
    """Samples and renders n scenes of each class.

    Every class has the same n surroundings (`sample` with one seed and the class fixed), so that classes are
    comparable; everything but the class is uniform and independent.
    """
    scenes = tuple(scene for name in classes for scene in sample(n, seed, target_class=name))
    return Labelled(scenes, render_all(scenes, workers))


def correct_answers(classifier: Classifier, data: Labelled) -> NDArray[np.bool_]:
    """Tells whether the classifier's likeliest label is the scene's class; a row of NaN logits counts as wrong."""
    hits = np.zeros(len(data.scenes), dtype=bool)
    for start in range(0, len(data.scenes), _CHUNK):
        scenes = data.scenes[start : start + _CHUNK]
        images: list[Pixels] = list(data.images[start : start + _CHUNK])
        logits = classifier.logits(images, [f"scene-{start + row}" for row in range(len(scenes))])
        answers = np.where(np.isnan(logits).any(axis=1), -1, np.nan_to_num(logits).argmax(axis=1))
        hits[start : start + len(scenes)] = [
            k >= 0 and classifier.labels[k] == scene.target_class for k, scene in zip(answers, scenes, strict=True)
        ]
    return hits


def count_cells(scenes: Sequence[Scene], correct: NDArray[np.bool_]) -> pa.Table:
    """Counts correct and total of each (target_class, attribute, value) that occurs; SCHEMA, in the order of
    CLASSES."""
    counts: dict[tuple[str, str, str], list[int]] = {}
    for scene, hit in zip(scenes, correct.tolist(), strict=True):
        for name in ATTRIBUTES:
            cell = counts.setdefault((scene.target_class, name, scene.attribute(name)), [0, 0])
            cell[0] += hit
            cell[1] += 1
    rows = [
        {"target_class": c, "attribute": a, "value": v, "correct": counts[c, a, v][0], "total": counts[c, a, v][1]}
        for c in CLASSES
        for a, values in ATTRIBUTES.items()
        for v in values
        if (c, a, v) in counts
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def true_accuracies(
    classifiers: Mapping[str, Classifier], n: int, seed: int, classes: Sequence[str] = CLASSES
) -> dict[str, pa.Table]:
    """Counts correct and total of every cell (target_class, attribute, value) for each classifier, on the same scenes,
    each rendered once.

    n: scenes of each class, from `seed`; every attribute's cells are marginals of the same scenes. Memory holds one
    class's pictures at a time.
    """
    tables: dict[str, list[pa.Table]] = {name: [] for name in classifiers}
    for target_class in classes:
        data = labelled(n, seed, [target_class])
        for name, classifier in classifiers.items():
            tables[name].append(count_cells(data.scenes, correct_answers(classifier, data)))
    return {name: pa.concat_tables(parts) for name, parts in tables.items()}


def bias(table: pa.Table) -> pa.Table:
    """Adds `accuracy` and `phi` of each cell: its accuracy minus the mean accuracy of the attribute's other cells."""
    rows = table.to_pylist()
    for group in _attributes(rows):
        scores = bias_scores([row["correct"] for row in group], [row["total"] for row in group])
        for row, phi in zip(group, scores.tolist(), strict=True):
            row["accuracy"] = row["correct"] / row["total"] if row["total"] else float("nan")
            row["phi"] = phi
    schema = table.schema.append(pa.field("accuracy", pa.float64())).append(pa.field("phi", pa.float64()))
    return pa.Table.from_pylist(rows, schema=schema)


def _attributes(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["target_class"], row["attribute"]), []).append(row)
    yield from groups.values()
