"""Compares two evaluations over one ground truth: what their methods hit, B against A.

It composes runs, the comparing step, gates and a page, and knows no formulas. It needs neither Ray nor a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray import stats
from c2b_ray.audits import gate as gates
from c2b_ray.audits.evaluate.report.comparison import PAGES
from c2b_ray.audits.evaluate.run import EvaluateRun
from c2b_ray.audits.evaluate.steps.outcomes import WORDS
from c2b_ray.audits.kit.comparison import BETTER, Comparison, compared, decide, differing, importance, refuse
from c2b_ray.audits.kit.models import one_of, two_of
from c2b_ray.errors import Argument, RunError, naming
from c2b_ray.storage import resolve
from c2b_ray.tables import content_id
from c2b_ray.tables.evaluate import EVALUATION_COMPARISON, ComparisonRow

# Compares outcomes of two evaluations over one ground truth: whose methods hit more and have fewer false hits.


Row = Mapping[str, Any]
OF = ("rule", "threshold_kind", "direction")
_NUMBERS = {word: number for number, word in WORDS.items()}


@dataclass(frozen=True)
class Levels:
    """The evaluations' levels."""

    alpha: float
    seed: int


def compared_outcomes(a: Sequence[Row], b: Sequence[Row], pairs: Iterable[tuple[str, str]], levels: Levels) -> pa.Table:
    """Returns a table of `EVALUATION_COMPARISON`, B minus A: changed rows first, smallest q first.

    `a`, `b`: outcomes of both sides. `pairs`: methods of A and B to compare. The bootstrap draws classes of
    classifiers, the same for both sides (`stats.outcome_difference`); q is computed over all comparable rows
    (Benjamini & Hochberg 1995).
    """
    sides = [_by_method(rows) for rows in (a, b)]
    rows = [
        _row(
            methods,
            comparison_key,
            [side.get((name, *comparison_key), []) for side, name in zip(sides, methods, strict=True)],
            levels,
        )
        for methods in pairs
        for comparison_key in dict.fromkeys(key[1:] for side in sides for key in side if key[0] in methods)
    ]
    decide(rows, levels.alpha, rising=BETTER)
    rows.sort(key=importance)
    return pa.Table.from_pylist(rows, EVALUATION_COMPARISON)


def _by_method(rows: Iterable[Row]) -> dict[tuple[str, ...], list[Row]]:
    result: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        result.setdefault((row["method"], *(row[name] for name in OF)), []).append(row)
    return result


def _row(
    methods: tuple[str, str], comparison_key: tuple[str, ...], sides: Sequence[Sequence[Row]], levels: Levels
) -> ComparisonRow:
    number_of = {group: number for number, group in enumerate(sorted({_group(row) for side in sides for row in side}))}
    outcomes = [np.array([_NUMBERS[row["outcome"]] for row in side], np.int64) for side in sides]
    clusters = [np.array([number_of[_group(row)] for row in side], np.int64) for side in sides]
    # B first: the difference is B's less A's.
    b_then_a = (outcomes[1], outcomes[0]), (clusters[1], clusters[0])
    difference = stats.outcome_difference(*b_then_a, 1 - levels.alpha, seed=levels.seed)
    rule, threshold_kind, direction = comparison_key
    means = [float(values.mean()) if len(values) else None for values in outcomes]
    return {
        "method_a": methods[0],
        "method_b": methods[1],
        "rule": rule,
        "threshold_kind": threshold_kind,
        "direction": direction,
        "biases_a": len(outcomes[0]),
        "biases_b": len(outcomes[1]),
        "hit_minus_false_a": means[0],
        "hit_minus_false_b": means[1],
        **(compared(*difference) if np.isfinite(difference.p_value) else compared()),
    }


def _group(row: Row) -> tuple[str, str]:
    return row["classifier"], row["target_class"]


# Gates on a run of `c2b evaluate`: `C2B/tested/calibrated/truth_to_detected:hit<0.3`, `*/tested/*:false_hit>0.1`.


ALL = "all classifiers"
PSEUDO = "pseudo-labels"


def findings(run: EvaluateRun, classifier: str | None = None) -> list[gates.GateCell]:
    """Returns how often methods hit, of all classifiers taken together, or of one."""
    classifiers = [name for name in dict.fromkeys(run.agreement["classifier"].to_pylist()) if name]
    chosen_classifier = "" if classifier is None else one_of(classifiers, classifier, Argument.CLASSIFIER, run.path)
    return [cell for cell in _cells(run) if cell.classifier == (chosen_classifier or ALL)]


def cell_name(row: Mapping[str, Any], method: str) -> str:
    return f"{method}/{row['rule']}/{row['threshold_kind']}/{row['direction']}"


def _cells(run: EvaluateRun) -> Iterator[gates.GateCell]:
    for row in run.agreement.to_pylist():
        yield gates.GateCell(row["classifier"] or ALL, cell_name(row, row["method"]), {**row, "n": row["biases"]})
    for row in run.vqa.to_pylist():
        name = f"{row['method']}/{row['rule']}/{PSEUDO}"
        yield gates.GateCell(row["classifier"] or ALL, name, {**row, "n": row["biases"]})


SAME = ("tau", "alpha", "many", "threshold", "differ", "sentence_encoder")
"""Settings that change what a hit means."""


def compare(
    run_a: EvaluateRun, run_b: EvaluateRun, classifier_a: str | None = None, classifier_b: str | None = None
) -> Comparison:
    """Compares methods of two evaluations, B's against A's of the same name, or two of one run.

    `classifier_a`, `classifier_b`: names of methods here; together they name two methods with different names. Raises
    ConfigError where it is unclear which methods are meant; RunError where the ground truth or the settings differ, or
    no method has the same name.
    """
    methods = [list(dict.fromkeys(run.agreement["method"].to_pylist())) for run in (run_a, run_b)]
    if resolve(run_a.path)[1] == resolve(run_b.path)[1]:
        pairs = [two_of(methods[0], classifier_a, classifier_b, run_a.path)]
    else:
        _check_alike(run_a, run_b)
        pairs = _pairs(methods, (classifier_a, classifier_b), (run_a.path, run_b.path))
    levels = Levels(run_a.config.alpha, run_a.config.seed)
    cells = compared_outcomes(run_a.outcomes.to_pylist(), run_b.outcomes.to_pylist(), pairs, levels)
    names = tuple(", ".join(dict.fromkeys(side)) for side in zip(*pairs, strict=True))
    gated = [_gated(row) for row in cells.to_pylist()]
    return Comparison((run_a.path, run_b.path), (names[0], names[1]), levels.alpha, cells, PAGES, gated)


def _gated(row: Mapping[str, Any]) -> gates.GateCell:
    """Returns the cell for gates. `worse`: B hits less, or has more false hits."""
    pairs = 0 if row["p_value"] is None else min(row["biases_a"], row["biases_b"])
    values = {**row, "hit_minus_false": row["hit_minus_false_b"], "n": row["biases_b"], "pairs": pairs}
    return gates.GateCell(ALL, cell_name(row, row["method_b"]), values)


def _pairs(
    methods: Sequence[Sequence[str]], names: tuple[str | None, str | None], paths: tuple[str, str]
) -> list[tuple[str, str]]:
    if names != (None, None):
        options = (Argument.CLASSIFIER_A, Argument.CLASSIFIER_B)
        a, b = (one_of(*arguments) for arguments in zip(methods, names, options, paths, strict=True))
        return [(a, b)]
    common = [(name, name) for name in methods[0] if name in methods[1]]
    if not common:
        known = f": {', '.join(methods[0])}; {', '.join(methods[1])}"
        raise RunError(
            f"{paths[0]} and {paths[1]} have no method of one name",
            remedy=naming("name one of each with ", Argument.CLASSIFIER_A, Argument.CLASSIFIER_B, after=known),
        )
    return common


def _check_alike(run_a: EvaluateRun, run_b: EvaluateRun) -> None:
    different = differing(run_a, run_b, SAME)
    if not different and _truth(run_a) != _truth(run_b):
        different = ["their ground truth"]
    why = (
        "a hit of one is none of the other's: run c2b evaluate with the same classifiers, truth and settings, or "
        "both methods in one run"
    )
    refuse(run_a, run_b, different, why)


def _truth(run: EvaluateRun) -> str:
    rows = run.truth.to_pylist()
    names = ("classifier", "target_class", "attribute", "value", "wordings", "paper", "tested")
    return content_id("truth", sorted(str([row[name] for name in names]) for row in rows))
