"""Audits classifiers unlike the shipped ones by retrieval; each is a table of answers computed from the scenes.

    python bench/unlike.py --out D [--scenes N] [--classifiers N] [--seed S]

Audits run on an index of rendered scenes, as a user's would: the attributes are named, and captions retrieve images.
world:clip verifies the images (calibrated on other scenes), and 200 distinct images per cell are drawn at random from
those that it accepts. A classifier's answer to a scene is drawn once, from accuracies that follow a random rule of one
of these kinds:

    value      one value of an attribute lowers the accuracy of a class
    pair       a pair of values of two attributes does, but neither value alone
    swap       where a value shows (in any class), the classifier answers another class more often
    camera     a worse camera: all answers are worse, most of all for two values of two attributes
    control    no attribute matters

The rule gives the true φ of a cell, as the other attributes are uniform and independent.
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import c2b_ray
from c2b_ray.audits.index import build
from c2b_ray.audits.kit.session import Session
from c2b_ray.world import ATTRIBUTES, CLASSES
from c2b_ray.world.table import write_sample

TAU, STRONG = 0.05, 0.15
PAIRS = [["weather", "lighting"], ["setting", "size"]]
KINDS = ("value", "pair", "swap", "camera", "control")
Rule = dict[str, object]


def planted(kind: str, random: np.random.Generator) -> list[Rule]:
    """Returns the rules that lower accuracy: a class or None, attribute → value, and the loss."""

    def value(name: str) -> str:
        return str(random.choice(ATTRIBUTES[name]))

    names = list(ATTRIBUTES)
    if kind == "value":
        chosen = random.choice(CLASSES, 3, replace=False)
        return [
            {"class": str(c), "when": {name: value(name)}, "loss": float(random.choice([0.2, 0.3, 0.45]))}
            for c, name in zip(chosen, random.choice(names, 3), strict=True)
        ]
    if kind == "pair":
        return [
            {"class": str(c), "when": {a: value(a), b: value(b)}, "loss": float(random.choice([0.5, 0.7]))}
            for c, (a, b) in zip(random.choice(CLASSES, 3, replace=False), [*PAIRS, PAIRS[0]], strict=True)
        ]
    if kind == "swap":
        return [{"class": None, "when": {"colour": value("colour")}, "loss": float(random.choice([0.2, 0.35]))}]
    if kind == "camera":
        a, b = random.choice(names, 2, replace=False)
        return [{"class": None, "when": {n: value(n)}, "loss": 0.12} for n in (a, b)]
    return []


def accuracy(rules: list[Rule], base: float, target: str, shown: dict[str, str]) -> float:
    loss = sum(
        float(rule["loss"])  # type: ignore[arg-type]
        for rule in rules
        if rule["class"] in (None, target) and all(shown[n] == v for n, v in rule["when"].items())  # type: ignore[attr-defined]
    )
    return max(base - loss, 0.0)


def truth(rules: list[Rule], base: float, target: str) -> tuple[dict, dict]:
    """Returns φ of every (attribute, value), and the interactions of every cell of the pairs."""
    mine = [rule for rule in rules if rule["class"] in (None, target)]
    names = sorted({name for rule in mine for name in rule["when"]})  # type: ignore[attr-defined]
    grid = [dict(zip(names, values, strict=True)) for values in product(*(ATTRIBUTES[name] for name in names))]
    rates = [accuracy(mine, base, target, shown) for shown in grid]

    def mean(**fixed: str) -> float:
        kept = [r for s, r in zip(grid, rates, strict=True) if all(s.get(n, v) == v for n, v in fixed.items())]
        return float(np.mean(kept))

    phi, pairs = {}, {}
    for name, values in ATTRIBUTES.items():
        of = np.array([mean(**{name: value}) for value in values])
        for value, score in zip(values, of - (of.sum() - of) / (len(of) - 1), strict=True):
            phi[name, value] = float(score)
    for a, b in PAIRS:
        table = np.array([[mean(**{a: x, b: y}) for y in ATTRIBUTES[b]] for x in ATTRIBUTES[a]])
        residual = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
        for i, x in enumerate(ATTRIBUTES[a]):
            for j, y in enumerate(ATTRIBUTES[b]):
                pairs[a, b, x, y] = float(residual[i, j])
    return phi, pairs


def answers(path: Path, scenes: pa.Table, rules: list[Rule], base: float, random: np.random.Generator) -> None:
    rows = scenes.to_pylist()
    labels = []
    for row in rows:
        right = random.random() < accuracy(rules, base, row["target_class"], row)
        others = [name for name in (*CLASSES, "something else") if name != row["target_class"]]
        labels.append(row["target_class"] if right else str(random.choice(others)))
    pq.write_table(pa.table({"key": scenes["key"], "label": labels}), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenes", type=int, default=24_000)
    parser.add_argument("--classifiers", type=int, default=10)
    parser.add_argument("--classes", type=int, default=len(CLASSES))
    parser.add_argument("--seed", type=int, default=100_021)
    parser.add_argument("--no-pairs", action="store_true", help="skip intersections, which read most of the index")
    parser.add_argument("--via", default="actors")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(args.seed)
    scenes, calibration = args.out / "scenes.parquet", args.out / "calibration.parquet"
    write_sample(scenes, args.scenes, args.seed)
    write_sample(calibration, 4000, args.seed + 7)
    build(str(scenes), "world:clip", str(args.out / "index"), Session(args.via))
    shown = pq.read_table(scenes, columns=["key", "target_class", *ATTRIBUTES])
    made = {}
    for number in range(args.classifiers):
        kind = KINDS[number % len(KINDS)]
        rules, base = planted(kind, random), float(random.uniform(0.8, 0.95))
        name = f"{kind}-{number}"
        answers(args.out / f"{name}.parquet", shown, rules, base, random)
        made[name] = (rules, base)
    config = {
        "task": "Sort snapshots of ordinary things by what they show.",
        "classes": list(CLASSES[: args.classes]),
        "classifier": {name: f"table:{args.out / name}.parquet" for name in made},
        "images": {"source": "retrieve", "index": str(args.out / "index")},
        "attributes": {name: list(values) for name, values in ATTRIBUTES.items()},
        "intersections": PAIRS,
        "verification": {"model": "world:clip", "calibration": str(calibration)},
        "seed": args.seed,
    }
    config |= {"intersections": []} if args.no_pairs else {}
    run = c2b_ray.audit(config, args.out / "run", via=args.via)
    print(json.dumps(judged(run, made, args), indent=1))


Truths = list[tuple[dict, float]]
"""Rows of a run's table, each with the true value of its estimate."""


def judged(run: c2b_ray.Run, made: dict, args: argparse.Namespace) -> dict[str, object]:
    true = {(name, c): truth(*of, c) for name, of in made.items() for c in CLASSES[: args.classes]}
    cells = [
        (row, true[row["classifier"], row["target_class"]][0][row["attribute"], row["bias_class"]])
        for row in run.scores.to_pylist()
    ]
    names = ("attribute_a", "attribute_b", "value_a", "value_b")
    pairs = [
        (row, true[row["classifier"], row["target_class"]][1][tuple(row[name] for name in names)])
        for row in run.intersections.to_pylist()
    ]
    return {**of_cells(cells), **of_pairs(pairs), "seconds": run.manifest["seconds"]}


def of_cells(cells: Truths) -> dict[str, object]:
    strong = [(row, phi) for row, phi in cells if abs(phi) >= STRONG]
    findings = [(row, phi) for row, phi in cells if is_finding(row)]
    right = [abs(phi) > TAU and same_sign(row, phi) for row, phi in findings]
    none = [abs(phi) > TAU for row, phi in cells if row["verdict"] == "none"]
    hit = [is_finding(row) and same_sign(row, phi) for row, phi in strong]
    return {
        "cells": len(cells),
        "images a cell, least and median": [int(np.quantile([row["n"] for row, _ in cells], q)) for q in (0, 0.5)],
        "strong": len(strong),
        "strong found": share(hit),
        "findings": len(findings),
        "findings true": share(right),
        "strong cells' intervals hold": inside(strong),
        "all intervals hold": inside(cells),
        "none": len(none),
        "false none": share(none),
        "doubted": share([row["doubt"] is not None for row, _ in cells]),
        "missed": named([one for one, ok in zip(strong, hit, strict=True) if not ok]),
        "wrong": named([one for one, ok in zip(findings, right, strict=True) if not ok]),
    }


def of_pairs(pairs: Truths) -> dict[str, object]:
    findings = [(row, value) for row, value in pairs if is_finding(row)]
    right = [same_sign(row, value) and abs(value) > TAU for row, value in findings]
    strong = [row for row, value in pairs if value <= -0.25]
    return {
        "intersections called": len(findings),
        "intersections true": share(right),
        "strong intersections": len(strong),
        "strong intersections found": share([row["verdict"] == "against" for row in strong]),
        "wrong intersections": named([one for one, ok in zip(findings, right, strict=True) if not ok]),
    }


def is_finding(row: dict) -> bool:
    return row["verdict"] in ("for", "against")


def same_sign(row: dict, value: float) -> bool:
    return (value > 0) == (row["verdict"] == "for")


def share(hits: list[bool]) -> float | None:
    return round(float(np.mean(hits)), 4) if hits else None


def inside(rows: Truths) -> float | None:
    return share([row["phi_low"] <= phi <= row["phi_high"] for row, phi in rows if row["doubt"] is None])


def named(rows: Truths) -> list[str]:
    keys = ("classifier", "target_class", "attribute", "bias_class")
    return sorted(
        "/".join(r[k] for k in keys) + f" true {v:+.2f}, φ {r['phi']:+.2f}, {r.get('doubt')}" for r, v in rows
    )[:12]


if __name__ == "__main__":
    main()
