"""Computes each method's gain over the language model's own prompts: the mean over values, with an interval over
prompts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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
        terms = [gain_terms(of_method[target], plain[target], 1 / len(both)) for target in both]
        one = sum_of(list(chain.from_iterable(terms)), 1 - alpha)
        known = not np.isnan(one.low)
        result.append(
            {
                "generator": generator,
                "method": method,
                "gain": one.value,
                "low": max(-1.0, one.low) if known else None,
                "high": min(1.0, one.high) if known else None,
                "values": len(both),
                "prompts": sum(len(of_target.rows) for of_target, _ in terms),
                "verdict": _verdict(one),
            }
        )
    return result


@dataclass(frozen=True)
class Term:
    """Prompts whose mean frequency has the weight `weight` in a sum. `side`: the generator whose searches they come
    from. `counts`: how much each prompt counts in the mean; None: alike."""

    rows: Rows
    weight: float
    side: str = ""
    counts: Sequence[float] | None = None

    @property
    def mean(self) -> float:
        return float(np.average([row["frequency"] for row in self.rows], weights=self.counts))


def gain_terms(rows: Rows, plain: Rows, weight: float = 1.0, side: str = "") -> list[Term]:
    """Returns the two terms of a method's gain over the language model's own prompts (`plain`) about the same subjects,
    each subject with the same weight; none where either has no prompt.

    Searches reach fewer subjects than the language model writes about, and the first of a list: where these show the
    value anyway, that would pass for a gain. Rows about no subject, or without one in common, are compared as they are.
    """
    if not rows or not plain:
        return []
    mine, theirs = (Counter(row["subject"] for row in some) for some in (rows, plain))
    if None in mine or not mine.keys() & theirs.keys():
        return [Term(rows, weight, side), Term(plain, -weight, side)]
    kept = [row for row in plain if row["subject"] in mine]
    counts = [mine[row["subject"]] / theirs[row["subject"]] for row in kept]
    return [
        Term([row for row in rows if row["subject"] in theirs], weight, side),
        Term(kept, -weight, side, counts),
    ]


def sum_of(terms: Sequence[Term], confidence: float) -> Gain:
    """Returns the weighted sum of the terms' means, with an interval over prompts and searches."""
    values: list[float] = []
    groups: list[int] = []
    clusters: list[int] = []
    counts: list[float] = []
    numbers: dict[tuple[str, ...], int] = {}
    for number, term in enumerate(terms):
        counts += term.counts or [1.0] * len(term.rows)
        by_subject = len({row["subject"] for row in term.rows}) > 1
        for row in term.rows:
            values.append(row["frequency"])
            groups.append(number)
            clusters.append(numbers.setdefault(_cluster(row, by_subject, term.side), len(numbers)))
    coarsest = min(0.5 / row["images"] for term in terms for row in term.rows)
    return mean_gain(values, groups, [term.weight for term in terms], clusters, coarsest, confidence, counts)


def _cluster(row: Mapping[str, Any], by_subject: bool, side: str) -> tuple[str, ...]:
    """Returns the cluster of a row: rows whose errors are correlated share one.

    These are the rows of one prompt, whose images count for every value, and the prompts that a value's searches found
    for one subject. A search is of one generator, `side`.
    """
    if row["method"].startswith("bgps") and by_subject:
        return side, row["attribute"], row["value"], row["method"], row["subject"]
    return (row["prompt"],)


def _verdict(one: Gain) -> str:
    if np.isnan(one.low):
        return UNKNOWN
    return ABOVE if one.low > 0 else BELOW if one.high < 0 else NOTHING
