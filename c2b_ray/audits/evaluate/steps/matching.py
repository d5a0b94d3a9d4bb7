"""The biases that methods detect, and their matches with those of the ground truth, by embeddings of words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.names import normalise
from c2b_ray.stats.gains import mean_gain
from c2b_ray.tables.evaluate import BIASES, MATCHES, PROPOSERS, RANKING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Vectors = Mapping[str, Floats]
RULES = ("paper", "tested")
TRUTH_TO_DETECTED, DETECTED_TO_TRUTH = "truth_to_detected", "detected_to_truth"
DIRECTIONS = (TRUTH_TO_DETECTED, DETECTED_TO_TRUTH)
SAME = 1e-12
"""Differences of shares that are nearer to τ than floats can tell are τ."""
SHOWN = 3
"""How many nearest detected biases of each ground truth are listed, whatever their similarity."""


@dataclass(frozen=True)
class Rule:
    """When two biases match, and which count: see `stats.bias_outcomes`. `tau`: None: only the sign counts."""

    rule: str
    threshold: float
    many: stats.Many = "nearest"
    tau: float | None = None


@dataclass(frozen=True)
class ClassBiases:
    """Biases of one classifier and class: rows of the two tables, and the cosine of each pair."""

    truth: Ints
    detected: Ints
    similarity: Floats


@dataclass(frozen=True)
class BiasArrays:
    """A table of `BIASES` as arrays. Signs refer to what the wordings name, whether or not they deny it."""

    table: pa.Table

    @cached_property
    def wordings(self) -> list[list[str]]:
        wordings: list[list[str]] = self.table["wordings"].to_pylist()
        return wordings

    @cached_property
    def score(self) -> Floats:
        return np.asarray(self.table["score"].to_numpy(), np.float64)

    def signs(self, rule: str, tau: float | None = None) -> Ints:
        signs: Ints = np.asarray(self.table[rule].to_numpy(), np.int64)
        if tau is not None:
            is_beyond = np.nan_to_num(np.abs(self.score)) > tau + SAME  # 19/20 - 18/20 is no more than .05
            of_score = np.sign(np.nan_to_num(self.score)).astype(np.int64)
            signs = np.where(is_beyond, of_score if rule == "paper" else signs, 0)
        denied = self.table["negated"].to_numpy(zero_copy_only=False)
        turned: Ints = np.where(denied, -signs, signs)
        return turned

    @cached_property
    def rows(self) -> dict[tuple[str, str], Ints]:
        rows: dict[tuple[str, str], list[int]] = defaultdict(list)
        for i, key in enumerate(
            zip(self.table["classifier"].to_pylist(), self.table["target_class"].to_pylist(), strict=True)
        ):
            rows[key].append(i)
        return {key: np.array(of_key, np.int64) for key, of_key in rows.items()}


@dataclass(frozen=True)
class MethodMatch:
    """The ground truth and one method, with the cosines of all pairs that may match."""

    method: str
    truth: BiasArrays
    detected: BiasArrays
    groups: tuple[ClassBiases, ...]
    names: tuple[tuple[str, str], ...]  # classifier and class of each group

    def outcomes(self, rule: Rule, direction: str, point: bool = False) -> tuple[Ints, Ints, Ints]:
        """Returns (row, outcome, number of the group) of every bias of the side that `direction` starts from."""
        flipped = direction == DETECTED_TO_TRUTH
        # B2T's scores are CLIP's points: τ of accuracies does not apply to them.
        of_truth = self.truth.signs(rule.rule, rule.tau)
        of_detected = self.detected.signs(rule.rule, None if point else rule.tau)
        rows, results, numbers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for number, group in enumerate(self.groups):
            first, second = (group.detected, group.truth) if flipped else (group.truth, group.detected)
            signs, other_signs = (of_detected, of_truth) if flipped else (of_truth, of_detected)
            is_biased = signs[first] != 0
            similarity = group.similarity.T if flipped else group.similarity
            outcomes_of_group = stats.bias_outcomes(
                similarity[is_biased], signs[first][is_biased], other_signs[second], rule.threshold, rule.many
            )  # fmt: skip
            rows.append(first[is_biased])
            results.append(outcomes_of_group)
            numbers.append(np.full(len(outcomes_of_group), number))
        return np.concatenate(rows), np.concatenate(results), np.concatenate(numbers)


def compared(method: str, truth: pa.Table, detected: pa.Table, vectors: Vectors) -> MethodMatch:
    """`vectors`: the unit embedding of every wording."""
    sides = (BiasArrays(truth), BiasArrays(detected))
    names = sorted({*sides[0].rows, *sides[1].rows})
    none = np.zeros(0, np.int64)
    groups = []
    for name in names:
        rows = [side.rows.get(name, none) for side in sides]
        groups.append(ClassBiases(rows[0], rows[1], _cosines(sides, rows, vectors).max(axis=(1, 3), initial=-1.0)))
    return MethodMatch(method, *sides, tuple(groups), tuple(names))


def _cosines(sides: Sequence[BiasArrays], rows: Sequence[Ints], vectors: Vectors) -> Floats:
    """Returns cosines (truths, wordings, detected, wordings); −1 where one has fewer wordings than another.

    Where both sides name the attribute of a value, values are not compared without it: a black car is not black hair.
    """
    stacked = []
    for side, side_rows in zip(sides, rows, strict=True):
        texts = [side.wordings[row] for row in side_rows.tolist()]
        width = max(map(len, texts), default=1)
        size = len(next(iter(vectors.values()))) if vectors else 1
        block = np.full((len(texts), width, size), np.nan)
        for i, wordings in enumerate(texts):
            for number, text in enumerate(wordings):
                block[i, number] = vectors[text]
        stacked.append(block)
    cosines = np.einsum("iad,jbd->iajb", *stacked)
    with_attribute = np.ix_(*[np.array([len(side.wordings[row]) > 1 for row in side_rows.tolist()], bool).nonzero()[0]
                    for side, side_rows in zip(sides, rows, strict=True)])  # fmt: skip
    cosines[with_attribute[0], 0, with_attribute[1], 0] = -1.0
    return np.where(np.isnan(cosines), -1.0, cosines)


def name_similarities(truth: pa.Table, vectors: Vectors) -> Floats:
    """Returns the cosines of all pairs of different names in the ground truth, computed as for matching."""
    names = sorted({tuple(row) for row in truth["wordings"].to_pylist()})
    if len(names) < 2:
        return np.zeros(0)
    values, full = (np.stack([vectors[name[end]] for name in names]) for end in (0, -1))
    has_no_attribute = np.array([len(name) == 1 for name in names])
    parts = []
    for row in range(len(names) - 1):
        later = slice(row + 1, None)
        pairs = [full[later] @ full[row], values[later] @ full[row], full[later] @ values[row]]
        pairs.append(np.where(has_no_attribute[later] | has_no_attribute[row], values[later] @ values[row], -1.0))
        parts.append(np.max(pairs, axis=0))
    return np.concatenate(parts)


def _nearest_wordings(first: Sequence[str], second: Sequence[str], vectors: Vectors) -> tuple[float, str, str]:
    """Returns the highest cosine between wordings of the two, compared as in `_cosines`, and the two wordings."""
    both_named = len(first) > 1 and len(second) > 1
    pairs = [(i, j) for i in range(len(first)) for j in range(len(second)) if i or j or not both_named]
    return max((float(vectors[first[i]] @ vectors[second[j]]), first[i], second[j]) for i, j in pairs)


def matches(match: MethodMatch, vectors: Vectors, least: float) -> pa.Table:
    """Returns a table of `MATCHES`: for every biased ground truth the nearest biased detections, and all from `least`
    on."""
    sides = {"truth": match.truth, "detected": match.detected}
    signs = {(side, rule): arrays.signs(rule) for side, arrays in sides.items() for rule in RULES}
    biased = {side: np.any([signs[side, rule] != 0 for rule in RULES], axis=0) for side in sides}
    rows = []
    for group, name in zip(match.groups, match.names, strict=True):
        detections = group.detected[biased["detected"][group.detected]]
        columns = np.flatnonzero(biased["detected"][group.detected])
        for i, truth in enumerate(group.truth.tolist()):
            if not biased["truth"][truth] or not len(detections):
                continue
            similar = group.similarity[i, columns]
            order = np.argsort(-similar, kind="stable")
            for rank, k in enumerate(order.tolist(), 1):
                if rank > SHOWN and similar[k] < least:
                    break
                rows.append(_match(match, name, (truth, int(detections[k])), (float(similar[k]), rank), vectors))
                for side, row in (("truth", truth), ("detected", int(detections[k]))):
                    rows[-1] |= {f"{side}_{rule}": int(signs[side, rule][row]) for rule in RULES}
    return pa.Table.from_pylist(rows, MATCHES)


def _match(
    match: MethodMatch,
    name: tuple[str, str],
    pair: tuple[int, int],
    similarity_rank: tuple[float, int],
    vectors: Vectors,
) -> dict[str, Any]:
    _, first, second = _nearest_wordings(match.truth.wordings[pair[0]], match.detected.wordings[pair[1]], vectors)
    return {
        "method": match.method,
        "classifier": name[0],
        "target_class": name[1],
        "truth": _named(match.truth, pair[0]),
        "truth_wording": first,
        "detected": _named(match.detected, pair[1]),
        "detected_wording": second,
        "similarity": similarity_rank[0],
        "rank": similarity_rank[1],
    }


def _named(side: BiasArrays, row: int) -> str:
    return f"{side.table['attribute'][row].as_py()}: {side.table['value'][row].as_py()}"


# Words biases so that two with the same meaning are near in a sentence encoder: texts, and whether they deny
# something.


PRESENT = frozenset({"present", "yes", "true", "1", "1.0", "on", "shown"})
ABSENT = frozenset({"absent", "no", "none", "false", "0", "0.0", "-1", "off", "nothing", "not present"})
_DENIES = re.compile(r"^(?:no|not|non|without|lacking|lack of|absence of|free of)[\s-]+(?:an?\s+|any\s+)?(?=\S)")


@dataclass(frozen=True)
class Wording:
    """`texts`: those that are compared; the first one is shown. `negated`: the bias is about their absence."""

    texts: tuple[str, ...]
    negated: bool


def is_presence(values: frozenset[str]) -> bool:
    """Returns whether an attribute with these values is something that images have or lack."""
    return bool(values) and {normalise(value) for value in values} <= PRESENT | ABSENT


def wording(attribute: str, value: str, names: Mapping[str, str] | None = None) -> Wording:
    """Returns the wording of a value of an attribute.

    `names`: "attribute: value", or only the attribute where the value says that it is present or absent → words that
    replace it.
    """
    replacements = {normalise(key): text for key, text in (names or {}).items()}
    form = normalise(value)
    if (text := replacements.get(normalise(f"{attribute}: {value}"))) is not None:
        return _worded((normalise(text),))
    if form in PRESENT or form in ABSENT:
        inner = _worded((normalise(replacements.get(normalise(attribute), attribute)),))
        return Wording(inner.texts, inner.negated != (form in ABSENT))
    return _worded((form, f"{form} {normalise(attribute)}"))


def keyword_wording(keyword: str) -> Wording:
    return _worded((normalise(keyword),))


def _worded(texts: tuple[str, ...]) -> Wording:
    if (match := _DENIES.match(texts[0])) is None:
        return Wording(texts, False)
    return Wording(tuple(text[match.end() :] for text in texts), True)


# Ranks attributes by their importance over all classes (section 3.5), and describes who proposed them (App. J).


@dataclass(frozen=True)
class _Strength:
    """A row of `RANKING` without its rank."""

    method: str
    classifier: str
    attribute: str
    classes: int
    strength: float
    strength_low: float | None
    strength_high: float | None
    biased: int


def ranking(biases: pa.Table, alpha: float) -> pa.Table:
    """Returns a table of `RANKING`: each attribute's mean |φ| over its values, then over classes, the strongest first.

    Classifier-to-Bias, section 3.5: "bias class scores can also be aggregated across bias attributes". The interval is
    Student's t over classes, from 0 on; null where fewer than two classes differ, which tells nothing of others. A
    bootstrap of 2, 3 or 5 classes held the mean in .48, .72 and .82 of samples. Where only a few of all classes are
    biased, so few may show none of them: no interval of them knows that.
    """
    cells: dict[tuple[str, str, str], dict[str, list[tuple[float, int]]]] = defaultdict(lambda: defaultdict(list))
    for row in biases.to_pylist():
        if row["score"] is not None and not np.isnan(row["score"]):
            key = (row["source"], row["classifier"], row["attribute"])
            cells[key][row["target_class"]].append((abs(row["score"]), abs(row["tested"])))
    rows = [_strength(key, classes, alpha) for key, classes in cells.items()]
    rows.sort(key=lambda row: (row.method, row.classifier, -row.strength, row.attribute))
    strengths: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows:
        strengths[row.method, row.classifier].append(row.strength)
    ranked = [
        # Equal strengths share a rank: 1, 1, 3.
        vars(row) | {"rank": 1 + sum(other > row.strength + SAME for other in strengths[row.method, row.classifier])}
        for row in rows
    ]
    return pa.Table.from_pylist(ranked, RANKING)


def _strength(key: tuple[str, str, str], classes: Mapping[str, list[tuple[float, int]]], alpha: float) -> _Strength:
    means = np.array([np.mean([size for size, _ in values]) for values in classes.values()])
    low = high = None
    if np.ptp(means) > SAME:
        gain = mean_gain(means, np.zeros(len(means)), [1.0], np.arange(len(means)), confidence=1 - alpha)
        low, high = max(0.0, gain.low), gain.high
    biased = sum(sign for values in classes.values() for _, sign in values)
    return _Strength(*key, len(means), float(means.mean()), low, high, biased)


def proposers(methods: Mapping[str, tuple[str | None, pa.Table, int, int, pa.Table]]) -> pa.Table:
    """Returns a table of `PROPOSERS`. `methods`: by method, its language model, proposals, rejected replies, captions,
    and biases."""
    rows = []
    for method, (model, proposals, rejected, captions, biases) in methods.items():
        proposal_rows = proposals.to_pylist()
        classes = {row["target_class"] for row in proposal_rows}
        values = {(row["attribute"], value) for row in proposal_rows for value in row["bias_classes"]}
        rows.append(
            {
                "method": method,
                "language_model": model,
                "classes": len(classes),
                "attributes": len({row["attribute"] for row in proposal_rows}),
                "values": len(values),
                "rejected": rejected,
                "captions": captions,
                "biased": int(np.count_nonzero(biases["tested"].to_numpy())),
                "per_class": len(proposal_rows) / len(classes) if classes else float("nan"),
            }
        )
    return pa.Table.from_pylist(rows, PROPOSERS)


# The biases that methods detect: the scores of an audit, and the keywords of B2T. It knows tables and numbers.


KEYWORD = "keyword"
LEAST_TESTED = 5
"""Images, wrong and right, from which on a keyword's score is tested: of fewer, Welch's test is no test."""
TESTED = {"for": 1, "against": -1}


@dataclass(frozen=True)
class Bias:
    """A row of `tables.evaluate.BIASES`."""

    source: str
    classifier: str
    target_class: str
    attribute: str
    value: str
    wordings: tuple[str, ...]
    negated: bool
    n: int
    score: float | None
    p_value: float | None
    q_value: float | None
    paper: int
    tested: int


def audit_biases(method: str, scores: pa.Table) -> pa.Table:
    """Returns a table of `BIASES`, a row per row of `tables.SCORES`, including those that are no bias."""
    rows = []
    for row in scores.to_pylist():
        worded = wording(row["attribute"], row["bias_class"])
        rows.append(
            Bias(
                source=method,
                classifier=row["classifier"],
                target_class=row["target_class"],
                attribute=row["attribute"],
                value=row["bias_class"],
                wordings=worded.texts,
                negated=worded.negated,
                n=row["n"],
                score=row["phi"],
                p_value=row["p_value"],
                q_value=row["q_value"],
                paper=int(row["paper_verdict"]),
                tested=TESTED.get(row["verdict"], 0),
            )
        )
    return _table(rows)


@dataclass(frozen=True)
class Keywords:
    """The keywords of one classifier's mistakes on one class. `wrong`, `right`: cosines, (images, keywords)."""

    classifier: str
    target_class: str
    keywords: tuple[str, ...]
    wrong: NDArray[np.float32]
    right: NDArray[np.float32]


def keyword_biases(method: str, groups: Iterable[Keywords], tau: float, alpha: float) -> pa.Table:
    """Returns a table of `BIASES`: a keyword that is frequent among mistakes is a bias against what it names.

    `score`: the CLIP score. `paper`: −1 where it is above τ, 1 where it is below −τ, in points (cosine × 100).
    `tested`: the same where, in addition, Welch's test finds a difference (false discovery rate α over all keywords),
    with five images of either side or more.
    """
    rows: list[Bias] = []
    for group in groups:
        result = stats.keyword_scores(group.wrong, group.right)
        is_tested = min(len(group.wrong), len(group.right)) >= LEAST_TESTED
        for keyword, score, p in zip(group.keywords, result.score.tolist(), result.p_value.tolist(), strict=True):
            worded = keyword_wording(keyword)
            rows.append(
                Bias(
                    source=method,
                    classifier=group.classifier,
                    target_class=group.target_class,
                    attribute=KEYWORD,
                    value=keyword,
                    wordings=worded.texts,
                    negated=worded.negated,
                    n=len(group.wrong),
                    score=score,
                    p_value=p if is_tested else float("nan"),
                    q_value=None,  # of all keywords together
                    paper=0 if np.isnan(score) else int(score < -tau) - int(score > tau),
                    tested=0,
                )
            )
    q = stats.benjamini_hochberg(np.array([row.p_value for row in rows], float))
    return _table(
        replace(row, q_value=adjusted, tested=row.paper if adjusted <= alpha else 0)
        for row, adjusted in zip(rows, q.tolist(), strict=True)
    )


def _table(rows: Iterable[Bias]) -> pa.Table:
    return pa.Table.from_pylist(list(map(vars, rows)), BIASES)
