"""Trains the classifiers of a set such as bench/evaluate_unseen.yaml, each from a shipped control of its architecture.

    python bench/evaluate_train.py --set bench/evaluate_unseen.yaml --out DIR [--minutes M] [--pool N]

Classifiers that exist are skipped. After M minutes the script stops before the next classifier, and the same command
continues. Each classifier gets a metrics.json with its accuracy in the planted cells, as from `c2b world train`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
import yaml

from c2b_ray.world.training import classifiers
from c2b_ray.world.training.train import record_truth
from c2b_ray.world.truth import EVALUATION_SEEDS, labelled
from c2b_ray.world.zoo import WEIGHTS, Plant, ZooClassifier

TRUTH_SCENES = 300
"""The number of scenes of each class for metrics.json; the evaluation measures accuracies on scenes of its own."""


def members(wanted: dict[str, Any]) -> list[ZooClassifier]:
    return [
        ZooClassifier(name, one["architecture"], one["seed"], tuple(Plant(*plant) for plant in one["plants"]))
        for name, one in wanted["classifiers"].items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--pool", type=int, default=24_000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    wanted = yaml.safe_load(args.set.read_text())
    recipe = classifiers.Recipe(pool=args.pool)
    left = [one for one in members(wanted) if not (args.out / one.name / "metrics.json").exists()]
    if not left:
        return
    pool = classifiers.clean_pool(recipe, wanted["seed"] + 1)
    data = labelled(TRUTH_SCENES, EVALUATION_SEEDS + wanted["seed"])
    for member in left:
        if time.monotonic() - started > 60 * args.minutes:
            return
        began = time.time()
        model = classifiers.train_member(WEIGHTS / f"{member.architecture}-control-0", member, pool, recipe)
        folder, place = args.out / f"{member.name}.unfinished", args.out / member.name
        classifiers.save(model, member.architecture, folder, classifiers.about(member, recipe, model, began))
        record_truth(folder, member, data)
        folder.rename(place)
        print(f"{member.name}: {time.time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
