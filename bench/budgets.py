"""Audits three classifiers on a budget, and at a fixed size of the same total, on cells of known accuracy.

    PYTHONPATH=. python bench/budgets.py [--images 50000] [--runs 1] [--findings] [--cache FILE] [--profile]

Each run takes three classifiers of the world's zoo and walks the audit's own code from grant to scores: captions of all
260 cells, draws and predictions in tables, and looks until the budget ends. Right and wrong answers are drawn from the
accuracies of `bench/sequential.py`, so no model answers: the CPU seconds are those beyond answering. The fixed size has
as many images in all, the same number in each cell. Strong cells have a true |φ| of .15 or more.

Prints for each run: looks; images drawn; CPU seconds of all looks; the peak memory of this process, before the first
look and after the last; and for the budget and the fixed size: strong cells, and those found; findings, and those whose
true |φ| > τ has their direction; intervals that hold; cells that are `none`, and those of them that are not; cells for
which a decision was unlikely. `--findings`: images are not spent on `none`.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from sequential import TAU, Groups, population, true_scores

from c2b_ray.audits.c2b.budget import first_grant, next_grant, write_scores
from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.schemas import DRAWS, PREDICTIONS
from c2b_ray.steps.caption import caption
from c2b_ray.steps.propose import propose
from c2b_ray.steps.reasons import UNLIKELY
from c2b_ray.store import files
from c2b_ray.store.c2b_run import C2BRun, open_c2b_run
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES

CLASSIFIERS = ("one", "two", "three")
STRONG, MOST = 0.15, 20_000


def config_of(images: int | None, per_caption: int, none: bool = True) -> AuditConfig:
    """Returns the config of an audit of labelled images: their values are known, so that `none` can be reached."""
    return read_audit(
        {
            "task": "Say what is in the picture.",
            "classes": list(CLASSES),
            "classifier": {name: f"world:{name}" for name in CLASSIFIERS},
            "images": {"source": "labelled", "table": "none.csv"},
            "images_per_caption": per_caption,
            "budget": {"images": images, "none": none} if images else None,
        }
    )


class Answers:
    """The images of every cell in the order of drawing, with the right and wrong answers of each classifier."""

    def __init__(self, captions: pa.Table, accuracies: np.ndarray, random: np.random.Generator) -> None:
        """`accuracies`: (classifiers, captions)."""
        self.captions = captions
        self._accuracies, self._seeds = accuracies, random.integers(0, 2**62, len(captions))

    def write(self, run: C2BRun, images: list[int]) -> None:
        """Writes the first images of each caption as draws, with their predictions."""
        draws, predictions = [], []
        rows = self.captions.select(["caption_id", "target_class"]).to_pylist()
        for column, (row, count, seed) in enumerate(zip(rows, images, self._seeds, strict=True)):
            names = pa.array([f"{row['caption_id']}{rank:08d}" for rank in range(count)])
            drawn = {"caption_id": pa.repeat(row["caption_id"], count), "image_id": names}
            drawn |= {"rank": pa.array(np.arange(count)), "source": pa.repeat("labelled", count)}
            draws.append(_table(drawn, DRAWS))
            for number, name in enumerate(CLASSIFIERS):
                right = np.random.default_rng([seed, number]).random(count) < self._accuracies[number, column]
                answer = {"prediction_id": names, "image_id": names, "classifier": pa.repeat(name, count)}
                answer |= {"revision": pa.repeat("1", count)}
                answer |= {"predicted_class": pa.array(np.where(right, row["target_class"], "nothing"))}
                predictions.append(_table(answer, PREDICTIONS))
        run.write("draws", pa.concat_tables(draws))
        files.make_directory(run.location("predictions"))
        files.write_table(run.location("predictions/part-0.parquet"), pa.concat_tables(predictions))


def _table(columns: dict[str, pa.Array], schema: pa.Schema) -> pa.Table:
    rows = len(next(iter(columns.values())))
    return pa.table(
        [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def captions_of_world() -> tuple[pa.Table, pa.Table]:
    attributes = {name: list(values) for name, values in ATTRIBUTES.items()}
    proposals, _ = propose("Say what is in the picture.", CLASSES, None, attributes, 0)
    return proposals, caption("Say what is in the picture.", proposals, None, 1, 0)[0]


def by_cell(groups: Groups) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Returns the true accuracy and φ of each cell."""
    names = [(target, name) for target in CLASSES for name in ATTRIBUTES]
    return {
        (*name, value): (accuracy, phi)
        for name, group in zip(names, groups, strict=True)
        for value, accuracy, phi in zip(ATTRIBUTES[name[1]], group.tolist(), true_scores(group).tolist(), strict=True)
    }


def audited(config: AuditConfig, answers: Answers, proposals: pa.Table, grants: bool) -> tuple[pa.Table, dict]:
    """Returns the scores of an audit, and what it took."""
    looks, spent = 0, 0.0
    with (
        tempfile.TemporaryDirectory() as path,
        open_c2b_run(f"{path}/run", "0123456789abcdef0123", config.model_dump(mode="json")) as run,
    ):
        run.write("proposals", proposals)
        run.write("captions", answers.captions)
        grant = first_grant(run.captions, config)
        while grant is not None:
            answers.write(run, [grant[name] for name in answers.captions["caption_id"].to_pylist()])
            before = time.process_time()
            write_scores(run, config)
            grant = next_grant(run, grant, config) if grants else None
            spent, looks = spent + time.process_time() - before, looks + 1
        return run.scores, {"looks": looks, "images": run.count("draws"), "cpu_s": round(spent, 1)}


def counted(scores: pa.Table, truth: list[dict[tuple[str, str, str], tuple[float, float]]]) -> dict[str, int]:
    rows = scores.to_pylist()
    phi = np.array(
        [
            truth[CLASSIFIERS.index(row["classifier"])][row["target_class"], row["attribute"], row["bias_class"]][1]
            for row in rows
        ]
    )
    verdict = np.array([row["verdict"] for row in rows])
    sign = np.select([verdict == "for", verdict == "against"], [1, -1], 0)
    low, high = (np.array([row[name] for row in rows]) for name in ("phi_low", "phi_high"))
    strong = np.abs(phi) >= STRONG
    return {
        "strong": int(strong.sum()),
        "strong_found": int((strong & (sign * phi > 0)).sum()),
        "findings": int((sign != 0).sum()),
        "true": int((sign * phi > TAU).sum()),
        "intervals_held": int(((low <= phi) & (phi <= high)).sum()),
        "none": int((verdict == "none").sum()),
        "none_wrong": int(((verdict == "none") & (np.abs(phi) >= TAU)).sum()),
        "unlikely": sum((row["undetermined_because"] or "").startswith(UNLIKELY) for row in rows),
        "cells": len(rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--findings", action="store_true", help="spend no images on `none`")
    parser.add_argument("--truth", type=int, default=600, help="scenes of each class from which the truth is measured")
    parser.add_argument("--cache", type=Path, help="a JSON file that keeps the population")
    parser.add_argument("--seed", type=int, default=100_000)
    parser.add_argument("--profile", action="store_true", help="print what takes the time")
    arguments = parser.parse_args()
    zoo = population(arguments.truth, 1, arguments.cache)
    proposals, captions = captions_of_world()
    cells = list(
        zip(*(captions[name].to_pylist() for name in ("target_class", "attribute", "bias_class")), strict=True)
    )
    random = np.random.default_rng(arguments.seed)
    profile = cProfile.Profile()
    for _ in range(arguments.runs):
        truth = [by_cell(zoo[i]) for i in random.choice(len(zoo), len(CLASSIFIERS), replace=False)]
        answers = Answers(captions, np.array([[of[cell][0] for cell in cells] for of in truth]), random)
        before = _peak()
        if arguments.profile:
            profile.enable()
        scores, took = audited(
            config_of(arguments.images, MOST, not arguments.findings), answers, proposals, grants=True
        )
        profile.disable()
        peak = _peak()
        fixed, _ = audited(config_of(None, arguments.images // len(cells)), answers, proposals, grants=False)
        here, there = counted(scores, truth), counted(fixed, truth)
        print(json.dumps({**took, "mib_before": before, "mib": peak, "budget": here, "fixed": there}), flush=True)
    if arguments.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


def _peak() -> int:
    """Returns the most memory that this process had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
