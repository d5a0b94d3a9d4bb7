"""Compares two generators' prompts and words: what one shows more often than the other, and whether that could be
chance.

It knows rows of prompts and associations, not runs or pages. Prompts that both generators were judged on count as one
draw, so that effects common to both cancel; prompts of searches belong to one generator each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import t as student

from c2b_ray.audits.kit.comparison import UNDETERMINED, compared, decide, importance
from c2b_ray.audits.prompts.measurement import PLAIN, Rows, Term, gain_terms, sum_of
from c2b_ray.stats.gains import Gain
from c2b_ray.tables.prompts import PROMPTS_COMPARISON, ComparisonRow

GAIN, FREQUENCY, WORD = "gain", "frequency", "word"
ALL = ("all attributes", "all values")
RAISES, NONE = "raises", "none"

Key = tuple[str, str, str]
"""Attribute, value, method or word."""


@dataclass(frozen=True)
class GeneratorResults:
    """One generator's results. `prompts`, `associations`: its rows of the tables of these names. `least`: the least
    effect of its words."""

    prompts: Rows
    associations: Rows
    least: float


def compare(a: GeneratorResults, b: GeneratorResults, alpha: float) -> pa.Table:
    """Returns a table of `PROMPTS_COMPARISON`, B minus A: changed rows first, smallest q first.

    It has rows for each method's frequency by value; for its gain over the language model's own prompts, by value and
    over the values that both sides have; and for each word's effect. Prompts that name the value are left out. q is
    computed over all comparable rows of a measure (Benjamini & Hochberg 1995); a row is worse (more in B) or better
    where it is at most alpha.
    """
    rows = [*_of_methods(a.prompts, b.prompts, 1 - alpha), *_of_words(a, b, alpha)]
    for measure in (GAIN, FREQUENCY, WORD):
        decide([row for row in rows if row["measure"] == measure], alpha)
    rows.sort(key=importance)
    return pa.Table.from_pylist(rows, PROMPTS_COMPARISON)


def gains_by_value(prompts: Rows, confidence: float) -> dict[Key, tuple[Gain, int]]:
    """Returns by `Key` each method's mean frequency minus that of the language model's own prompts, and its images."""
    groups = _groups(prompts)
    plain = {key[:2]: rows for key, rows in groups.items() if key[2] == PLAIN}
    return {
        key: (sum_of(gain_terms(rows, plain[key[:2]]), confidence), _images(rows))
        for key, rows in groups.items()
        if key[2] != PLAIN and key[:2] in plain
    }


def verdict(row: Mapping[str, Any], least: float) -> str:
    """Returns the verdict on a word: it raises the value by more than the least effect, by no more than that, or
    undetermined."""
    if row["raises"]:
        return RAISES
    return NONE if row["high"] is not None and row["high"] <= least else UNDETERMINED


def _of_methods(a: Rows, b: Rows, confidence: float) -> Iterator[ComparisonRow]:
    groups_a, groups_b = _groups(a), _groups(b)
    for key in dict.fromkeys([*groups_a, *groups_b]):
        sides = [groups_a.get(key, []), groups_b.get(key, [])]
        yield _row(FREQUENCY, key, sides, _frequencies(sides, confidence), confidence)
    pairs: dict[str, list[tuple[Rows, ...]]] = defaultdict(list)
    for key in dict.fromkeys([*groups_a, *groups_b]):
        plain = (*key[:2], PLAIN)
        four = tuple(side.get(group_key, []) for group_key in (key, plain) for side in (groups_a, groups_b))
        if key[2] != PLAIN:
            yield _row(GAIN, key, four[:2], _gains([four], confidence), confidence)
            if all(four):
                pairs[key[2]].append(four)
    for method, fours in pairs.items():
        sides = [[row for four in fours for row in four[i]] for i in (0, 1)]
        yield _row(GAIN, (*ALL, method), sides, _gains(fours, confidence), confidence)


def _groups(prompts: Rows) -> dict[Key, list[Mapping[str, Any]]]:
    groups: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for row in prompts:
        if not row["leaked"] and row["frequency"] is not None:
            groups[row["attribute"], row["value"], row["method"]].append(row)
    return groups


def _frequencies(sides: Sequence[Rows], confidence: float) -> tuple[float | None, float | None, Gain | None]:
    """Returns A's frequency, B's, and B's minus A's."""
    a, b = map(_mean, sides)
    if a is None or b is None:
        return a, b, None
    return a, b, sum_of([Term(sides[1], 1.0, "b"), Term(sides[0], -1.0, "a")], confidence)


def _gains(fours: Sequence[tuple[Rows, ...]], confidence: float) -> tuple[float | None, float | None, Gain | None]:
    """Returns the same as `_frequencies`, for the mean gain over values.

    `fours`: for each value, the rows of A, of B, and of the language model's own prompts on A and on B.
    """
    share = 1 / len(fours)
    gains = [[gain_terms(four[i], four[i + 2], share, side) for i, side in enumerate("ab")] for four in fours]
    if len(fours) == 1 and not all(fours[0]):
        a, b = (sum(term.weight * term.mean for term in gain) if gain else None for gain in gains[0])
        return a, b, None
    a, b = (sum(term.weight * term.mean for gain in gains for term in gain[i]) for i in (0, 1))
    terms = [
        term
        for terms_a, terms_b in gains
        for term in (*terms_b, *(replace(term_a, weight=-term_a.weight) for term_a in terms_a))
    ]
    return a, b, sum_of(terms, confidence)


def _mean(rows: Rows) -> float | None:
    return float(np.mean([row["frequency"] for row in rows])) if rows else None


def _images(rows: Rows) -> int:
    return sum(int(row["images"]) for row in rows)


def _row(
    measure: str, key: Key, sides: Sequence[Rows], numbers: tuple[float | None, float | None, Gain | None],
    confidence: float,
) -> ComparisonRow:  # fmt: skip
    value_a, value_b, difference = numbers
    outcome = compared()
    if difference is not None and np.isfinite(difference.low):
        error = (difference.high - difference.value) / float(student.ppf((1 + confidence) / 2, difference.freedom))
        p_value = 2 * float(student.sf(abs(difference.value) / error, difference.freedom))
        reach = 1.0 if measure == FREQUENCY else 2.0
        low, high = max(-reach, difference.low), min(reach, difference.high)
        outcome = compared(difference.value, low, high, p_value)
    attribute, value, name = key
    return {
        "attribute": attribute,
        "value": value,
        "name": name,
        "measure": measure,
        "value_a": value_a,
        "value_b": value_b,
        "n_a": _images(sides[0]),
        "n_b": _images(sides[1]),
        "verdict_a": None,
        "verdict_b": None,
        **outcome,
    }


def _of_words(a: GeneratorResults, b: GeneratorResults, alpha: float) -> Iterator[ComparisonRow]:
    rows_a, rows_b = ({(r["attribute"], r["value"], r["word"]): r for r in side.associations} for side in (a, b))
    for key in dict.fromkeys([*rows_a, *rows_b]):
        row_a, row_b = rows_a.get(key), rows_b.get(key)
        effects = [row["effect"] if row is not None else None for row in (row_a, row_b)]
        images = [{"images": row["images"]} if row is not None else {"images": 0} for row in (row_a, row_b)]
        difference = _difference_of_words(row_a, row_b, alpha) if row_a is not None and row_b is not None else None
        row = _row(WORD, key, [images[:1], images[1:]], (effects[0], effects[1], difference), 1 - alpha)
        row["verdict_a"] = None if row_a is None else verdict(row_a, a.least)
        row["verdict_b"] = None if row_b is None else verdict(row_b, b.least)
        yield row


def _difference_of_words(a: Mapping[str, Any], b: Mapping[str, Any], alpha: float) -> Gain | None:
    """Returns Welch's difference of two means over contexts, which are taken as independent; conservative where both
    have the same contexts."""
    if a["against"] != b["against"] or None in (a["effect"], b["effect"]):
        return None
    errors = [_error(row, alpha) for row in (a, b)]
    total = errors[0] ** 2 + errors[1] ** 2
    parts = [error**4 / (row["contexts"] - 1) for error, row in zip(errors, (a, b), strict=True)]
    freedom = total**2 / sum(parts)
    reach = float(student.ppf(1 - alpha / 2, freedom)) * total**0.5
    value = b["effect"] - a["effect"]
    return Gain(value, value - reach, value + reach, freedom)


def _error(row: Mapping[str, Any], alpha: float) -> float:
    """Returns the standard error behind an interval, one side of which may have been cut at 1."""
    reach = max(row["high"] - row["effect"], row["effect"] - row["low"])
    return float(reach / student.ppf(1 - alpha / 2, row["contexts"] - 1))
