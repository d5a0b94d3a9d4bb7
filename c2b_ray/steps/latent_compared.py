"""Compares directions of two classifiers in one latent space: which move B's answer more than A's, and which less.

Directions that both have, by their cosine, are compared; one that the other lacks is compared with the direction that
moves the other most among those left. It knows rows of `schemas.latent.DIRECTIONS` and normals, not runs or pages.
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

from c2b_ray.metrics.testing import benjamini_hochberg
from c2b_ray.schemas.latent import LATENT_COMPARISON
from c2b_ray.steps.latent_verdict import FOUND

Row = Mapping[str, Any]
WORSE, BETTER, UNDETERMINED = "worse", "better", "undetermined"
CHANCE = 0.05
_OF_SIDE = ("problem", "rank", "verdict", "name", "effect")
_LEFT = "what moves {} most of all that is left stands in"


@dataclass(frozen=True)
class Searched:
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


def compare(a: Mapping[tuple[Any, ...], Searched], b: Mapping[tuple[Any, ...], Searched], level: float) -> pa.Table:
    """Returns a table of `LATENT_COMPARISON`, B minus A: changed rows first, smallest q first.

    `a`, `b`: searches by what was searched, with the same keys. Effects of both may have been measured on the same
    latents, whose errors are correlated in an unknown way: the error of a difference is at most the sum of both, and
    that sum is used. q is computed over all comparable rows (Benjamini & Hochberg 1995); a row is worse or better where
    it is at most `level`, which is also the level of the intervals.
    """
    keys = dict.fromkeys([*a, *b])
    rows = [_row(pair, level) for key in keys for pair in _pairs(a.get(key), b.get(key))]
    known = [row for row in rows if row["p_value"] is not None]
    q_values = benjamini_hochberg([row["p_value"] for row in known]) if known else np.zeros(0)
    for row, q_value in zip(known, q_values, strict=True):
        row["q_value"] = float(q_value)
        if q_value <= level:
            row["change"] = WORSE if row["difference"] > 0 else BETTER
    rows.sort(key=lambda row: (row["change"] == UNDETERMINED, 2.0 if row["q_value"] is None else row["q_value"]))
    return pa.Table.from_pylist(rows, LATENT_COMPARISON)


def _pairs(a: Searched | None, b: Searched | None) -> Iterator[_Pair]:
    if a is None or b is None:
        note = f"only {'B' if a is None else 'A'} was searched so"
        for row in (a or b or Searched([])).rows:
            yield _Pair(None, row, note=note) if a is None else _Pair(row, None, note=note)
        return
    if note := _apart(a, b):
        yield from (_Pair(row, None, note=note) for row in a.rows)
        yield from (_Pair(None, row, note=note) for row in b.rows)
        return
    findings_a, findings_b = ([row for row in side.rows if row["verdict"] == FOUND] for side in (a, b))
    last_a, last_b = (next((row for row in side.rows if row["verdict"] != FOUND), None) for side in (a, b))
    alike = _alike(findings_a, findings_b)
    yield from alike
    rest_a = [row for row in findings_a if not any(pair.a is row for pair in alike)]
    rest_b = [row for row in findings_b if not any(pair.b is row for pair in alike)]
    yield from (_Pair(row, last_b, note=_beside(last_b, "B")) for row in rest_a)
    yield from (_Pair(last_a, row, note=_beside(last_a, "A")) for row in rest_b)
    if not rest_a and not rest_b and last_a is not None and last_b is not None:
        yield _Pair(last_a, last_b)


def _beside(last: Row | None, side: str) -> str:
    if last is None:
        return f"{side} has another direction, and its search ended there: let `directions` be more"
    return _LEFT.format(side)


def _apart(a: Searched, b: Searched) -> str:
    """Returns why the target held fixed is not the same for both, "" where it may be."""
    if a.target is None or b.target is None:
        return "" if a.target is b.target else "only one holds a target fixed"
    cosine = float(a.target @ b.target / np.linalg.norm(a.target) / np.linalg.norm(b.target))
    angle, room = float(np.arccos(np.clip(cosine, -1, 1))), a.angle + b.angle + 1e-6
    return "" if angle <= room else f"the target's hyperplanes are {angle:.2f} radians apart, more than their doubt"


def _alike(a: Sequence[Row], b: Sequence[Row]) -> list[_Pair]:
    """Returns pairs of directions whose |cosine| is beyond chance, each direction once, with the largest sum of
    cosines."""
    if not a or not b:
        return []
    vectors = [np.array([row["direction"] for row in side]) for side in (a, b)]
    cosines = np.abs(vectors[0] @ vectors[1].T)
    free = vectors[0].shape[1] - len(a[0]["known"] or ()) - (a[0]["cos_target"] is not None)
    by_chance = chance_cosine(max(free, 1), cosines.size)
    beyond = np.where(cosines >= by_chance, cosines, 0.0)
    matched = zip(*linear_sum_assignment(beyond, maximize=True), strict=True)
    return [_Pair(a[i], b[j], min(float(cosines[i, j]), 1.0), by_chance) for i, j in matched if beyond[i, j] > 0]


def chance_cosine(dimension: int, pairs: int = 1) -> float:
    """Returns the |cosine| below which the largest of `pairs` pairs of random directions stays in 95 % of cases.

    In one dimension it is slightly below 1, so that both ways along a line count as equal.
    """
    if dimension == 1:
        return 1.0 - 1e-6
    return float(np.sqrt(stats.beta.ppf(1 - CHANCE / pairs, 0.5, (dimension - 1) / 2)))


def _row(pair: _Pair, level: float) -> dict[str, Any]:
    first = pair.a or pair.b or {}
    row: dict[str, Any] = {name: first[name] for name in ("generator", "target", "label", "method", "known")}
    for side, of in (("a", pair.a), ("b", pair.b)):
        row |= {f"{name}_{side}": None if of is None else of[name] for name in _OF_SIDE}
        row[f"images_{side}"] = None if of is None else of["images_used"]
    row |= dict.fromkeys(("difference", "difference_low", "difference_high", "p_value", "q_value"))
    row |= {"cosine": pair.cosine, "cosine_by_chance": pair.by_chance, "change": UNDETERMINED, "note": pair.note}
    if pair.a is None or pair.b is None:
        return row
    silent = [of for of in (pair.a, pair.b) if of["effect"] is None or np.isnan(of["effect"])]
    if silent:
        return row | {"note": silent[0]["reason"]}
    return row | _difference(pair.a, pair.b, level)


def _difference(a: Row, b: Row, level: float) -> dict[str, float]:
    reach = sum((of["effect_high"] - of["effect_low"]) / 2 for of in (a, b))
    difference = abs(b["effect"]) - abs(a["effect"])
    error = reach / stats.norm.ppf(1 - level / 2)
    p_value = 2 * float(stats.norm.sf(abs(difference) / error)) if error > 0 else float(difference == 0)
    limits = {"difference_low": difference - reach, "difference_high": difference + reach}
    return {"difference": difference, **limits, "p_value": p_value}
