"""Compares two classifiers by the directions of one latent space that move their answers, B against A.

It composes runs, the comparing step, gates and a page, and knows no formulas. It needs neither Ray nor a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment

from c2b_ray.audits import gate as gates
from c2b_ray.audits.kit.comparison import Comparison, compared, compared_names, decide, differing, importance, refuse
from c2b_ray.audits.kit.models import one_of
from c2b_ray.audits.latent.report import METHODS, target_of
from c2b_ray.audits.latent.run import LatentRun
from c2b_ray.audits.latent.verdicts import FOUND, UNDETERMINED
from c2b_ray.errors import Argument, RunError
from c2b_ray.report import words
from c2b_ray.report.comparison import DIFFERENCE, Heading, Pages, difference_texts
from c2b_ray.report.redact import clean
from c2b_ray.tables.latent import LATENT_COMPARISON, ComparisonRow
from c2b_ray.tables.rows import ComparedRow

# Compares directions of two classifiers in one latent space: which move B's answer more than A's, and which less.


Row = Mapping[str, Any]
CHANCE = 0.05
_LEFT = "what moves {} most of all that is left stands in"


@dataclass(frozen=True)
class ComparedSearch:
    """One problem of one classifier by one method.

    `rows`: its directions by rank. `target`: the unit normal of its target, None where there is none; `angle`: its
    uncertainty in radians.
    """

    rows: Sequence[Row]
    target: NDArray[np.float64] | None = None
    angle: float = 0.0


@dataclass(frozen=True)
class _Pair:
    a: Row | None
    b: Row | None
    cosine: float | None = None
    by_chance: float | None = None
    note: str | None = None


def compared_directions(
    a: Mapping[tuple[Any, ...], ComparedSearch], b: Mapping[tuple[Any, ...], ComparedSearch], level: float
) -> pa.Table:
    """Returns a table of `LATENT_COMPARISON`, B minus A: changed rows first, smallest q first.

    `a`, `b`: searches by what was searched, with the same keys. Effects of both may have been measured on the same
    latents, whose errors are correlated in an unknown way: the error of a difference is at most the sum of both, and
    that sum is used. q is computed over all comparable rows (Benjamini & Hochberg 1995); a row is worse or better where
    it is at most `level`, which is also the level of the intervals.
    """
    keys = dict.fromkeys([*a, *b])
    rows = [_row(pair, level) for key in keys for pair in _pairs(a.get(key), b.get(key))]
    decide(rows, level)
    rows.sort(key=importance)
    return pa.Table.from_pylist(rows, LATENT_COMPARISON)


def _pairs(a: ComparedSearch | None, b: ComparedSearch | None) -> Iterator[_Pair]:
    if a is None or b is None:
        note = f"only {'B' if a is None else 'A'} was searched so"
        for row in (a or b or ComparedSearch([])).rows:
            yield _Pair(None, row, note=note) if a is None else _Pair(row, None, note=note)
        return
    if note := _apart(a, b):
        yield from (_Pair(row, None, note=note) for row in a.rows)
        yield from (_Pair(None, row, note=note) for row in b.rows)
        return
    findings_a, findings_b = ([row for row in side.rows if row["verdict"] == FOUND] for side in (a, b))
    last_a, last_b = (next((row for row in side.rows if row["verdict"] != FOUND), None) for side in (a, b))
    matched = _alike(findings_a, findings_b)
    yield from matched
    rest_a = [row for row in findings_a if not any(pair.a is row for pair in matched)]
    rest_b = [row for row in findings_b if not any(pair.b is row for pair in matched)]
    yield from (_Pair(row, last_b, note=_other_side_text(last_b, "B")) for row in rest_a)
    yield from (_Pair(last_a, row, note=_other_side_text(last_a, "A")) for row in rest_b)
    if not rest_a and not rest_b and last_a is not None and last_b is not None:
        yield _Pair(last_a, last_b)


def _other_side_text(last: Row | None, side: str) -> str:
    if last is None:
        return f"{side} has another direction, and its search ended there: let `directions` be more"
    return _LEFT.format(side)


def _apart(a: ComparedSearch, b: ComparedSearch) -> str:
    """Returns why the target held fixed is not the same for both, "" where it may be."""
    if a.target is None or b.target is None:
        return "" if a.target is b.target else "only one holds a target fixed"
    cosine = float(a.target @ b.target / np.linalg.norm(a.target) / np.linalg.norm(b.target))
    angle, tolerance = float(np.arccos(np.clip(cosine, -1, 1))), a.angle + b.angle + 1e-6
    return (
        "" if angle <= tolerance else f"the target's hyperplanes are {angle:.2f} radians apart, more than their doubt"
    )


def _alike(a: Sequence[Row], b: Sequence[Row]) -> list[_Pair]:
    """Returns pairs of directions whose |cosine| is beyond chance, each direction once, with the largest sum of
    cosines."""
    if not a or not b:
        return []
    vectors = [np.array([row["direction"] for row in side]) for side in (a, b)]
    cosines = np.abs(vectors[0] @ vectors[1].T)
    free = vectors[0].shape[1] - len(a[0]["known"] or ()) - (a[0]["cos_target"] is not None)
    by_chance = chance_cosine(max(free, 1), cosines.size)
    above_chance = np.where(cosines >= by_chance, cosines, 0.0)
    matched = zip(*linear_sum_assignment(above_chance, maximize=True), strict=True)
    return [_Pair(a[i], b[j], min(float(cosines[i, j]), 1.0), by_chance) for i, j in matched if above_chance[i, j] > 0]


def chance_cosine(dimension: int, pairs: int = 1) -> float:
    """Returns the |cosine| below which the largest of `pairs` pairs of random directions stays in 95 % of cases.

    In one dimension it is slightly below 1, so that both ways along a line count as equal.
    """
    if dimension == 1:
        return 1.0 - 1e-6
    return float(np.sqrt(stats.beta.ppf(1 - CHANCE / pairs, 0.5, (dimension - 1) / 2)))


def _row(pair: _Pair, level: float) -> ComparisonRow:
    a, b = pair.a or {}, pair.b or {}
    present, note, numbers = a or b, pair.note, compared()
    if a and b:
        without_effect = [
            search_row for search_row in (a, b) if search_row["effect"] is None or np.isnan(search_row["effect"])
        ]
        if without_effect:
            note = without_effect[0]["reason"]
        else:
            numbers = _difference(a, b, level)
    return {
        "generator": present["generator"],
        "target": present["target"],
        "label": present["label"],
        "method": present["method"],
        "known": present["known"],
        "problem_a": a.get("problem"),
        "problem_b": b.get("problem"),
        "rank_a": a.get("rank"),
        "rank_b": b.get("rank"),
        "verdict_a": a.get("verdict"),
        "verdict_b": b.get("verdict"),
        "name_a": a.get("name"),
        "name_b": b.get("name"),
        "effect_a": a.get("effect"),
        "effect_b": b.get("effect"),
        "images_a": a.get("images_used"),
        "images_b": b.get("images_used"),
        "cosine": pair.cosine,
        "cosine_by_chance": pair.by_chance,
        "note": note,
        **numbers,
    }


def _difference(a: Row, b: Row, level: float) -> ComparedRow:
    reach = sum((side["effect_high"] - side["effect_low"]) / 2 for side in (a, b))
    difference = abs(b["effect"]) - abs(a["effect"])
    error = reach / stats.norm.ppf(1 - level / 2)
    p_value = 2 * float(stats.norm.sf(abs(difference) / error)) if error > 0 else float(difference == 0)
    return compared(difference, difference - reach, difference + reach, p_value)


# The texts of a comparison of two classifiers by directions of a latent space, for the page and a terminal.


HEADINGS = (
    Heading("target"),
    Heading("generator"),
    Heading("method", page_only=True),
    Heading("direction"),
    Heading("note", small=True, page_only=True),
    Heading("A", number=True),
    Heading("B", number=True),
    Heading("verdicts", page_only=True),
    *DIFFERENCE,
    Heading("|cos|", number=True),
    Heading("by chance", small=True, page_only=True),
)


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    paired = row["cosine"] is not None
    effect_a, effect_b = (
        words.UNKNOWN if row[f"effect_{side}"] is None else words.signed(row[f"effect_{side}"]) for side in "ab"
    )
    return (
        clean(target_of(row)),
        clean(row["generator"]),
        METHODS.get(row["method"], str(row["method"])),
        _direction(row),
        clean(row["note"] or ""),
        effect_a,
        effect_b,
        ", ".join(row[f"verdict_{side}"] or words.UNKNOWN for side in "ab"),
        *difference_texts(row),
        f"{row['cosine']:.2f}" if paired else words.UNKNOWN,
        f"by chance below {row['cosine_by_chance']:.2f}" if paired else "",
    )


def _direction(row: Mapping[str, Any]) -> str:
    """Returns the captioner's name of the direction, or its number."""
    names = [
        row[f"name_{side}"] or f"{side.upper()}’s {row[f'rank_{side}'] + 1}"
        for side in "ab"
        if row[f"rank_{side}"] is not None
    ]
    return clean(" and ".join(dict.fromkeys(names)))


PAGES = Pages(
    kicker="Two classifiers compared",
    title="Which hidden direction moves whose answer",
    caption="Effects of directions on P(label), the surest difference first",
    terms=(
        "Searches are the same where the generator’s weights, the target, the label, the method and the known "
        "attributes are, and the target’s hyperplanes are no further apart than the doubt about them. Directions "
        "that both classifiers have go together where their |cosine| is beyond what random directions reach. A "
        "direction that the other lacks is held against what moves the other most of all that is left once its "
        "search ends at nothing; where the search ended before, they cannot be compared. Effects of both may be "
        "measured on the same latents, so the error of a difference is taken as the sum of both errors, the "
        "largest that it can be. **Moves the answer more** and **less** where q is at most {alpha}, adjusted for "
        "the false discovery rate over all that can be compared (Benjamini & Hochberg 1995).",
    ),
    titles={"worse": "Moves the answer more", "better": "Moves the answer less", "undetermined": "Not told apart"},
    headings=HEADINGS,
    texts=_texts,
    rising=True,
)


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
    cells = compared_directions(searches[0], searches[1], level)
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
