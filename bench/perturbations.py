"""Measures whether perturbations of the same images find what is planted, and whether their intervals hold.

    python bench/perturbations.py [--runs N] [--audits N] [--seed S]

Simulated answers: each image is right as long as a number of its own is above 0, and a perturbation lowers it from
level to level, so that the answers to one image depend on one another as real ones do. Whole audits: squares of three
colours with a fine grain, and a classifier that tells the colour, but calls a red picture green where its grain is
blurred; its control does not. Which effects are true is measured on other pictures of the same kind.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image
from scipy.special import ndtr, ndtri

import c2b_ray
from c2b_ray.audits.c2b.perturbation.effects import effects
from c2b_ray.audits.c2b.perturbation.images import Perturbing
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.config.images import Perturb, read_perturb
from c2b_ray.tables import PERTURBED_IMAGES

LEVELS = Thresholds(0.05, 0.05)
STRONG = 0.1
CLASSES = ("red", "green", "blue")
NOT_GREY = [name for name in Perturb.model_fields if name not in ("images", "grey")]
"""Perturbations that leave a picture its colour: without it the classifier would be a guess."""
SIDE, TRUTH = 48, 400
"""Pixels of a picture, and pictures of each class on which the true effects are measured."""
SPREAD = 0.35


def simulated(
    random: np.random.Generator, n: int, accuracies: np.ndarray, shifts: np.ndarray
) -> tuple[Any, np.ndarray]:
    """Returns the effects in one simulated run, and the true differences, in the rows' order. `accuracies` (classes,):
    unperturbed; `shifts` (classes, perturbations, levels): how far each perturbation moves an image, in deviations."""
    classes, perturbations, levels = shifts.shape
    ability = random.standard_normal((classes, n)) + ndtri(accuracies)[:, None]
    # What a perturbation does to an image differs between images, and is the same at each of its levels.
    own = random.standard_normal((classes, perturbations, 1, n)) * SPREAD
    scale = np.arange(1, levels + 1)[None, None, :, None] / levels
    right = ability[:, None, None, :] - shifts[..., None] + own * scale > 0
    names = [f"class {number}" for number in range(classes)]
    ids = np.array([f"{name} {number}" for name in names for number in range(n)])
    images = pa.table(
        {
            "image_id": ids,
            "target_class": np.repeat(names, n),
            "repeat": np.zeros(len(ids), bool),
            "cluster": pa.nulls(len(ids), pa.string()),
        }
    ).cast(PERTURBED_IMAGES)
    kinds = [(f"kind {p}", level + 1) for p in range(perturbations) for level in range(levels)]
    answers = {("none", 0): ability > 0}
    answers |= {kind: right[:, number // levels, number % levels] for number, kind in enumerate(kinds)}
    predictions = pa.concat_tables(_answers(ids, np.repeat(names, n), kind, given) for kind, given in answers.items())
    moved = (ndtri(accuracies)[:, None, None] - shifts) / np.sqrt(1 + (SPREAD * scale[..., 0]) ** 2)
    true = ndtr(moved) - accuracies[:, None, None]
    return effects(images, predictions, ["net"], kinds, LEVELS), true.transpose(1, 2, 0).ravel()


def _answers(ids: np.ndarray, targets: np.ndarray, kind: tuple[str, int], right: np.ndarray) -> pa.Table:
    given = pa.array(np.where(right.ravel(), targets, "another"))
    nothing = pa.nulls(len(ids), pa.string())
    return pa.table(
        {
            "classifier": pa.repeat("net", len(ids)),
            "image_id": ids,
            "perturbation": pa.repeat(kind[0], len(ids)),
            "level": pa.array(np.full(len(ids), kind[1]), pa.int8()),
            "label": given,
            "predicted_class": given,
            "answered": pa.nulls(len(ids), pa.list_(pa.string())),
            "undecided": nothing,
            "error": nothing,
        }
    )


def simulations(runs: int, seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    accuracies = np.array([0.6, 0.75, 0.9, 0.97])
    rows: list[tuple[float, float, float, float, str, float]] = []
    none_found = none_runs = 0
    for run in range(runs):
        planted = run % 2 == 0
        strength = random.choice([0.0, 0.0, 0.15, 0.4, 1.0, 2.0], (4, 6, 1)) if planted else np.zeros((4, 6, 1))
        shifts = strength * np.linspace(0.3, 1, 3)
        table, true = simulated(random, n, accuracies, shifts)
        found = [verdict in ("for", "against") for verdict in table["verdict"].to_pylist()]
        if not planted:
            none_runs += 1
            none_found += any(found)
        columns = ("difference", "difference_low", "difference_high", "verdict", "accuracy_unperturbed")
        for row, truth in zip(table.select(columns).to_pylist(), true.tolist(), strict=True):
            rows.append((truth, *(row[name] for name in columns)))
    truth, d, low, high, verdict, _ = (np.array(column) for column in zip(*rows, strict=True))
    held = (low <= truth) & (truth <= high)
    found = np.isin(verdict, ("for", "against"))
    false = found & ((np.abs(truth) <= LEVELS.tau) | (np.sign(truth) != np.sign(d)))
    strong = np.abs(truth) > STRONG
    clear = verdict == "none"
    print(f"simulated, {n} images a class, {runs} runs, {len(rows):,} rows")
    print(f"  intervals hold {held.mean():.3f}; of strong {held[strong].mean():.3f}; of found {held[found].mean():.3f}")
    print(f"  strong (> {STRONG}) found {found[strong].mean():.3f} of {strong.sum():,}")
    print(f"  false findings {false.sum()} of {found.sum():,}")
    print(f"  'none' said of {clear.mean():.3f}, wrongly {np.mean(np.abs(truth[clear]) > LEVELS.tau):.4f}")
    print(f"  runs without any effect beyond tau that find one: {none_found} of {none_runs}")


def pictures(n: int, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Yields class and picture: one colour stronger than the others, and grain of a strength of its own."""
    random = np.random.default_rng(seed)
    for number in range(n * len(CLASSES)):
        place = number % len(CLASSES)
        colour = random.uniform(50, 90, 3)
        colour[place] = colour.max() + random.uniform(40, 70)
        grain = random.normal(0, random.uniform(4, 24), (SIDE, SIDE, 1))
        yield CLASSES[place], np.clip(colour + grain, 0, 255).astype(np.uint8)


def control(images: list[np.ndarray]) -> np.ndarray:
    return np.stack([image.reshape(-1, 3).mean(axis=0) for image in images])


def planted(images: list[np.ndarray]) -> np.ndarray:
    """Takes red for green where neighbours differ by little beside pixels two apart: where the grain is blurred."""
    logits = control(images)
    for row, image in zip(logits, images, strict=True):
        light = image.astype(float).mean(axis=2)
        near, far = (np.abs(light[step:] - light[:-step]).mean() for step in (1, 2))
        if row.argmax() == 0 and near < 0.8 * far:
            row[:2] = row[1::-1]
    return logits


def audits(count: int, seed: int) -> None:
    models = {"planted": planted, "control": control}
    perturb = {**read_perturb(NOT_GREY), "images": 200}
    truths = true_effects(Perturb.model_validate(perturb), models, seed + 1)
    strong = {key for key, effect in truths.items() if abs(effect) > STRONG}
    tally = dict.fromkeys(("found", "strong", "findings", "true", "held", "rows", "control"), 0)
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            rows = ["image,target_class"]
            for i, (name, picture) in enumerate(pictures(200, seed + 10 + number)):
                Image.fromarray(picture).save(f"{folder}/{i}.png")
                rows.append(f"{i}.png,{name}")
            Path(folder, "table.csv").write_text("\n".join(rows))
            config = {
                "task": "Name the colour.",
                "classes": list(CLASSES),
                "images": {"source": "labelled", "table": f"{folder}/table.csv"},
                "perturb": perturb,
            }
            in_memory = {name: c2b_ray.InMemory(model, list(CLASSES)) for name, model in models.items()}
            run = c2b_ray.audit(config, f"{folder}/run", "here", classifier=in_memory)
            for row in run.read("perturbations").to_pylist():
                key = (row["classifier"], row["target_class"], row["perturbation"], row["level"])
                found = row["verdict"] in ("for", "against")
                tally["rows"] += 1
                tally["held"] += row["difference_low"] <= truths[key] <= row["difference_high"]
                tally["findings"] += found
                tally["true"] += found and abs(truths[key]) > LEVELS.tau
                tally["control"] += found and row["classifier"] == "control"
                tally["strong"] += key in strong
                tally["found"] += found and key in strong
    print(f"whole audits: {count} of 600 pictures, two classifiers, {tally['rows']} rows")
    print(f"  planted (true effect > {STRONG}): {sorted(key[1:] for key in strong)}")
    print(f"  of these found {tally['found']} of {tally['strong']}")
    print(f"  findings true {tally['true']} of {tally['findings']}; findings about the control {tally['control']}")
    print(f"  intervals hold {tally['held'] / tally['rows']:.3f}")


def true_effects(perturb: Perturb, models: dict[str, Any], seed: int) -> dict[tuple[str, str, str, int], float]:
    """Returns the effects on other pictures than those that are audited."""
    perturbing, right = Perturbing(tuple(perturb.levels.items()), 256, 0), {}
    for i, (name, picture) in enumerate(pictures(TRUTH, seed)):
        for kind in perturbing.each():
            shown = perturbing.picture(picture, f"truth {i}", *kind)
            for model, answer in models.items():
                said = CLASSES[int(answer([shown])[0].argmax())]
                right.setdefault((model, name, *kind), []).append(said == name)
    rates = {key: float(np.mean(of)) for key, of in right.items()}
    return {key: rate - rates[(*key[:2], "none", 0)] for key, rate in rates.items() if key[3]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--audits", type=int, default=3)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--seed", type=int, default=100_300)
    args = parser.parse_args()
    simulations(args.runs, args.seed, args.images)
    if args.audits:
        audits(args.audits, args.seed)


if __name__ == "__main__":
    main()
