"""Compares directions of two classifiers in one latent space: which move B's answer more than A's, and which less.

Directions that both have, by their cosine, are compared; one that the other lacks is compared with the direction that
moves the other most among those left. It knows rows of `tables.latent.DIRECTIONS` and normals, not runs or pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import linear_sum_assignment

from c2b_ray.audits.kit.comparison import compared, decide, importance
from c2b_ray.audits.latent.verdicts import FOUND
from c2b_ray.tables.latent import LATENT_COMPARISON, ComparisonRow
from c2b_ray.tables.rows import ComparedRow

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


def compare(
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
