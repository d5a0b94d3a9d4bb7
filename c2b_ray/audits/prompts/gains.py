"""Computes each method's gain over the language model's own prompts: the mean over values, with an interval over
prompts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from c2b_ray.metrics.gains import Gain, mean_gain

PLAIN = "llm"
ABOVE, BELOW, NOTHING, UNKNOWN = "above", "below", "nothing found", "unknown"

Rows = Sequence[Mapping[str, Any]]
Target = tuple[str, str]


def gains(prompts: Rows, alpha: float) -> list[dict[str, Any]]:
    """Returns rows of `schemas.prompts.GAINS` for every method but the language model's own, on each generator.

    `prompts`: rows of `schemas.prompts.PROMPTS`; those that name the value, or were not judged, are left out.
    """
    groups: dict[tuple[str, str], dict[Target, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in prompts:
        if not row["leaked"] and row["frequency"] is not None:
            groups[row["generator"], row["method"]][row["attribute"], row["value"]].append(row)
    generators = list(dict.fromkeys(generator for generator, _ in groups))
    result = []
    for (generator, method), of_method in sorted(groups.items(), key=lambda group: generators.index(group[0][0])):
        plain = groups.get((generator, PLAIN), {})
        both = [target for target in of_method if target in plain]
        if method == PLAIN or not both:
            continue
        sides = [about_the_same(of_method[target], plain[target]) for target in both]
        one = gain_of(sides, 1 - alpha)
        known = not np.isnan(one.low)
        result.append(
            {
                "generator": generator,
                "method": method,
                "gain": one.value,
                "low": max(-1.0, one.low) if known else None,
                "high": min(1.0, one.high) if known else None,
                "values": len(both),
                "prompts": sum(len(rows) for rows, _, _ in sides),
                "verdict": _verdict(one),
            }
        )
    return result


def about_the_same(rows: Rows, plain: Rows) -> tuple[Rows, Rows, list[float]]:
    """Returns the rows of a method and of the language model that are about subjects of both, and how much each of the
    latter counts, so that every subject counts as much as among the method's.

    Searches reach fewer subjects than the language model writes about, and the first of a list: where these show the
    value anyway, that would pass for a gain. Rows about no subject, or without one in common, are compared as they are.
    """
    mine, theirs = (Counter(row["subject"] for row in side) for side in (rows, plain))
    if None in mine or not mine.keys() & theirs.keys():
        return rows, plain, [1.0] * len(plain)
    kept = [row for row in plain if row["subject"] in mine]
    counts = [mine[row["subject"]] / theirs[row["subject"]] for row in kept]
    return [row for row in rows if row["subject"] in theirs], kept, counts


def gain_of(sides: Sequence[tuple[Rows, Rows, list[float]]], confidence: float) -> Gain:
    """Returns the mean gain over values. `sides`: of each value, what `about_the_same` returns."""
    values: list[float] = []
    groups: list[int] = []
    clusters: list[int] = []
    numbers: dict[Hashable, int] = {}
    of_method, plain = [rows for rows, _, _ in sides], [rows for _, rows, _ in sides]
    for number, rows in enumerate((*of_method, *plain)):
        by_subject = len({row["subject"] for row in rows}) > 1
        for row in rows:
            values.append(row["frequency"])
            groups.append(number)
            clusters.append(numbers.setdefault(cluster(row, by_subject), len(numbers)))
    counts = [1.0 for rows in of_method for _ in rows] + [count for _, _, some in sides for count in some]
    weights = np.repeat([1 / len(sides), -1 / len(sides)], len(sides))
    coarsest = min(0.5 / row["images"] for rows in (*of_method, *plain) for row in rows)
    return mean_gain(values, groups, weights, clusters, coarsest, confidence, counts)


def cluster(row: Mapping[str, Any], by_subject: bool) -> tuple[str, ...]:
    """Returns the cluster of a row: rows whose errors are correlated share one.

    These are the rows of one prompt, whose images count for every value, and the prompts that a value's searches found
    for one subject.
    """
    if row["method"].startswith("bgps") and by_subject:
        return row["attribute"], row["value"], row["method"], row["subject"]
    return (row["prompt"],)


def _verdict(one: Gain) -> str:
    if np.isnan(one.low):
        return UNKNOWN
    return ABOVE if one.low > 0 else BELOW if one.high < 0 else NOTHING
