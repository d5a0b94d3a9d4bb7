"""Measures agreement with pseudo-labels (Tables 3 and 4): does a classifier's accuracy vary, over what a model sees in
labelled images, as the method says?

It knows answers to questions, whether a classifier is right, and biases; it knows no models.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.evaluate.steps.detected import KEYWORD, Bias
from c2b_ray.audits.evaluate.steps.matching import PRESENT, is_presence, wording
from c2b_ray.names import normalise
from c2b_ray.roles import Question
from c2b_ray.steps.draw import numbered
from c2b_ray.steps.labels import spellings
from c2b_ray.steps.verify import OTHER, THING, Checks
from c2b_ray.tables.evaluate import BIASES, VQA

YES, NO = "yes", "no"
CASES = ("against", "none", "for")
Right = Mapping[str, tuple[NDArray[np.bool_], NDArray[np.bool_]]]
Ints = NDArray[np.int64]
Signs = list[tuple[int, int]]
"""For each bias the sign by a method, and the sign by its pseudo-labels."""


@dataclass(frozen=True)
class Verdicts:
    """Signs by either rule, and the classifier of each bias."""

    classifiers: list[str]
    paper: Signs
    tested: Signs


@dataclass(frozen=True)
class _Counted:
    """A bias, and for each value of its attribute the images that were answered right, and all; `at`: its value."""

    bias: Bias
    right: Ints
    shown: Ints
    at: int


def keyword_questions(model: str, revision: str, biases: pa.Table, classes: Sequence[str]) -> Checks:
    """Returns the questions whether an image shows each keyword of its class."""
    known: dict[str, dict[str, Question]] = defaultdict(dict)
    for row in biases.select(["target_class", "value"]).to_pylist():
        target, keyword = row["target_class"], row["value"]
        texts = (f"a photo of a {target}, {keyword}", f"a photo of a {target}")
        known[target][keyword] = Question(f"Does the picture of a {target} show {keyword}?", (YES, NO), texts)
    said = {name: f"a photo of a {name}" for name in classes} | {OTHER: THING}
    return Checks(model, revision, Question("What does the picture show?", tuple(said), tuple(said.values())), known)


def pseudo_verdicts(
    biases: pa.Table, verifications: pa.Table, rows: Mapping[str, int], right: Right, levels: tuple[float, float]
) -> Verdicts:
    """Returns the sign of each bias of a method and that of its pseudo-labels, for the rows about which pseudo-labels
    say anything, in the order of the table.

    `rows`: image id → its row in `right`. `levels`: τ and α.
    """
    seen = _seen(verifications, rows)
    cells: dict[tuple[str, str, str, str], list[Bias]] = defaultdict(list)
    for bias in (Bias(**row) for row in biases.to_pylist()):
        keyword = bias.value if bias.attribute == KEYWORD else ""
        cells[bias.classifier, bias.target_class, bias.attribute, keyword].append(bias)
    counted = []
    for (classifier, target, attribute, keyword), members in cells.items():
        shown = seen.get((target, keyword or attribute), {})
        values = [YES, NO] if keyword else [bias.value for bias in members]
        answered, count = _counts_of_bias(shown, values, right[classifier])
        # Of a keyword the first of the two, yes; of an attribute each of its values. Of a value that no image was seen
        # to show pseudo-labels say nothing: it would agree with every verdict that is none.
        at_all = count > 0
        counted += [
            _Counted(bias, answered, count, at) for at, bias in enumerate(members) if at_all[at] and at_all.sum() > 1
        ]
    return _signs(counted, levels)


def _seen(verifications: pa.Table, rows: Mapping[str, int]) -> dict[tuple[str, str], dict[str, list[int]]]:
    """Returns (class, attribute) → value → the rows in which it was seen."""
    seen: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in verifications.select(["image_id", "target_class", "attributes", "values"]).to_pylist():
        at = rows.get(row["image_id"])
        if at is None:
            continue
        for attribute, value in zip(row["attributes"], row["values"], strict=True):
            if value is not None:
                seen[row["target_class"], attribute][value].append(at)
    return seen


def _counts_of_bias(
    shown: Mapping[str, list[int]], values: Sequence[str], right: tuple[NDArray[np.bool_], NDArray[np.bool_]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ok, held = right
    rows = [np.array(shown.get(value, []), np.int64) for value in values]
    return (
        np.array([int((ok & held)[some].sum()) for some in rows], np.int64),
        np.array([int(held[some].sum()) for some in rows], np.int64),
    )


def _signs(counted: Sequence[_Counted], levels: tuple[float, float]) -> Verdicts:
    tau, alpha = levels
    paper = [int(stats.paper_verdicts(one.right, one.shown, tau)[one.at]) for one in counted]
    p = np.array([float(stats.bias_score_p_values(one.right, one.shown, tau)[one.at]) for one in counted])
    tested = [sign if q <= alpha else 0 for sign, q in zip(paper, stats.benjamini_hochberg(p).tolist(), strict=True)]
    return Verdicts(
        classifiers=[one.bias.classifier for one in counted],
        paper=[(one.bias.paper, sign) for one, sign in zip(counted, paper, strict=True)],
        tested=[(one.bias.tested, sign) for one, sign in zip(counted, tested, strict=True)],
    )


def vqa_table(method: str, verdicts: Verdicts) -> pa.Table:
    """Returns a table of `VQA`: over all classifiers, and for each."""
    owners = verdicts.classifiers
    rows = []
    for rule, signs in (("paper", verdicts.paper), ("tested", verdicts.tested)):
        for classifier in ("", *dict.fromkeys(owners)):
            pairs = [p for p, owner in zip(signs, owners, strict=True) if classifier in ("", owner)]
            agreement = stats.verdict_agreement([a for a, _ in pairs], [b for _, b in pairs])
            row = {"method": method, "classifier": classifier, "rule": rule, "biases": len(pairs)}
            row |= {"agreement": agreement.score, "agreement_of_biased": agreement.score_of_biased}
            for i, a in enumerate(CASES):
                row |= {f"{a}_{b}": int(agreement.table[i, j]) for j, b in enumerate(CASES)}
            rows.append(row)
    return pa.Table.from_pylist(rows, VQA)


# Computes the biases of the ground truth from labels and answers: is a classifier better or worse at a class where
# a value is shown?


TRUTH, TARGET = "truth", "target_class"
Mask = NDArray[np.bool_]
TruthCell = tuple[str, str, str]


Rows = tuple[Ints, Ints]
"""The rows with a value, and those with another one."""
TruthAnswers = tuple[Mask, Mask]
"""Which rows were answered right, and which were answered at all."""


def one_spelling(labels: pa.Table, names: Sequence[str]) -> pa.Table:
    """Returns the table with every value of these columns in its most frequent spelling, as in an audit: FOG is fog."""
    for name in names:
        encoded = labels[name].combine_chunks().dictionary_encode()
        form = spellings(labels[name])
        said = [form.get(normalise(value), value) for value in encoded.dictionary.to_pylist()]
        column = pa.array(said, pa.string()).take(encoded.indices)
        labels = labels.set_column(labels.schema.get_field_index(name), name, column)
    return labels


def cells(labels: pa.Table, attributes: Sequence[str], classes: Sequence[str], least: int) -> dict[TruthCell, Rows]:
    """Returns (class, attribute, value) → the rows with the value and those with another one, at least `least` of
    either.

    For an attribute that images have or lack, only the value that says they have it is kept: the other would repeat it.
    Rows where the attribute is null belong to neither.
    """
    targets = np.array(labels[TARGET].to_pylist(), object)
    members = {name: np.asarray(targets == name, bool) for name in classes}
    result: dict[TruthCell, Rows] = {}
    for attribute in attributes:
        column = labels[attribute].combine_chunks()
        known = column.is_valid().to_numpy(zero_copy_only=False)
        names, numbers = numbered(column.fill_null(""))
        values = [name for name in names.to_pylist() if name]
        number_of = {name: number for number, name in enumerate(names.to_pylist())}
        kept = [v for v in values if normalise(v) in PRESENT] if is_presence(frozenset(values)) else sorted(values)
        for target in classes:
            inside = np.flatnonzero(members[target] & known)
            for value in kept:
                has = numbers[inside] == number_of[value]
                if least <= has.sum() <= len(has) - least:
                    result[target, attribute, value] = (inside[has], inside[~has])
    return result


def truth_biases(
    cells: Mapping[TruthCell, Rows],
    right: Mapping[str, TruthAnswers],
    tau: float,
    alpha: float,
    names: Mapping[str, str],
    pictures: Ints | None = None,
) -> pa.Table:
    """Returns a table of `BIASES`, a row per classifier and cell.

    `right`: for each classifier, which rows it answered right, and which it answered at all. `paper`: |difference| > τ.
    `tested`: the same where, in addition, the test of |difference| ≤ τ is rejected (false discovery rate α over all
    rows). `pictures`: a number for the picture of each row: of copies of one, a cell counts the first.
    """
    counted = cells if pictures is None else {cell: _once(sides, pictures) for cell, sides in cells.items()}
    correct, total = np.moveaxis(_counts(counted, right), -1, 0)
    scores = stats.bias_scores(correct, total)[:, 0]
    p = stats.bias_score_p_values(correct, total, tau)[:, 0]
    q = stats.benjamini_hochberg(p)
    paper = stats.paper_verdicts(correct, total, tau)[:, 0]
    rows = []
    for at, (classifier, cell) in enumerate((classifier, cell) for classifier in right for cell in cells):
        said = wording(cell[1], cell[2], names)
        rows.append(
            {
                "source": TRUTH,
                "classifier": classifier,
                **dict(zip((TARGET, "attribute", "value"), cell, strict=True)),
                "wordings": list(said.texts),
                "negated": said.negated,
                "n": int(total[at, 0]),
                "score": float(scores[at]),
                "p_value": float(p[at]),
                "q_value": float(q[at]),
                "paper": int(paper[at]),
                "tested": int(np.sign(scores[at])) if q[at] <= alpha and paper[at] else 0,
            }
        )
    return pa.Table.from_pylist(rows, BIASES)


def once(rows: Ints, pictures: Ints) -> Ints:
    """Returns the first of these rows of each picture."""
    return rows[np.sort(np.unique(pictures[rows], return_index=True)[1])]


def _once(sides: Rows, pictures: Ints) -> Rows:
    return once(sides[0], pictures), once(sides[1], pictures)


def _counts(cells: Mapping[TruthCell, Rows], right: Mapping[str, TruthAnswers]) -> NDArray[np.int64]:
    """Returns the numbers of right and of answered images, with the value and without: (classifiers × cells, 2, 2)."""
    return np.array(
        [
            [[int((ok & held)[rows].sum()), int(held[rows].sum())] for rows in pair]
            for ok, held in right.values()
            for pair in cells.values()
        ],
        np.int64,
    ).reshape(-1, 2, 2)
