"""Compares two classifiers by their failures, B against A, on captions and baselines that both were measured on.

It composes runs, the comparing step, gates and a page, and knows no formulas. It needs neither Ray nor a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from c2b_ray.audits.failures.gates import ANY, classifiers_of, measured
from c2b_ray.audits.kit.comparison import Comparison, differing, refuse, sides
from c2b_ray.errors import RunError
from c2b_ray.report.failures.comparison import PAGES
from c2b_ray.report.failures.report import read_facts
from c2b_ray.steps import gate as gates
from c2b_ray.steps.discovery.compared import compare as compared
from c2b_ray.store.failures_run import FailuresRun

SAME = ("rule", "confidence", "true_below", "hierarchy", "alpha")
"""Settings without which a failure, or a finding, means something else."""


def compare(
    run_a: FailuresRun, run_b: FailuresRun, classifier_a: str | None = None, classifier_b: str | None = None
) -> Comparison:
    """Compares two classifiers by their failures: B against A, from two runs or from one.

    `classifier_a`, `classifier_b`: names; needed where a run has several classifiers.

    ConfigError where a name is missing or unknown; RunError for runs whose failure rules differ, that share no caption
    and no baseline, or whose images come in clusters.
    """
    for run in (run_a, run_b):
        if cluster := read_facts(run).cluster:
            raise RunError(
                f"{run.path}: its images come in clusters ({cluster}), and a comparison of failure rates takes images "
                "as independent: compare the two with `c2b audit` on the same table with the same `cluster`, which "
                "pairs their answers"
            )
    a, b = sides((run_a, run_b), (classifier_a, classifier_b), classifiers_of, _check_settings)
    alpha = float(run_a.config.get("alpha", 0.05))
    cells = compared(_rows(run_a, a), _rows(run_b, b), alpha)
    if cells["difference"].null_count == cells.num_rows:
        raise RunError(
            f"{run_a.path} and {run_b.path} have no caption or baseline of one generator in common; run c2b failures "
            "for both classifiers at once, or give both configs the same labels, generator and `captions`"
        )
    return Comparison(
        (run_a.path, run_b.path), (a, b), alpha, cells, PAGES, [_gated(b, row) for row in cells.to_pylist()]
    )


def _gated(classifier: str, row: Mapping[str, Any]) -> gates.GateCell:
    """`verdict`, `rate` and `q_value` are B's."""
    pairs = min(row["draws_a"], row["draws_b"])
    values = {**row, "n": row["draws_b"], "pairs": pairs, "doubt": "; ".join(row["doubts"]) or None}
    values |= {"verdict": row["verdict_b"], "rate": row["rate_b"]}
    return gates.GateCell(classifier, f"{row['label']}/{row['target'] or ANY}/{row['caption']}", values)


def _rows(run: FailuresRun, classifier: str) -> list[Mapping[str, Any]]:
    return [row for row in measured(run) if row["classifier"] == classifier]


def _check_settings(run_a: FailuresRun, run_b: FailuresRun) -> None:
    why = (
        "a failure of one is none of the other's: run c2b failures for both classifiers with the same settings, "
        "or in one run"
    )
    refuse(run_a, run_b, differing(run_a, run_b, SAME), why)
