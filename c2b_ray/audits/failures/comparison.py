"""Two classifiers compared by their failures: captions and baselines that both were measured on, B against A.

It composes runs, the comparing step, gates and a page, and knows no formulas. Nothing here needs Ray or a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from c2b_ray.audits.failures.gates import ANY, classifiers_of, measured
from c2b_ray.audits.kit.classifiers import one_of, two_of
from c2b_ray.errors import RunError
from c2b_ray.filesystems import resolve
from c2b_ray.report.failures.comparison import page as comparison_page
from c2b_ray.report.failures.comparison import summaries, tally
from c2b_ray.report.kit.summary import Summary
from c2b_ray.steps import gate as gates
from c2b_ray.steps.discovery.compared import compare as compared
from c2b_ray.store import files
from c2b_ray.store.failures_run import FailuresRun

SAME = ("rule", "confidence", "true_below", "hierarchy", "alpha")
"""Settings without which a failure, or a finding, means something else."""


@dataclass(frozen=True)
class FailuresComparison:
    """What `compare` found. `cells`: a table of `schemas.FAILURES_COMPARISON`."""

    run_a: FailuresRun
    run_b: FailuresRun
    classifier_a: str
    classifier_b: str
    alpha: float
    cells: pa.Table

    def check(self, fail_on: Sequence[str], allow_unchecked: bool = False) -> list[gates.Check]:
        """Gates on how captions and baselines changed, and on B's own `verdict`, `rate` and `q_value`."""
        cells = []
        for row in self.cells.to_pylist():
            pairs = min(row["draws_a"], row["draws_b"])
            values = {**row, "n": row["draws_b"], "pairs": pairs, "doubt": "; ".join(row["doubts"]) or None}
            values |= {"verdict": row["verdict_b"], "rate": row["rate_b"]}
            name = f"{row['label']}/{row['target'] or ANY}/{row['caption']}"
            cells.append(gates.GateCell(self.classifier_b, name, values))
        return gates.check(fail_on, cells, allow_unchecked)

    def page(self) -> str:
        """The comparison as one HTML page."""
        return comparison_page((self.classifier_a, self.classifier_b), self.cells, self.alpha)

    def write(self, out: str | Path) -> str:
        """Writes comparison.parquet and comparison.html into a directory; the page's path."""
        files.make_directory(out)
        directory = str(out).rstrip("/")
        files.write_table(f"{directory}/comparison.parquet", self.cells)
        files.write_bytes(f"{directory}/comparison.html", self.page().encode())
        return f"{directory}/comparison.html"

    def properties(self) -> dict[str, str]:
        return {"classifier_a": self.classifier_a, "classifier_b": self.classifier_b, "alpha": str(self.alpha)}

    def summaries(self) -> list[Summary]:
        return summaries((self.classifier_a, self.classifier_b), self.cells)

    def to_json(self) -> dict[str, Any]:
        return {
            "a": self.run_a.path,
            "b": self.run_b.path,
            "classifier_a": self.classifier_a,
            "classifier_b": self.classifier_b,
            "alpha": self.alpha,
            "changes": dict(tally(self.cells.to_pylist())),
            "cells": self.cells.to_pylist(),
        }


def compare(
    run_a: FailuresRun, run_b: FailuresRun, classifier_a: str | None = None, classifier_b: str | None = None
) -> FailuresComparison:
    """Compares two classifiers by their failures: B against A, or two of one run.

    `classifier_a`, `classifier_b`: names, needed where a run has several and it is not plain which is meant.

    ConfigError where it is not plain which classifiers are meant; RunError for runs in which a failure means something
    else, or that have no caption and no baseline in common.
    """
    if resolve(run_a.path)[1] == resolve(run_b.path)[1]:
        a, b = two_of(classifiers_of(run_a), classifier_a, classifier_b, run_a.path)
    else:
        a = one_of(classifiers_of(run_a), classifier_a, "--classifier-a", run_a.path)
        b = one_of(classifiers_of(run_b), classifier_b, "--classifier-b", run_b.path)
        _check_settings(run_a, run_b)
    alpha = float(run_a.config.get("alpha", 0.05))
    cells = compared(_rows(run_a, a), _rows(run_b, b), alpha)
    if cells["difference"].null_count == cells.num_rows:
        raise RunError(
            f"{run_a.path} and {run_b.path} have no caption or baseline of one generator in common; run c2b failures "
            "for both classifiers at once, or give both configs the same labels, generator and `captions`"
        )
    return FailuresComparison(run_a, run_b, a, b, alpha, cells)


def _rows(run: FailuresRun, classifier: str) -> list[Mapping[str, Any]]:
    return [row for row in measured(run) if row["classifier"] == classifier]


def _check_settings(run_a: FailuresRun, run_b: FailuresRun) -> None:
    different = [name for name in SAME if run_a.config.get(name) != run_b.config.get(name)]
    if different:
        raise RunError(
            f"{run_a.path} and {run_b.path} differ in {', '.join(different)}, so a failure of one is none of the "
            "other's: run c2b failures for both classifiers with the same settings, or in one run"
        )
