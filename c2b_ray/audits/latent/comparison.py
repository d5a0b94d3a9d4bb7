"""Compares two classifiers by the directions of one latent space that move their answers, B against A.

It composes runs, the comparing step, gates and a page, and knows no formulas. It needs neither Ray nor a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from c2b_ray.audits import gate as gates
from c2b_ray.audits.kit.comparison import Comparison, compared_names, differing, refuse
from c2b_ray.audits.kit.models import one_of
from c2b_ray.audits.latent.compared import ComparedSearch
from c2b_ray.audits.latent.compared import compare as compared
from c2b_ray.audits.latent.report.comparison import PAGES
from c2b_ray.audits.latent.run import LatentRun
from c2b_ray.audits.latent.verdicts import FOUND, UNDETERMINED
from c2b_ray.errors import Argument, RunError

# Gates on a run of `c2b latent`: `found`, `x · colour/*:found`, `effect_low>0.1`, `findings>2`.


ALL = "all problems/all methods/all directions"
_SAID = ("verdict", "effect", "effect_low", "effect_high", "p_value", "q_value", "cos_bias", "cos_target", "delta_cos")


def findings(run: LatentRun, classifier: str | None = None) -> list[gates.GateCell]:
    """Returns the directions of all classifiers of the run, or of one, and how many each has. A search without an
    answer is in doubt."""
    rows = run.directions.to_pylist()
    if classifier is not None:
        chosen_classifier = one_of(classifiers_of(run), classifier, Argument.CLASSIFIER, run.path)
        rows = [row for row in rows if row["classifier"] == chosen_classifier]
    return [*map(_cell, rows), *_numbers(rows)]


def classifiers_of(run: LatentRun) -> list[str]:
    return list(dict.fromkeys(run.directions["classifier"].to_pylist()))


def _cell(row: Mapping[str, Any]) -> gates.GateCell:
    doubt = row["reason"] if row["verdict"] == UNDETERMINED else None
    values = {name: row[name] for name in _SAID} | {"n": row["images_used"], "doubt": doubt}
    return gates.GateCell(row["classifier"], f"{row['problem']}/{row['method']}/{row['rank'] + 1}", values)


def _numbers(rows: Sequence[Mapping[str, Any]]) -> Iterator[gates.GateCell]:
    for classifier in dict.fromkeys(row["classifier"] for row in rows):
        own_rows = [row for row in rows if row["classifier"] == classifier]
        searches_with_finding = {(row["problem"], row["method"]) for row in own_rows if row["verdict"] == FOUND}
        reasons = [row["reason"] for row in own_rows if row["verdict"] == UNDETERMINED]
        values = {"findings": len(searches_with_finding), "n": sum(row["images_used"] for row in own_rows)}
        yield gates.GateCell(classifier, ALL, values | {"doubt": reasons[0] if len(reasons) == len(own_rows) else None})


SAME = ("search", "evidence")
"""Settings that change what an effect, or the absence of a direction, means."""


def compare(
    run_a: LatentRun, run_b: LatentRun, classifier_a: str | None = None, classifier_b: str | None = None
) -> Comparison:
    """Compares two classifiers by their directions: B against A, or two of one run.

    Searches correspond where the generator's weights, the target, the label, the method and the known attributes are
    equal. Raises ConfigError where it is unclear which classifiers are meant; RunError for runs whose settings differ,
    or that have no search in common.
    """
    a, b = compared_names((run_a, run_b), (classifier_a, classifier_b), classifiers_of, _check_settings)
    level = run_a.config.evidence.level
    searches = [_searches(run, classifier) for run, classifier in ((run_a, a), (run_b, b))]
    if not set(searches[0]) & set(searches[1]):
        raise RunError(
            f"{run_a.path} and {run_b.path} have no search in common: a direction of one generator is nothing in "
            "another's space, so give both the same generator, target, label, known attributes and methods"
        )
    cells = compared(searches[0], searches[1], level)
    gated = [_gated(b, row) for row in cells.to_pylist()]
    return Comparison((run_a.path, run_b.path), (a, b), level, cells, PAGES, gated)


def _gated(classifier: str, row: Mapping[str, Any]) -> gates.GateCell:
    """Returns the cell for gates. `verdict` and `effect` are B's; the cell has its name in B's run."""
    problem = row["problem_a"] if row["problem_b"] is None else row["problem_b"]
    rank = row["rank_a"] if row["rank_b"] is None else row["rank_b"]
    doubt = row["note"] or "undetermined" if row["verdict_b"] == UNDETERMINED else None
    values = {**row, "verdict": row["verdict_b"], "effect": row["effect_b"], "n": row["images_b"], "doubt": doubt}
    values["pairs"] = 0 if row["p_value"] is None else row["images_b"]
    return gates.GateCell(classifier, f"{problem}/{row['method']}/{rank + 1}", values)


def _searches(run: LatentRun, classifier: str) -> dict[tuple[Any, ...], ComparedSearch]:
    """Returns the searches by what was searched. Of several equal problems, the first ones are compared with each
    other."""
    revisions, planes = _revisions(run), {(row["generator"], row["attribute"]): row for row in _planes(run)}
    rows_of_search: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in run.directions.to_pylist():
        if row["classifier"] == classifier:
            rows_of_search.setdefault((row["problem"], row["method"]), []).append(row)
    result: dict[tuple[Any, ...], ComparedSearch] = {}
    times_seen: Counter[tuple[Any, ...]] = Counter()
    for rows in rows_of_search.values():
        first = rows[0]
        key = (revisions[first["generator"]], *(first[name] for name in ("target", "label", "method")))
        key = (*key, tuple(first["known"] or ()))
        plane = planes.get((first["generator"], first["target"]))
        normal = None if plane is None else np.array(plane["normal"])
        angle = 0.0 if plane is None else float(plane["angle"] or 0.0)
        result[*key, times_seen[key]] = ComparedSearch(sorted(rows, key=lambda row: row["rank"]), normal, angle)
        times_seen[key] += 1
    return result


def _planes(run: LatentRun) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = run.hyperplanes.to_pylist()
    return [row for row in rows if row["excluded"] is None and row["normal"] is not None]


def _revisions(run: LatentRun) -> dict[str, str]:
    """Returns name of each generator → the hash of its weights, or its spec in the config where the hash is unknown."""
    models = {row["spec"]: row["revision"] for row in (run.manifest.get("models") or {}).get("generator", [])}
    return {name: str(models.get(spec) or spec) for name, spec in run.config.generators.items()}


def _check_settings(run_a: LatentRun, run_b: LatentRun) -> None:
    why = (
        "what one found the other may have missed: run c2b latent for both classifiers with the same settings, or "
        "in one run"
    )
    refuse(run_a, run_b, differing(run_a, run_b, SAME), why)
