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
import pyarrow.compute as pc

from c2b_ray import stats
from c2b_ray.audits.evaluate.steps.matching import DIRECTIONS, RULES, TRUTH_TO_DETECTED, Ints, MethodMatch, Rule
from c2b_ray.tables.evaluate import AGREEMENT, DIFFERENCES, OUTCOMES, THRESHOLDS

WORDS = {1: "hit", -1: "false_hit", 0: "miss"}
TAUS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3)
SIMILARITIES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)


@dataclass(frozen=True)
class Levels:
    """`thresholds`: by kind, fixed or calibrated. `many`, `alpha` and `seed` are the config's."""

    thresholds: Mapping[str, float]
    many: stats.Many
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


def outcome_table(methods: Sequence[MethodMatch], levels: Levels) -> pa.Table:
    """Returns a table of `OUTCOMES` of every bias of either side, under every rule and threshold."""
    rows = []
    for match in methods:
        for setting, rule in settings(levels):
            setting_fields = setting._asdict()
            for direction in DIRECTIONS:
                side = match.truth if direction == TRUTH_TO_DETECTED else match.detected
                rows_of_side, outcomes, _ = match.outcomes(rule, direction)
                names = side.table.select(["classifier", "target_class", "attribute", "value"]).take(rows_of_side)
                for name, outcome in zip(names.to_pylist(), outcomes.tolist(), strict=True):
                    rows.append(
                        {
                            "method": match.method,
                            **setting_fields,
                            "direction": direction,
                            **name,
                            "outcome": WORDS[outcome],
                        }
                    )
    return pa.Table.from_pylist(rows, OUTCOMES)


def agreement_table(methods: Sequence[MethodMatch], levels: Levels) -> pa.Table:
    """Returns a table of `AGREEMENT` of each method, over all classifiers and for each of them."""
    rows = []
    for match in methods:
        classifiers = np.array([name for name, _ in match.names], object)
        for setting, rule in settings(levels):
            setting_fields = setting._asdict()
            for direction in DIRECTIONS:
                _, outcomes, groups = match.outcomes(rule, direction)
                for classifier in ("", *dict.fromkeys(classifiers.tolist())):
                    is_selected = (classifiers[groups] == classifier) if classifier else np.ones(len(groups), bool)
                    row = {"method": match.method, **setting_fields, "direction": direction, "classifier": classifier}
                    rows.append(row | _shares(outcomes[is_selected], groups[is_selected], levels)._asdict())
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
    interval = stats.outcome_difference(
        (outcomes, np.zeros_like(outcomes)), (groups, groups), 1 - levels.alpha, seed=levels.seed, most=1.0
    )
    return _Shares(len(outcomes), *stats.outcome_shares(outcomes), *interval[:3])


def difference_table(methods: Sequence[MethodMatch], levels: Levels) -> pa.Table:
    """Returns a table of `DIFFERENCES` in HIT − FH between every two methods."""
    rows = []
    for a, b in combinations(methods, 2):
        numbers = {name: number for number, name in enumerate(sorted({*a.names, *b.names}))}
        for setting, rule in settings(levels):
            setting_fields = setting._asdict()
            for direction in DIRECTIONS:
                sides = [(match, *match.outcomes(rule, direction)[1:]) for match in (a, b)]
                groups = [
                    np.array([numbers[match.names[group]] for group in groups.tolist()], np.int64)
                    for match, _, groups in sides
                ]
                estimate = stats.outcome_difference(
                    (sides[0][1], sides[1][1]), (groups[0], groups[1]), 1 - levels.alpha, seed=levels.seed
                )
                limits = {
                    "difference": estimate.value,
                    "difference_low": estimate.low,
                    "difference_high": estimate.high,
                }
                rows.append(
                    {"method_a": a.method, "method_b": b.method, **setting_fields, "direction": direction, **limits}
                )
    return pa.Table.from_pylist(rows, DIFFERENCES)


def threshold_table(methods: Sequence[MethodMatch], points: frozenset[str]) -> pa.Table:
    """Returns a table of `THRESHOLDS` (App. C): varies τ, the least cosine, and the rule for several matches.

    `points`: methods whose scores are no differences in accuracy; their τ is not varied.
    """
    rows = []
    for match in methods:
        for rule in RULES:
            for tau in TAUS:
                for threshold in SIMILARITIES:
                    for several_rule in get_args(stats.Many):
                        varied = Rule(rule, threshold, several_rule, tau)
                        for direction in DIRECTIONS:
                            _, outcomes, _ = match.outcomes(varied, direction, match.method in points)
                            shares = stats.outcome_shares(outcomes)._asdict()
                            row = {"method": match.method, **vars(varied), "direction": direction, **shares}
                            rows.append(row | {"biases": len(outcomes)})
    return pa.Table.from_pylist(rows, THRESHOLDS)


# Says where a threshold of cosines tells nothing of what was detected: no name reaches it, or it rests on few
# names.


LEAST_PAIRS = 100
"""Pairs of different names, below which people are told that a calibrated threshold rests on few."""
SAME = 1e-12
"""Cosines this near are the same."""


def threshold_notes(matches: pa.Table, pairs: int, chosen: float, calibrated: float) -> list[str]:
    """Returns notes for people. `matches`: a table of `MATCHES`; `pairs`: the number of pairs of
    different names in the ground truth. `chosen`, `calibrated`: the two thresholds, NaN where there is none."""
    notes = []
    for kind, threshold in {"set": chosen, "calibrated": calibrated}.items():
        if not np.isnan(threshold) and (out_of_reach := _out_of_reach(matches, threshold)):
            notes.append(
                f"At the {kind} threshold, cosine {threshold:.2f}, no name of a detected bias reaches one of the "
                f"ground truth: the nearest has {_listed(out_of_reach)}. Every bias counts as a miss there because of "
                "how it is named, whatever was detected."
            )
    if not np.isnan(calibrated) and pairs < LEAST_PAIRS:
        number_of_pairs = "1 pair" if pairs == 1 else f"{pairs} pairs"
        notes.append(
            f"The calibrated threshold, cosine {calibrated:.2f}, rests on {number_of_pairs} of names in the ground "
            f"truth, and needs {LEAST_PAIRS}. Names that mean different things may reach it: look at the matches."
        )
    return notes


def _out_of_reach(matches: pa.Table, threshold: float) -> Mapping[str, float]:
    """Returns the highest cosine of each method, where no method reaches the threshold; else nothing."""
    nearest = {
        method: pc.max(matches.filter(pc.equal(matches["method"], method))["similarity"]).as_py()
        for method in matches["method"].unique().to_pylist()
    }
    return {} if any(cosine >= threshold - SAME for cosine in nearest.values()) else nearest


def _listed(nearest: Mapping[str, float]) -> str:
    parts: Sequence[str] = [f"{cosine:.2f} ({method})" for method, cosine in nearest.items()]
    return ", ".join(parts)
