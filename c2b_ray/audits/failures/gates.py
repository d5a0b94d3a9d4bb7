"""Gates on a run of `c2b failures`: `failure`, `fly/bee/*:failure`, `rate>0.01`, `fly/*:rate_low>0.01`.

A cell is label/target/caption of a classifier. Cells are the hypotheses of confirmation and the baseline of each label,
whose verdict is `baseline` and whose target is `any label`. `findings>3` bounds the number of captions that a
classifier fails on. This module composes runs and gates, and knows no formulas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from c2b_ray.audits.kit.classifiers import one_of
from c2b_ray.report.failures.facts import Facts
from c2b_ray.report.failures.labels import at_baseline
from c2b_ray.report.failures.report import read_facts
from c2b_ray.report.failures.rows import BASELINE, CONFIRMATION, FAILURE
from c2b_ray.steps import gate as gates
from c2b_ray.store.failures_run import FailuresRun

ANY = "any label"
ALL = "all labels/all targets/all captions"


def check(
    run: FailuresRun, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
) -> list[gates.Check]:
    """Checks the gates on all classifiers of the run, or on one. Hypotheses with doubts are not checked.

    A gate that no cell could be checked against fails, unless `allow_unchecked`.
    """
    rows = measured(run)
    if classifier is not None:
        chosen = one_of(classifiers_of(run), classifier, "--classifier", run.path)
        rows = [row for row in rows if row["classifier"] == chosen]
    return gates.check(fail_on, [*map(_cell, rows), *_numbers(rows)], allow_unchecked)


def classifiers_of(run: FailuresRun) -> list[str]:
    return list(read_facts(run).names)


def measured(run: FailuresRun) -> list[Mapping[str, Any]]:
    """Returns each hypothesis of confirmation and each baseline: its key, `verdict`, counts, rates and `doubts`."""
    return [*(row for row in run.hypotheses.to_pylist() if row["stage"] == CONFIRMATION), *_baselines(read_facts(run))]


def _cell(row: Mapping[str, Any]) -> gates.GateCell:
    values = {**row, "n": row["draws"], "doubt": "; ".join(row["doubts"]) or None}
    return gates.GateCell(row["classifier"], f"{row['label']}/{row['target'] or ANY}/{row['caption']}", values)


def _numbers(rows: Sequence[Mapping[str, Any]]) -> Iterator[gates.GateCell]:
    """Counts the findings of each classifier. A caption counts once, whatever the wrong labels are."""
    for classifier in dict.fromkeys(row["classifier"] for row in rows):
        mine = [row for row in rows if row["classifier"] == classifier]
        of = {(row["label"], row["caption"]) for row in mine if row["verdict"] == FAILURE}
        values = {"findings": len(of), "n": sum(row["draws"] for row in mine)}
        yield gates.GateCell(classifier, ALL, values)


def _baselines(facts: Facts) -> Iterator[Mapping[str, Any]]:
    for label, baseline in facts.baselines.items():
        for classifier in facts.names:
            _, counts = at_baseline(facts, label, classifier)
            estimate = facts.rate(counts.failures, counts.draws)
            yield {
                "classifier": classifier,
                "generator": ", ".join(facts.primary),
                "label": label,
                "target": None,
                "caption": baseline.text,
                "verdict": BASELINE,
                "doubts": [],
                "q_value": None,
                "draws": counts.draws,
                "failures": counts.failures,
                "rate": float(estimate.value),
                "rate_low": float(estimate.low),
                "rate_high": float(estimate.high),
            }
