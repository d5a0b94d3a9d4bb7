"""Gates on a run of `c2b evaluate`: `C2B/tested/calibrated/truth_to_detected:hit<0.3`, `*/tested/*:false_hit>0.1`.

A cell is method/rule/threshold/direction, of one classifier or of all; for pseudo-labels method/rule/pseudo-labels.
These gates are for builds that change a method, its prompts or its models. This module composes runs and gates, and
knows no formulas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from c2b_ray.audits.kit.classifiers import one_of
from c2b_ray.steps import gate as gates
from c2b_ray.store.evaluate_run import EvaluateRun

ALL = "all classifiers"
PSEUDO = "pseudo-labels"


def check(
    run: EvaluateRun, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
) -> list[gates.Check]:
    """Checks gates on all classifiers taken together, or on one. A cell without a bias that could be hit is not
    checked.

    A gate that could be checked on nothing fails, unless `allow_unchecked`.
    """
    known = [name for name in dict.fromkeys(run.agreement["classifier"].to_pylist()) if name]
    chosen = "" if classifier is None else one_of(known, classifier, "--classifier", run.path)
    return gates.check(fail_on, [cell for cell in _cells(run) if cell.classifier == (chosen or ALL)], allow_unchecked)


def cell_name(row: Mapping[str, Any], method: str) -> str:
    return f"{method}/{row['rule']}/{row['threshold_kind']}/{row['direction']}"


def _cells(run: EvaluateRun) -> Iterator[gates.GateCell]:
    for row in run.agreement.to_pylist():
        yield gates.GateCell(row["classifier"] or ALL, cell_name(row, row["method"]), {**row, "n": row["biases"]})
    for row in run.vqa.to_pylist():
        name = f"{row['method']}/{row['rule']}/{PSEUDO}"
        yield gates.GateCell(row["classifier"] or ALL, name, {**row, "n": row["biases"]})
