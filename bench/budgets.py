"""Audits three classifiers on a budget, and at a fixed size of the same total, on cells of known accuracy.

    PYTHONPATH=. python bench/budgets.py [--images 50000] [--runs 1] [--findings] [--verified] [--twice]

Each run takes three classifiers of the world's zoo and walks the audit's own code from grant to scores: captions of all
260 cells, draws and predictions in tables, and looks until the budget ends. Right and wrong answers are drawn from the
accuracies of `bench/sequential.py`, so no model answers: the CPU seconds are those beyond answering. The fixed size has
as many images in all, the same number in each cell. Strong cells have a true |φ| of .15 or more.

Prints for each run: looks; images drawn; CPU seconds of all looks; the peak memory of this process, before the first
look and after the last; and for the budget and the fixed size: strong cells, and those found; findings, and those whose
true |φ| > τ has their direction; intervals that hold; cells that are `none`, and those of them that are not; cells for
which a decision was unlikely. `--twice`: in place of the fixed size, the same budget with every look scored in full, as
the last one is; says whether the results are the same. `--findings`: images are not spent on `none`. `--verified`:
images are generated, and a verifier says of each which class and values it shows: it is wrong about the class of .03 of
them and about a value of .05, and one image in twenty shows another value than it was drawn for. What attributes add to
accuracy is then summed, and cut off at 0 and 1, so that the truth is that of the cells before the cut.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from sequential import TAU, Groups, population, true_scores

from c2b_ray.audits.c2b.budget import first_grant, next_grant, score_and_grant, write_scores
from c2b_ray.audits.c2b.run import C2BRun, open_c2b_run
from c2b_ray.audits.c2b.scoring.judge import UNLIKELY
from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.steps.caption import caption
from c2b_ray.steps.observe import CLASS
from c2b_ray.steps.propose import propose
from c2b_ray.storage import files
from c2b_ray.tables import CALIBRATION, DRAWS, IMAGES, PREDICTIONS, VERIFICATIONS
from c2b_ray.world.scenes import ATTRIBUTES, CLASSES

CLASSIFIERS = ("one", "two", "three")
STRONG, MOST = 0.15, 20_000
WRONG_CLASS, WRONG_VALUE, SHOWS_ANOTHER = 0.03, 0.05, 0.05
KNOWN_IMAGES = 150  # of each value and class, in the calibration
FINGERPRINT = 200  # bytes


def config_of(images: int | None, per_caption: int, none: bool = True, verified: bool = False) -> AuditConfig:
    """Returns the config of an audit whose images' values are known, so that `none` can be reached: labelled images, or
    generated and verified ones."""
    source: dict[str, object] = {"images": {"source": "labelled", "table": "none.csv"}}
    if verified:
        source = {
            "images": {"source": "generate", "generator": "world:generator"},
            "verification": {"model": "world:clip", "calibration": "none.csv"},
            "attributes": {name: list(values) for name, values in ATTRIBUTES.items()},
            "captions_per_cell": 1,
        }
    return read_audit(
        {
            "task": "Say what is in the picture.",
            "classes": list(CLASSES),
            "classifier": {name: f"world:{name}" for name in CLASSIFIERS},
            **source,
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


class VerifiedAnswers(Answers):
    """The same of images that may show another value than they were drawn for, with a verifier's answers about all of
    their attributes, its calibration, and fingerprints of images that are all different."""

    def __init__(self, captions: pa.Table, accuracies: np.ndarray, random: np.random.Generator) -> None:
        super().__init__(captions, accuracies, random)
        cells = zip(*(captions[name].to_pylist() for name in ("target_class", "attribute", "bias_class")), strict=True)
        column = {cell: i for i, cell in enumerate(cells)}
        # (classifiers, values) by class and attribute
        self._of_attribute = {
            (target, name): accuracies[:, [column[target, name, value] for value in values]]
            for target in CLASSES
            for name, values in ATTRIBUTES.items()
        }

    def write(self, run: C2BRun, images: list[int]) -> None:
        tables = [
            self._of_caption(row, count, seed)
            for row, count, seed in zip(self.captions.to_pylist(), images, self._seeds, strict=True)
        ]
        draws, *others = (pa.concat_tables(of_kind) for of_kind in zip(*tables, strict=True))
        run.write("draws", draws)
        run.write("calibration", _calibration())
        for name, table in zip(("images", "predictions", "verifications"), others, strict=True):
            files.make_directory(run.location(name))
            files.write_table(run.location(f"{name}/part-0.parquet"), table)

    def _of_caption(self, row: dict, count: int, seed: int) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
        """Returns draws, images, predictions and verifications of a caption's first images."""

        def uniform(*stream: int) -> np.ndarray:
            return np.random.default_rng([seed, *stream]).random(count)

        target = row["target_class"]
        ids = pa.array([f"{row['caption_id']}{rank:08d}" for rank in range(count)])
        shown, chance = {}, np.zeros((len(CLASSIFIERS), count))
        for number, (name, values) in enumerate(ATTRIBUTES.items()):
            shown[name] = (uniform(0, number) * len(values)).astype(int)
            if name == row["attribute"]:
                right = values.index(row["bias_class"])
                shown[name] = np.where(uniform(1) < SHOWS_ANOTHER, shown[name], right)
            of_values = self._of_attribute[target, name]
            chance += (of_values - of_values.mean(axis=1, keepdims=True))[:, shown[name]]
        chance += of_values.mean(axis=1, keepdims=True)
        said = [
            pa.array(values).take(pa.array(_misread(shown[name], len(values), WRONG_VALUE, uniform, 2 + number)))
            for number, (name, values) in enumerate(ATTRIBUTES.items())
        ]
        classes = _misread(np.full(count, CLASSES.index(target)), len(CLASSES), WRONG_CLASS, uniform, 100)
        drawn = {"caption_id": pa.repeat(row["caption_id"], count), "image_id": ids}
        drawn |= {"rank": pa.array(np.arange(count)), "source": pa.repeat("generate", count)}
        bytes_of = np.random.default_rng([seed, 200]).bytes(count * FINGERPRINT)
        marks = pa.array([bytes_of[at : at + FINGERPRINT] for at in range(0, len(bytes_of), FINGERPRINT)], pa.binary())
        checked = {"verification_id": ids, "image_id": ids, "target_class": pa.repeat(target, count)}
        checked |= {"revision": pa.repeat("1", count), "class_shown": pa.array(CLASSES).take(pa.array(classes))}
        checked |= {
            "attributes": _lists([pa.repeat(name, count) for name in ATTRIBUTES], count),
            "values": _lists(said, count),
            "certainties": _lists([pa.repeat(pa.scalar(0.9, pa.float32()), count) for _ in said], count),
        }
        predictions = []
        for number, name in enumerate(CLASSIFIERS):
            answers = np.where(uniform(300, number) < chance[number], target, "nothing")
            of = {"prediction_id": ids, "image_id": ids, "classifier": pa.repeat(name, count)}
            of |= {"revision": pa.repeat("1", count), "predicted_class": pa.array(answers)}
            predictions.append(_table(of, PREDICTIONS))
        return (
            _table(drawn, DRAWS),
            _table({"image_id": ids, "key": ids, "content": ids, "fingerprint": marks}, IMAGES),
            pa.concat_tables(predictions),
            _table(checked, VERIFICATIONS),
        )


def _misread(
    shown: np.ndarray, values: int, wrong: float, uniform: Callable[..., np.ndarray], stream: int
) -> np.ndarray:
    """Returns what the verifier reads: another value in a share `wrong` of images, each as often as any other."""
    other = (shown + 1 + (uniform(stream, 1) * (values - 1)).astype(int)) % values
    return np.where(uniform(stream, 0) < wrong, other, shown)


def _lists(columns: list[pa.Array], count: int) -> pa.ListArray:
    """Returns a list of one value of each column for every row."""
    order = np.arange(len(columns) * count).reshape(len(columns), count).T.ravel()
    ends = pa.array(np.arange(count + 1) * len(columns), pa.int32())
    return pa.ListArray.from_arrays(ends, pa.concat_arrays(columns).take(pa.array(order)))


def _calibration() -> pa.Table:
    asked = {CLASS: (CLASSES, WRONG_CLASS)} | {name: (values, WRONG_VALUE) for name, values in ATTRIBUTES.items()}
    rows = [
        {"attribute": name, "value": value, "answer": answer, "source": "table"}
        | {"images": round(KNOWN_IMAGES * (1 - wrong if value == answer else wrong / (len(values) - 1)))}
        for name, (values, wrong) in asked.items()
        for value in values
        for answer in values
    ]
    return pa.Table.from_pylist(rows, CALIBRATION)


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


def audited(
    config: AuditConfig, answers: Answers, proposals: pa.Table, grants: bool, in_full: bool = False
) -> tuple[pa.Table, dict]:
    """Returns the scores of an audit, and what it took. `in_full`: whether every look is scored as the last one is."""
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
            if grants and not in_full:
                grant = score_and_grant(run, grant, config)
            else:
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
    parser.add_argument("--verified", action="store_true", help="generated images, with a verifier's answers")
    parser.add_argument("--twice", action="store_true", help="compare with looks that are scored in full")
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
        of_kind = VerifiedAnswers if arguments.verified else Answers
        answers = of_kind(captions, np.array([[of[cell][0] for cell in cells] for of in truth]), random)
        before = _peak()
        if arguments.profile:
            profile.enable()
        scores, took = audited(
            config_of(arguments.images, MOST, not arguments.findings, arguments.verified),
            answers,
            proposals,
            grants=True,
        )
        profile.disable()
        peak = _peak()
        if arguments.twice:
            config = config_of(arguments.images, MOST, not arguments.findings, arguments.verified)
            again, full = audited(config, answers, proposals, grants=True, in_full=True)
            same = repr(again.to_pylist()) == repr(scores.to_pylist())
            print(json.dumps({**took, "mib_before": before, "mib": peak, "in_full": full, "same": same}), flush=True)
            continue
        size = config_of(None, arguments.images // len(cells), verified=arguments.verified)
        fixed, _ = audited(size, answers, proposals, grants=False)
        here, there = counted(scores, truth), counted(fixed, truth)
        print(json.dumps({**took, "mib_before": before, "mib": peak, "budget": here, "fixed": there}), flush=True)
    if arguments.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)


def _peak() -> int:
    """Returns the most memory that this process had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
