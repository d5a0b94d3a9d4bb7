"""Counts matches as HIT, FH and MISS: by bias, as shares, between methods, and under other thresholds (Tables 1 and 2,
App. C).

It knows outcomes as numbers; its caller chooses the thresholds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa

from c2b_ray import metrics
from c2b_ray.schemas.evaluate import AGREEMENT, DIFFERENCES, OUTCOMES, THRESHOLDS
from c2b_ray.steps.evaluate.matching import DIRECTIONS, RULES, TRUTH_TO_DETECTED, Compared, Ints, Rule

WORDS = {1: "hit", -1: "false_hit", 0: "miss"}
TAUS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3)
SIMILARITIES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)


@dataclass(frozen=True)
class Levels:
    """`thresholds`: by kind, fixed or calibrated. `many`, `alpha` and `seed` are the config's."""

    thresholds: Mapping[str, float]
    many: metrics.Many
    alpha: float
    seed: int


class Setting(NamedTuple):
    """How outcomes were counted: the columns that their tables share."""

    rule: str
    threshold_kind: str
    threshold: float


def settings(levels: Levels) -> Iterator[tuple[Setting, Rule]]:
    """Yields every rule with every threshold. A NaN threshold, from a ground truth with fewer than two names, is
    skipped."""
    for rule in RULES:
        for kind, threshold in levels.thresholds.items():
            if not np.isnan(threshold):
                yield Setting(rule, kind, threshold), Rule(rule, threshold, levels.many)


def outcome_table(methods: Sequence[Compared], levels: Levels) -> pa.Table:
    """Returns a table of `OUTCOMES` of every bias of either side, under every rule and threshold."""
    rows = []
    for one in methods:
        for setting, rule in settings(levels):
            of = setting._asdict()
            for direction in DIRECTIONS:
                side = one.truth if direction == TRUTH_TO_DETECTED else one.detected
                rows_of_side, outcomes, _ = one.outcomes(rule, direction)
                names = side.table.select(["classifier", "target_class", "attribute", "value"]).take(rows_of_side)
                for name, outcome in zip(names.to_pylist(), outcomes.tolist(), strict=True):
                    rows.append(
                        {
                            "method": one.method,
                            **of,
                            "direction": direction,
                            **name,
                            "outcome": WORDS[outcome],
                        }
                    )
    return pa.Table.from_pylist(rows, OUTCOMES)


def agreement_table(methods: Sequence[Compared], levels: Levels) -> pa.Table:
    """Returns a table of `AGREEMENT` of each method, over all classifiers and for each of them."""
    rows = []
    for one in methods:
        classifiers = np.array([name for name, _ in one.names], object)
        for setting, rule in settings(levels):
            of = setting._asdict()
            for direction in DIRECTIONS:
                _, outcomes, groups = one.outcomes(rule, direction)
                for classifier in ("", *dict.fromkeys(classifiers.tolist())):
                    kept = (classifiers[groups] == classifier) if classifier else np.ones(len(groups), bool)
                    row = {"method": one.method, **of, "direction": direction, "classifier": classifier}
                    rows.append(row | _shares(outcomes[kept], groups[kept], levels)._asdict())
    return pa.Table.from_pylist(rows, AGREEMENT)


class _Shares(NamedTuple):
    biases: int
    hit: float
    false_hit: float
    miss: float
    hit_minus_false: float
    hit_minus_false_low: float
    hit_minus_false_high: float


def _shares(outcomes: Ints, groups: Ints, levels: Levels) -> _Shares:
    # Against a side whose outcomes are all 0: the interval of one mean.
    interval = metrics.outcome_difference(
        (outcomes, np.zeros_like(outcomes)), (groups, groups), 1 - levels.alpha, seed=levels.seed, most=1.0
    )
    return _Shares(len(outcomes), *metrics.outcome_shares(outcomes), *interval[:3])


def difference_table(methods: Sequence[Compared], levels: Levels) -> pa.Table:
    """Returns a table of `DIFFERENCES` in HIT − FH between every two methods."""
    rows = []
    for a, b in combinations(methods, 2):
        numbers = {name: number for number, name in enumerate(sorted({*a.names, *b.names}))}
        for setting, rule in settings(levels):
            of = setting._asdict()
            for direction in DIRECTIONS:
                sides = [(one, *one.outcomes(rule, direction)[1:]) for one in (a, b)]
                groups = [
                    np.array([numbers[one.names[group]] for group in groups.tolist()], np.int64)
                    for one, _, groups in sides
                ]
                found = metrics.outcome_difference(
                    (sides[0][1], sides[1][1]), (groups[0], groups[1]), 1 - levels.alpha, seed=levels.seed
                )
                limits = {"difference": found.value, "difference_low": found.low, "difference_high": found.high}
                rows.append({"method_a": a.method, "method_b": b.method, **of, "direction": direction, **limits})
    return pa.Table.from_pylist(rows, DIFFERENCES)


def threshold_table(methods: Sequence[Compared], points: frozenset[str]) -> pa.Table:
    """Returns a table of `THRESHOLDS` (App. C): varies τ, the least cosine, and the rule for several matches.

    `points`: methods whose scores are no differences in accuracy; their τ is not varied.
    """
    rows = []
    for one in methods:
        for rule in RULES:
            for tau in TAUS:
                for threshold in SIMILARITIES:
                    for many in get_args(metrics.Many):
                        varied = Rule(rule, threshold, many, tau)
                        for direction in DIRECTIONS:
                            _, outcomes, _ = one.outcomes(varied, direction, one.method in points)
                            shares = metrics.outcome_shares(outcomes)._asdict()
                            row = {"method": one.method, **vars(varied), "direction": direction, **shares}
                            rows.append(row | {"biases": len(outcomes)})
    return pa.Table.from_pylist(rows, THRESHOLDS)
