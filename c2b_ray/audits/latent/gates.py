"""Gates on a run of `c2b latent`: `found`, `x · colour/*:found`, `effect_low>0.1`, `findings>2`.

A cell is problem/method/rank of a direction; `all problems/all methods/all directions` is a classifier's count of
problems in which something was found. It composes runs and gates, and knows no formulas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from c2b_ray.audits.kit.classifiers import one_of
from c2b_ray.steps import gate as gates
from c2b_ray.steps.latent_verdict import FOUND, UNDETERMINED
from c2b_ray.store.latent_run import LatentRun

ALL = "all problems/all methods/all directions"
_SAID = ("verdict", "effect", "effect_low", "effect_high", "p_value", "q_value", "cos_bias", "cos_target", "delta_cos")


def check(
    run: LatentRun, fail_on: Sequence[str], classifier: str | None = None, allow_unchecked: bool = False
) -> list[gates.Check]:
    """Checks gates on all classifiers of the run, or on one.

    A search without an answer is in doubt: only `undetermined` is checked on it. A gate that could be checked on
    nothing fails, unless `allow_unchecked`.
    """
    rows = run.directions.to_pylist()
    if classifier is not None:
        chosen = one_of(classifiers_of(run), classifier, "--classifier", run.path)
        rows = [row for row in rows if row["classifier"] == chosen]
    return gates.check(fail_on, [*map(_cell, rows), *_numbers(rows)], allow_unchecked)


def classifiers_of(run: LatentRun) -> list[str]:
    return list(dict.fromkeys(run.directions["classifier"].to_pylist()))


def _cell(row: Mapping[str, Any]) -> gates.GateCell:
    doubt = row["reason"] if row["verdict"] == UNDETERMINED else None
    values = {name: row[name] for name in _SAID} | {"n": row["images_used"], "doubt": doubt}
    return gates.GateCell(row["classifier"], f"{row['problem']}/{row['method']}/{row['rank'] + 1}", values)


def _numbers(rows: Sequence[Mapping[str, Any]]) -> Iterator[gates.GateCell]:
    for classifier in dict.fromkeys(row["classifier"] for row in rows):
        mine = [row for row in rows if row["classifier"] == classifier]
        found = {(row["problem"], row["method"]) for row in mine if row["verdict"] == FOUND}
        silent = [row["reason"] for row in mine if row["verdict"] == UNDETERMINED]
        values = {"findings": len(found), "n": sum(row["images_used"] for row in mine)}
        yield gates.GateCell(classifier, ALL, values | {"doubt": silent[0] if len(silent) == len(mine) else None})
