"""Gates on a run of `c2b clip-bias`: `people/max_skew@1000/*:value_low>0.1`, `*/kl_*/gender/all:q_value<0.05`.

A cell is dataset/metric/attribute/group of a model; the group of all images is `all`. It composes runs and gates, and
knows no formulas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from c2b_ray.audits.kit.classifiers import one_of
from c2b_ray.steps import gate as gates
from c2b_ray.store.clip_bias_run import ClipBiasRun


def check(
    run: ClipBiasRun, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
) -> list[gates.Check]:
    """Checks gates on all models of the run, or on one. What could not be measured is not checked.

    A gate that could be checked on nothing fails, unless `allow_unchecked`.
    """
    rows = run.biases.to_pylist()
    if classifier is not None:
        chosen = one_of(models_of(run), classifier, "--classifier", run.path)
        rows = [row for row in rows if row["model"] == chosen]
    return gates.check(fail_on, [gates.GateCell(row["model"], cell_name(row), row) for row in rows], allow_unchecked)


def models_of(run: ClipBiasRun) -> list[str]:
    return list(dict.fromkeys(run.biases["model"].to_pylist()))


def cell_name(row: Mapping[str, Any]) -> str:
    return f"{row['dataset']}/{row['metric']}/{row['attribute']}/{row['group']}"
