"""Plants failures: counts those that `c2b failures` finds, its false findings, and the coverage of its intervals.

    python bench/failures.py [--plants 28] [--controls 12] [--together 5] [--draws 1000000] [--misread 0.03] [--seed 0]
    python bench/failures.py --keep runs.jsonl --most 2      (repeat it: each call continues where the last one ended)

Each plant makes a classifier answer a wrong label on a share (1e-1 to 1e-4) of those images of a label that show two or
three attribute values. Most classifiers also have an ordinary confusion of labels, which does not depend on the images.
Controls have only such a confusion, or nothing. Images are codes (`coded_world`); a captioner misreads a share of them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from coded_world import CodedBackend, Planted, control, plant

from c2b_ray.audits.failures.audit import walk
from c2b_ray.audits.failures.config import read_failures_config
from c2b_ray.audits.failures.run import open_failures_run
from c2b_ray.audits.kit.session import Steps
from c2b_ray.world.queries import read
from c2b_ray.world.scenes import CLASSES

RATES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)


def judge(classifiers: dict[str, Planted], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Compares the hypotheses of a run with the truth."""
    findings = [row for row in rows if row["verdict"] == "failure"]
    false, covered, ratios = [], [], []
    found: dict[str, set[str]] = {name: set() for name in classifiers}
    for row in findings:
        one, said = classifiers[row["classifier"]], read(row["caption"])
        said.pop("target_class", None)
        truth, base = (one.true_rate(row["label"], row["target"], what) for what in (said, {}))
        if truth <= base * (1 + 1e-9):
            false.append(row)
        covered.append(row["rate_low"] <= truth <= row["rate_high"])
        if base:
            ratios.append(row["ratio_low"] <= truth / base <= row["ratio_high"])
        for planted in one.plants:
            if row["label"] == planted.label and row["target"] in (None, planted.target):
                values = {name: said.get(name) for name in planted.values}
                if values == planted.values:
                    found[one.name].add("exact" if len(said) == len(values) else "more")
                elif any(values[name] == value for name, value in planted.values.items()):
                    found[one.name].add("part")
    return {"findings": len(findings), "false": false, "covered": covered, "ratios": ratios, "found": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plants", type=int, default=28)
    parser.add_argument("--controls", type=int, default=12)
    parser.add_argument(
        "--together", type=int, default=5, help="number of classifiers of a run, which share its images"
    )
    parser.add_argument("--rates", type=float, nargs="*", default=RATES)
    parser.add_argument("--draws", type=int, default=1_000_000, help="draws of each run")
    parser.add_argument("--misread", type=float, default=0.03)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", help="a file of finished runs, which are not repeated")
    parser.add_argument("--most", type=int, default=10**6, help="the most runs of this call")
    options = parser.parse_args()
    everything, kept, new = planted(options), Kept(options), 0
    tally = Tally()
    for number, start in enumerate(range(0, len(everything), options.together)):
        group = {one.name: one for one in everything[start : start + options.together]}
        if number not in kept.runs:
            if new == options.most:
                return
            new += 1
            kept.add(number, measured(group, CLASSES[number % len(CLASSES)], options))
        tally.add(group, *kept.runs[number])
    tally.show(options.rates)


Run = tuple[list[dict[str, Any]], dict[str, int], float]


class Kept:
    """A file of finished runs with these options, by number: a line for each run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._path = None if options.keep is None else Path(options.keep)
        self._about = {name: value for name, value in vars(options).items() if name not in ("keep", "most")}
        self.runs: dict[int, Run] = {}
        lines = self._path.read_text().splitlines() if self._path is not None and self._path.exists() else []
        for line in map(json.loads, lines):
            if line["options"] != json.loads(json.dumps(self._about)):
                raise SystemExit(f"{self._path} is of other options: {line['options']}")
            self.runs[line["number"]] = tuple(line["run"])

    def add(self, number: int, run: Run) -> None:
        self.runs[number] = run
        if self._path is not None:
            with open(self._path, "a") as file:
                file.write(json.dumps({"options": self._about, "number": number, "run": run}) + "\n")


def planted(options: argparse.Namespace) -> list[Planted]:
    """Returns plants and controls, shuffled; the classifiers of one run share a label."""
    random = Random(options.seed)
    whole, plants = options.plants + options.controls, 0
    result = []
    for number in range(whole):
        label = CLASSES[number // options.together % len(CLASSES)]
        if (number + 1) * options.plants // whole > plants:
            rate = options.rates[plants % len(options.rates)]
            plants += 1
            result.append(plant(random, label, rate, f"planted-{number}"))
        else:
            result.append(control(random, label, f"control-{number}"))
    return result


def measured(classifiers: dict[str, Planted], label: str, options: argparse.Namespace) -> Run:
    """Runs `c2b failures`; returns its hypotheses, its draws and its seconds."""
    config = read_failures_config(
        {
            "labels": [label],
            "classifier": {name: f"world:{name}" for name in classifiers},
            "images": {"generate": {"model": "world:renderer"}},
            "captioner": "world:clip",
            "hierarchy": "world",
            "budget": {"draws": options.draws},
            "seed": options.seed,
        }
    )
    began = time.monotonic()
    backend = CodedBackend({f"world:{name}": one for name, one in classifiers.items()}, options.misread)
    with tempfile.TemporaryDirectory() as folder:
        with open_failures_run(f"{folder}/run", "bench", config.model_dump(mode="json")) as run:
            walk(config, run, backend, Steps())
        return run.hypotheses.to_pylist(), run.manifest["spent"], time.monotonic() - began


class Tally:
    """The sums over all runs."""

    def __init__(self) -> None:
        self.classifiers: dict[str, Planted] = {}
        self.found: dict[str, set[str]] = {}
        self.false: list[dict[str, Any]] = []
        self.covered: list[bool] = []
        self.ratios: list[bool] = []
        self.findings, self.spent, self.seconds = 0, 0, 0.0

    def add(
        self, classifiers: dict[str, Planted], rows: list[dict[str, Any]], spent: dict[str, int], seconds: float
    ) -> None:
        result = judge(classifiers, rows)
        self.classifiers |= classifiers
        self.found |= result["found"]
        self.false += result["false"]
        self.covered += result["covered"]
        self.ratios += result["ratios"]
        self.findings += result["findings"]
        self.spent += sum(spent.values())
        self.seconds += seconds
        for name, one in classifiers.items():
            for planted in one.plants:
                noise = one.noise.get(planted.label, ("", 0.0))[1]
                about = f"{planted.rate:.0e} x {planted.share:.4f} noise {noise:.1e} {sorted(planted.values.values())}"
                print(f"{name:12} {about:70} {sorted(self.found[name])}", flush=True)
        print(json.dumps({"seconds": round(seconds, 1), "spent": spent}), flush=True)

    def show(self, rates: Sequence[float]) -> None:
        for rate in rates:
            of_rate = [name for name, one in self.classifiers.items() if one.plants and one.plants[0].rate == rate]
            whole = sum(bool(self.found[name] & {"exact", "more"}) for name in of_rate)
            exact = sum("exact" in self.found[name] for name in of_rate)
            print(f"rate {rate:.0e}: {whole} of {len(of_rate)} found, {exact} of them with no word too many")
        controls = [name for name, one in self.classifiers.items() if not one.plants]
        wrong = {row["classifier"] for row in self.false}
        print(f"findings {self.findings}, false {len(self.false)}")
        print(f"controls with a finding: {len(wrong & set(controls))} of {len(controls)}")
        for what, held in (("rates", self.covered), ("ratios", self.ratios)):
            print(f"intervals of {what} that hold the truth: {np.mean(held or [np.nan]):.3f} of {len(held)}")
        print(json.dumps({"seconds": round(self.seconds, 1), "draws": self.spent}))


if __name__ == "__main__":
    main()
