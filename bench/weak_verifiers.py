"""Audits by retrieval with verifiers that err: classifiers of known accuracies, and what the audits say of them.

    python bench/weak_verifiers.py --out D [--verifiers SPEC …] [--calibrations N …] [--classifiers N] [--seed S]

As `unlike`, with three of the world's ten classes, an index of world:clip, and a verifier that is another model. The
images of the other seven classes outnumber those of the three, so a verifier that takes some of them for a class fills
its cells with them. A third of the classifiers are right on every image, a third as often on all, and a third have one
value that lowers a class's accuracy.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from unlike import TAU, answers, is_finding, of_cells, planted, same_sign, share, truth

import c2b_ray
from c2b_ray.audits.index import build
from c2b_ray.audits.kit.session import Session
from c2b_ray.world import ATTRIBUTES, CLASSES
from c2b_ray.world.table import write_sample

WEIGHTS = Path(c2b_ray.__file__).parent / "world" / "weights"
VERIFIERS = [f"open_clip:local-dir:{WEIGHTS / name}" for name in ("clip-00", "clip-04", "clip-08", "clip-base-s")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--verifiers", nargs="+", default=[*VERIFIERS, "world:clip"])
    parser.add_argument("--calibrations", nargs="+", type=int, default=[500, 4000])
    parser.add_argument("--classifiers", type=int, default=9)
    parser.add_argument("--scenes", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=100_031)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(args.seed)
    scenes = args.out / "scenes.parquet"
    if not scenes.exists():
        write_sample(scenes, args.scenes, args.seed)
    build(str(scenes), "world:clip", str(args.out / "index"), Session("here"))
    classes = [str(name) for name in random.choice(CLASSES, 3, replace=False)]
    shown = pq.read_table(scenes, columns=["key", "target_class", *ATTRIBUTES])
    made = {}
    for number in range(args.classifiers):
        kind = ("perfect", "control", "value")[number % 3]
        rules = planted(kind, random)
        for rule in rules:
            rule["class"] = str(random.choice(classes))
        base = 1.0 if kind == "perfect" else float(random.uniform(0.8, 0.95))
        answers(args.out / f"{kind}-{number}.parquet", shown, rules, base, random)
        made[f"{kind}-{number}"] = (rules, base)
    for images in args.calibrations:
        write_sample(args.out / f"calibration-{images}.parquet", images, args.seed + 7)
        for verifier in args.verifiers:
            config = {
                "task": "Sort snapshots of ordinary things by what they show.",
                "classes": classes,
                "classifier": {name: f"table:{args.out / name}.parquet" for name in made},
                "images": {"source": "retrieve", "index": str(args.out / "index")},
                "attributes": {name: list(values) for name, values in ATTRIBUTES.items()},
                "verification": {"model": verifier, "calibration": str(args.out / f"calibration-{images}.parquet")},
                "seed": args.seed,
            }
            name = verifier.rstrip("/").split("/")[-1].replace(":", "-")
            run = c2b_ray.audit(config, args.out / f"run-{name}-{images}", via="here")
            print(json.dumps({"verifier": name, "calibration": images, **judged(run, made, classes)}), flush=True)


def judged(run: c2b_ray.Run, made: dict, classes: list[str]) -> dict[str, object]:
    true = {(name, target): truth(*of, target)[0] for name, of in made.items() for target in classes}
    cells = [
        (row, true[row["classifier"], row["target_class"]][row["attribute"], row["bias_class"]])
        for row in run.scores.to_pylist()
    ]
    pooled = [
        (row, float(np.mean([true[row["classifier"], c][row["attribute"], row["bias_class"]] for c in classes])))
        for row in run.read("pooled").to_pylist()
        if row["classes"] == len(classes)
    ]
    over_all = [abs(phi) > TAU and same_sign(row, phi) for row, phi in pooled if is_finding(row)]
    held = [row["phi_low"] <= phi <= row["phi_high"] for row, phi in pooled if row["doubt"] is None]
    return {
        **of_cells(cells),
        "pooled findings": len(over_all),
        "pooled findings true": share(over_all),
        "pooled rows": len(held),
        "pooled intervals hold": share(held),
    }


if __name__ == "__main__":
    main()
