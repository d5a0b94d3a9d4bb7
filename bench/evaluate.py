"""Compares C2B with B2T on classifiers with planted biases, and on those that suit B2T.

    python bench/evaluate.py --out DIR [--quick] [--scenes N] [--images N] [--retrieve N]
    python bench/evaluate.py --out DIR --set bench/evaluate_unseen.yaml --classifiers DIR2

The ground truth is measured on scenes that no training used. Its names are paraphrased, and decoys are added to it:
those of `c2b_ray.world.captions`, or those of a set, whose classifiers bench/evaluate_train.py has trained. The
methods are B2T, C2B on generated images and, with --retrieve, C2B on an index of that many scenes.

The rows show: HIT − FH of C2B minus that of B2T, in both directions, with a bootstrap over classifiers and classes; the
number of controls' cells that each method calls biased; the planted backgrounds alone, for which B2T was made; the
similarity of the ground truth's names to the names of the same values; and the result if the ground truth kept its own
names.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

import c2b_ray
from c2b_ray.audits.evaluate.steps.matching import compared, wording
from c2b_ray.audits.evaluate.steps.outcomes import Levels, difference_table, outcome_table
from c2b_ray.audits.index import build
from c2b_ray.audits.kit.session import Session
from c2b_ray.models import catalog
from c2b_ray.stats import outcome_difference
from c2b_ray.world.captions import PARAPHRASES
from c2b_ray.world.table import write_sample
from c2b_ray.world.zoo import ZOO

TASK = "Sort snapshots of ordinary things by what they show."  # not worded like any task in training
B2T, GENERATED, RETRIEVED = "B2T", "C2B, generated", "C2B, retrieved"
BACKGROUND = "setting"
SIGN = {"hit": 1, "false_hit": -1, "miss": 0}

Planted = set[tuple[str, str, str]]
"""The planted backgrounds as (classifier, class, value)."""


def config(args: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    audit: dict[str, Any] = {"language_model": "world:lm", "captions_per_cell": 2, "images_per_caption": args.images}
    methods = {GENERATED: {**audit, "images": {"source": "generate", "generator": "world:renderer"}}}
    if args.retrieve:
        index = args.out / "index"
        if not index.exists():
            write_sample(args.out / "scenes.parquet", args.retrieve, args.seed + 1)
            build(str(args.out / "scenes.parquet"), "world:clip", str(index), Session("here"))
        methods[RETRIEVED] = {**audit, "images": {"source": "retrieve", "index": str(index)}}
    return {
        "task": TASK,
        "classifier": {name: f"world:{name}" for name in names},
        "truth": {"world": {"scenes": args.scenes, "seed": args.seed}},
        "methods": methods,
        "b2t": {"captioner": "world:clip", "encoder": "world:clip"},
        "vqa": {"model": "world:clip", "images": args.asked},
        "retrieval": {"encoder": "world:clip"},
    }


def of_set(base: dict[str, Any], wanted: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Returns the config with the classifiers, names, decoys and seeds of a set; all other settings stay."""
    return {
        **base,
        "task": wanted["task"],
        "seed": wanted["audit_seed"],
        "classifier": {name: f"timm:local-dir:{(folder / name).resolve()}" for name in wanted["classifiers"]},
        "truth": {"world": {**base["truth"]["world"], "seed": wanted["seed"], "planted": wanted["decoys"]}},
        "names": names_of(wanted),
    }


def names_of(wanted: dict[str, Any]) -> dict[str, str]:
    return {f"{name}: {value}": said for name, values in wanted["words"].items() for value, said in values.items()}


def of_zoo(names: list[str]) -> Planted:
    return {
        (name, plant.target_class, plant.value)
        for name in names
        for plant in ZOO[name].plants
        if plant.attribute == BACKGROUND
    }


def own_ground(outcomes: pa.Table, planted: Planted, rule: str, kind: str) -> dict[str, list[int]]:
    """Returns each method's outcome for every planted background: 1 hit, −1 false hit, 0 miss."""
    return {
        method: [
            SIGN[row["outcome"]]
            for row in outcomes.to_pylist()
            if (row["method"], row["rule"], row["threshold_kind"]) == (method, rule, kind)
            and (row["direction"], row["attribute"]) == ("truth_to_detected", BACKGROUND)
            and (row["classifier"], row["target_class"], row["value"]) in planted
        ]
        for method in dict.fromkeys(outcomes["method"].to_pylist())
    }


def by_own_names(result: Any) -> tuple[pa.Table, pa.Table]:
    """Returns the tables of differences and outcomes that result where the ground truth keeps its own names.

    The comparison itself uses paraphrased names; this count shows how many misses come from the names.
    """
    rows = result.truth.to_pylist()
    said = [wording(row["attribute"], row["value"]) for row in rows]
    named = [{**row, "wordings": list(w.texts), "negated": w.negated} for row, w in zip(rows, said, strict=True)]
    truth, detected = pa.Table.from_pylist(named, result.truth.schema), result.detected
    texts = sorted({text for table in (truth, detected) for row in table["wordings"].to_pylist() for text in row})
    vectors = catalog.sentence_encoder(result.config.sentence_encoder).encode_sentences(texts).astype(np.float64)
    unit = dict(zip(texts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), strict=True))
    pairs = [
        compared(method, truth, detected.filter(pc.equal(detected["source"], method)), unit)
        for method in dict.fromkeys(detected["source"].to_pylist())
    ]
    levels = Levels({"set": result.thresholds["set"]}, "nearest", result.config.alpha, result.config.seed)
    return difference_table(pairs, levels), outcome_table(pairs, levels)


def own_names(result: Any, planted: Planted) -> list[str]:
    differences, outcomes = by_own_names(result)
    lines = [
        f"| under its own names, threshold set, tested, {row['direction']}: {row['method_a']} − B2T | – | "
        f"{row['difference']:+.3f} ({row['difference_low']:+.3f} to {row['difference_high']:+.3f}) |"
        for row in differences.to_pylist()
        if row["method_b"] == B2T and row["rule"] == "tested"
    ]
    return [*lines, *backgrounds(outcomes, planted, {"set, its own names": "set"})]


def controls(result: Any) -> list[str]:
    rows = [row for row in result.detected.to_pylist() if "control" in row["classifier"]]
    lines = []
    for method in dict.fromkeys(row["source"] for row in rows):
        own = [row for row in rows if row["source"] == method]
        tested, paper = (sum(abs(row[rule]) for row in own) for rule in ("tested", "paper"))
        got = f"{tested} of {len(own)} (by the paper's rule {paper})"
        lines.append(f"| biases of the controls, {method}, as tested | 0 | {got} |")
    return lines


def paraphrases(encoder: str, names: dict[str, str], thresholds: dict[str, float]) -> list[str]:
    """Tells how similar each paraphrase is to the name of its value, which is the best that a method can detect."""
    values = [key.partition(": ") for key in names]
    said = list(names.values())
    texts = [*said, *(value for _, _, value in values), *(f"{value} {attribute}" for attribute, _, value in values)]
    vectors = catalog.sentence_encoder(encoder).encode_sentences(texts).reshape(3, len(said), -1)
    cosines = np.maximum(*(vectors[0] * vectors[1:]).sum(axis=2))
    low, median, high = np.quantile(cosines, (0.25, 0.5, 0.75))
    reach = "; ".join(f"{np.mean(cosines >= limit):.2f} reach {limit:.2f}" for limit in thresholds.values())
    got = f"quartiles {low:.2f}, {median:.2f}, {high:.2f}; {reach}"
    return [f"| cosine of {len(said)} paraphrases with their own values | – | {got} |"]


def backgrounds(outcomes: pa.Table, planted: Planted, kinds: dict[str, str]) -> list[str]:
    """Returns rows for the planted backgrounds. `kinds`: name in the rows → kind of threshold."""
    lines = []
    for rule in ("paper", "tested"):
        for said, kind in kinds.items():
            of = own_ground(outcomes, planted, rule, kind)
            for method in [name for name in of if name != B2T]:
                clusters = np.arange(len(of[B2T]))
                if len(of[method]) == len(of[B2T]) > 0:
                    found = outcome_difference((of[B2T], of[method]), (clusters, clusters))
                    both = f"{np.mean(of[B2T]):.3f} against {np.mean(of[method]):.3f}, {len(clusters)} planted"
                    value = f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f}; {both})"
                    lines.append(f"| planted backgrounds, {rule}, {said}: B2T − {method} | ≥ 0 | {value} |")
    return lines


def shares(result: Any) -> list[str]:
    lines = []
    for row in result.differences.to_pylist():
        if B2T in (row["method_a"], row["method_b"]):
            limits = f"{row['difference_low']:+.3f} to {row['difference_high']:+.3f}"
            how = f"{row['rule']}, threshold {row['threshold_kind']} {row['threshold']:.2f}, {row['direction']}"
            lines.append(f"| HIT − FH, {row['method_a']} − B2T, {how} | > 0 | {row['difference']:+.3f} ({limits}) |")
    for row in result.agreement.to_pylist():
        if row["classifier"] == "":
            how = f"{row['rule']}, {row['threshold_kind']}, {row['direction']}"
            said = f"HIT {row['hit']:.3f} FH {row['false_hit']:.3f} MISS {row['miss']:.3f} of {row['biases']}"
            lines.append(f"| {row['method']}, {how} | | {said} |")
    for row in result.vqa.to_pylist():
        if row["classifier"] == "":
            score = f"{row['agreement']:.3f}, of the biased {row['agreement_of_biased']:.3f}"
            lines.append(
                f"| agreement with pseudo-labels, {row['method']}, {row['rule']} | | {score} of {row['biases']} |"
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scenes", type=int, default=20_000)
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--asked", type=int, default=200)
    parser.add_argument("--retrieve", type=int, default=0)
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--via", default="here")
    parser.add_argument("--quick", action="store_true", help="four classifiers, few images")
    parser.add_argument("--set", type=Path, help="names, decoys, classifiers and seeds of another set")
    parser.add_argument("--classifiers", type=Path, help="the folder that bench/evaluate_train.py wrote")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    names = list(ZOO)
    if args.quick:
        args.scenes, args.images = min(args.scenes, 4000), min(args.images, 20)
        names = ["resnet-control-0", "resnet-planted-0", "resnet-planted-2", "byobnet-planted-4"]
    wanted, planted, said = config(args, names), of_zoo(names), PARAPHRASES
    if args.set:
        held = yaml.safe_load(args.set.read_text())
        args.scenes, args.asked = held["scenes"], held["asked"]
        wanted, said = of_set(config(args, names), held, args.classifiers), names_of(held)
        planted = {
            (n, c, v) for n, one in held["classifiers"].items() for c, a, v, *_ in one["plants"] if a == BACKGROUND
        }
    result = c2b_ray.evaluate(wanted, args.out / "evaluation", via=args.via)
    print(f"thresholds: {dict(result.thresholds)}\n\n| what | wanted | got |\n|---|---|---|")
    kinds = {kind: kind for kind in result.thresholds}
    lines = [*shares(result), *controls(result), *backgrounds(result.outcomes, planted, kinds)]
    lines += own_names(result, planted)
    print("\n".join([*lines, *paraphrases(result.config.sentence_encoder, said, dict(result.thresholds))]))


if __name__ == "__main__":
    main()
