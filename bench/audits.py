"""Measures how well audits find planted biases: every classifier of the world's zoo, against its measured φ.

    python bench/audits.py retrieve|labelled|generate [--images N] [--verify] [--generator SPEC] [--every N] …

Each audit runs as a user would run it, on scenes whose seeds no training used. The true φ of every cell is measured on
`--truth` freshly rendered scenes of each class. The script prints for each rule:

    found       share of the cells with true |φ| ≥ 0.15 that the audit calls for or against (without the controls)
    true        share of the called cells whose true |φ| > τ
    direction   share of the called cells with the right sign; `direction_of_true`: of those that are true
    controls    share of the controls' cells that the audit calls

`paper` is the paper's rule on the same images; `paper_20` is that rule on 20 images of each cell, as in the paper. They
serve as a comparison and have no target. With `--verify`, the same run is also judged without the correction.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import c2b_ray
from c2b_ray.audits.c2b.budget import duplicates, verification
from c2b_ray.audits.c2b.scoring.score import scored
from c2b_ray.audits.c2b.thresholds import Thresholds
from c2b_ray.audits.index import build
from c2b_ray.audits.kit.session import Session
from c2b_ray.models import catalog
from c2b_ray.world import CLASSES
from c2b_ray.world.table import write_sample
from c2b_ray.world.truth import bias, true_accuracies
from c2b_ray.world.zoo import ZOO

TASK = "Sort snapshots of ordinary things by what they show."  # not worded like any task in training
STRONG = 0.15
PAPER = 20  # images per cell
TAU = 0.05


def truth(names: list[str], scenes_per_class: int, seed: int) -> dict[tuple[str, str, str, str], float]:
    """Returns the true φ by (classifier, class, attribute, value)."""
    tables = true_accuracies({name: catalog.classifier(name) for name in names}, scenes_per_class, seed)
    return {
        (name, row["target_class"], row["attribute"], row["value"]): row["phi"]
        for name, table in tables.items()
        for row in bias(table).to_pylist()
    }


def run_audit(source: str, names: list[str], args: argparse.Namespace, place: Path) -> c2b_ray.Run:
    table = place / "scenes.parquet"
    asked = {"task": TASK, "classes": list(CLASSES), "classifier": names, "seed": args.seed}
    if source != "generate":
        write_sample(table, args.scenes, args.seed)
    if args.verify:
        calibration = place / "calibration.parquet"
        write_sample(calibration, args.calibration, args.seed + 7)
        asked["verification"] = {"model": "world:clip", "calibration": str(calibration)}
    if source == "generate":
        asked["images"] = {"source": "generate", "generator": args.generator}
        asked["language_model"] = "world:lm"
        asked["images_per_caption"] = args.images
        asked["captions_per_cell"] = args.captions
    elif source == "labelled":
        asked["images"] = {"source": "labelled", "table": str(table)}
    else:
        build(str(table), "world:clip", str(place / "index"), Session("actors"))
        asked["images"] = {"source": "retrieve", "index": str(place / "index")}
        asked["language_model"] = "world:lm"
        asked["images_per_caption"] = args.images
        asked["captions_per_cell"] = args.captions
    return c2b_ray.audit(asked, place / f"run-{source}", via=args.via)


def judge(rows: list[dict], phi: dict, called: str) -> dict[str, float | int]:
    def is_called(row: dict) -> bool:
        return row["paper_verdict"] != 0 if called.startswith("paper") else row["verdict"] in ("for", "against")

    def key(row: dict) -> tuple[str, str, str, str]:
        return row["classifier"], row["target_class"], row["attribute"], row["bias_class"]

    planted = [r for r in rows if "control" not in r["classifier"]]
    controls = [r for r in rows if "control" in r["classifier"]]
    hits = {key(r) for r in planted if is_called(r)}
    strong = [k for k, v in phi.items() if abs(v) >= STRONG and "control" not in k[0]]
    findings = [r for r in planted if is_called(r) and key(r) in phi]
    true = [r for r in findings if abs(phi[key(r)]) > TAU]

    def same_sign(rows: list[dict]) -> float:
        return round(sum(np.sign(phi[key(r)]) == np.sign(r["phi"]) for r in rows) / max(1, len(rows)), 4)

    return {
        "found": round(sum(k in hits for k in strong) / max(1, len(strong)), 4),
        "strong_cells": len(strong),
        "true": round(len(true) / max(1, len(findings)), 4),
        "direction": same_sign(findings),
        "direction_of_true": same_sign(true),
        "findings": len(findings),
        "controls": round(sum(map(is_called, controls)) / max(1, len(controls)), 4),
        "control_cells": len(controls),
        "missed": sorted(["/".join(k) + f" {phi[k]:+.2f}" for k in strong if k not in hits])[:12],
        "wrong": sorted(
            f"{'/'.join(key(r))} {phi[key(r)]:+.2f} as {r['phi']:+.2f}" for r in findings if abs(phi[key(r)]) <= TAU
        )[:12],
    }


def covered(rows: list[dict], phi: dict) -> float:
    """Returns the share of the cells whose interval contains the true φ; the nominal share is 0.95."""
    keys = [(r["classifier"], r["target_class"], r["attribute"], r["bias_class"]) for r in rows]
    inside = [r["phi_low"] <= phi[k] <= r["phi_high"] for r, k in zip(rows, keys, strict=True) if k in phi]
    return round(sum(inside) / max(1, len(inside)), 4)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", choices=["retrieve", "labelled", "generate"])
    parser.add_argument("--scenes", type=int, default=40_000)
    parser.add_argument("--images", type=int, default=200, help="images per caption")
    parser.add_argument("--captions", type=int, default=2, help="captions per cell")
    parser.add_argument("--seed", type=int, default=100_001)
    parser.add_argument("--truth", type=int, default=4000, help="scenes per class that the true φ is measured on")
    parser.add_argument("--via", default="actors")
    parser.add_argument("--generator", default="world:renderer")
    parser.add_argument("--verify", action="store_true", help="with world:clip, calibrated on rendered scenes")
    parser.add_argument("--calibration", type=int, default=4000, help="scenes of the calibration table")
    parser.add_argument("--every", type=int, default=1, help="use every Nth classifier of the zoo")
    parser.add_argument("--fewer", type=int, nargs="*", default=[], help="judge also on this many images of each cell")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    names = [f"world:{name}" for name in list(ZOO)[:: args.every]]
    place = args.out or Path(tempfile.mkdtemp())
    place.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    run = run_audit(args.source, names, args, place)
    seconds = time.perf_counter() - began
    cache = place / f"truth-{args.truth}.json"
    if not cache.exists():
        phi = truth(names, args.truth, args.seed + 1_000_000)
        cache.write_text(json.dumps([[*k, v] for k, v in phi.items()]))
    phi = {tuple(row[:4]): row[4] for row in json.loads(cache.read_text()) if row[0] in names}

    def scores(images: int, corrected: bool) -> pa.Table:
        """Scores the first images of each cell."""
        few = run.draws.filter(pc.less(run.draws["rank"], max(1, images // args.captions)))
        distinct = duplicates(run)
        verified = verification(run, distinct) if corrected else None
        return scored(run.captions, few, run.predictions, names, Thresholds(TAU, 0.05), verified, distinct)[0]

    tables = {"verdict": run.scores, "paper": run.scores, "paper_20": scores(PAPER, False)}
    if args.verify:
        tables["uncorrected"] = scores(args.images * args.captions, False)
        for images in args.fewer:
            tables |= {f"verdict on {images}": scores(images, True), f"uncorrected on {images}": scores(images, False)}
    for called, table in tables.items():
        rows = table.to_pylist()
        of_strong = {key: value for key, value in phi.items() if abs(value) >= STRONG}
        found = {"source": args.source, "rule": called, **judge(rows, phi, called), "covered": covered(rows, phi)}
        print(json.dumps({**found, "covered_strong": covered(rows, of_strong)}, indent=1))
    print(json.dumps({"audit_seconds": round(seconds, 1), "steps": run.manifest["seconds"]}))


if __name__ == "__main__":
    main()
