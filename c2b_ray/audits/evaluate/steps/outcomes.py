"""How well detected biases agree with the truth: HIT, FH and MISS, and recall@A·K (section 4.4, Figure 6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.evaluate.steps.matching import DIRECTIONS, RULES, TRUTH_TO_DETECTED, Ints, MethodMatch, Rule
from c2b_ray.audits.evaluate.steps.truth import TARGET, Rows, TruthCell
from c2b_ray.tables.evaluate import AGREEMENT, DIFFERENCES, OUTCOMES, RECALL, SHOWN, THRESHOLDS

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


# Computes recall@A·K (section 4.4, Figure 6) from embeddings of captions and of images of known content; and how
# often a method's images show what they were drawn for (App. F).


WHAT = ("class", "value", "both")


@dataclass(frozen=True)
class CaptionRelevance:
    """A caption, the rows of the images for which it is true, and those for which that is unknown."""

    kind: str
    target_class: str | None
    attribute: str | None
    value: str | None
    caption: str
    relevant: Ints  # rows
    unknown: Ints  # rows


def wanted(
    labels: pa.Table,
    cells: Mapping[TruthCell, Rows],
    classes: Sequence[str],
    texts: Mapping[tuple[str, str], str],
    captions: Sequence[str],
) -> Iterator[CaptionRelevance]:
    """Yields the captions of every class, of every value, and of both.

    `captions`: the three templates, with {class} and {value}. `texts`: the text for each (attribute, value) in them.
    """
    targets = np.array(labels[TARGET].to_pylist(), object)
    for target in classes:
        relevant = np.flatnonzero(targets == target)
        yield CaptionRelevance("class", target, None, None, _filled(captions[0], target, ""), relevant, relevant[:0])
    for attribute, value in dict.fromkeys((attribute, value) for _, attribute, value in cells):
        column = labels[attribute].combine_chunks()
        unknown = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
        # Of all classes, also of those with too few images of the value for a cell.
        relevant = np.flatnonzero(pc.equal(column, value).fill_null(False).to_numpy(zero_copy_only=False))
        yield CaptionRelevance(
            "value", None, attribute, value, _filled(captions[1], "", texts[attribute, value]), relevant, unknown
        )
        for target in [name for name in classes if (name, attribute, value) in cells]:
            caption = _filled(captions[2], target, texts[attribute, value])
            yield CaptionRelevance("both", target, attribute, value, caption, cells[target, attribute, value][0],
                         unknown[targets[unknown] == target])  # fmt: skip


def _filled(template: str, target: str, value: str) -> str:
    return template.replace("{class}", target).replace("{value}", value)


def recall_table(
    queries: Sequence[CaptionRelevance],
    texts: NDArray[np.float32],
    images: NDArray[np.float32],
    shares: Sequence[float],
) -> pa.Table:
    """Returns a table of `RECALL`.

    `images`: a unit vector per row, NaN where there is no embedding. Such images are left out, and so are those whose
    labels do not tell whether the caption is true.
    """
    has_vector = np.asarray(np.isfinite(images).all(axis=1), bool)
    vectors = images[has_vector]
    rows = []
    for query, text in zip(queries, texts, strict=True):
        relevant, is_judged = np.zeros(len(images), bool), has_vector.copy()
        relevant[query.relevant] = True
        is_judged[query.unknown] = False
        cosines = (vectors @ text)[is_judged[has_vector]]
        order = np.argsort(-cosines, kind="stable")
        marks, ranked = relevant[is_judged][order], cosines[order]
        for share in shares:
            recall = stats.recall_of_matches(marks, share, ranked)
            rows.append(
                {
                    "kind": query.kind,
                    TARGET: query.target_class,
                    "attribute": query.attribute,
                    "value": query.value,
                    "caption": query.caption,
                    "relevant": int(marks.sum()),
                    "share": share,
                    **recall._asdict(),
                }
            )
    return pa.Table.from_pylist(rows, RECALL)


def shown_table(
    method: str, captions: pa.Table, draws: pa.Table, verifications: pa.Table, confidence: float
) -> pa.Table:
    """Returns a table of `SHOWN`: how many of the images that a method drew show the class, the value, and both, as a
    question-answering model sees them."""
    of_caption = {row["caption_id"]: row for row in captions.to_pylist()}
    answers = {(row["image_id"], row["target_class"]): row for row in verifications.to_pylist() if row["error"] is None}
    hits, count = np.zeros(3, np.int64), 0
    for draw in draws.select(["caption_id", "image_id"]).to_pylist():
        caption = of_caption[draw["caption_id"]]
        answer = answers.get((draw["image_id"], caption["target_class"]))
        if answer is None or caption["attribute"] not in answer["attributes"]:
            continue
        of_class = answer["class_shown"] == caption["target_class"]
        value = answer["values"][answer["attributes"].index(caption["attribute"])]
        of_value = value == caption["bias_class"]
        hits += np.array([of_class, of_value, of_class and of_value])
        count += 1
    rows = []
    for subject, hit in zip(WHAT, hits.tolist(), strict=True):
        low, high = stats.wilson_interval(hit, count, confidence)
        share = hit / count if count else float("nan")
        rows.append(
            {"method": method, "what": subject, "images": count, "share": share, "share_low": low, "share_high": high}
        )
    return pa.Table.from_pylist(rows, SHOWN)
