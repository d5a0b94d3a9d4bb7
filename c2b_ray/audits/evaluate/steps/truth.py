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
from c2b_ray.audits.evaluate.steps.matching import KEYWORD, PRESENT, Bias, is_presence, wording
from c2b_ray.names import normalise
from c2b_ray.roles import Question
from c2b_ray.steps.draw import numbered
from c2b_ray.steps.labels import spellings
from c2b_ray.steps.observe import OTHER, THING, Checks
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
    questions: dict[str, dict[str, Question]] = defaultdict(dict)
    for row in biases.select(["target_class", "value"]).to_pylist():
        target, keyword = row["target_class"], row["value"]
        texts = (f"a photo of a {target}, {keyword}", f"a photo of a {target}")
        questions[target][keyword] = Question(f"Does the picture of a {target} show {keyword}?", (YES, NO), texts)
    class_texts = {name: f"a photo of a {name}" for name in classes} | {OTHER: THING}
    return Checks(
        model,
        revision,
        Question("What does the picture show?", tuple(class_texts), tuple(class_texts.values())),
        questions,
    )


def pseudo_verdicts(
    biases: pa.Table, verifications: pa.Table, rows: Mapping[str, int], right: Right, levels: tuple[float, float]
) -> Verdicts:
    """Returns the sign of each bias of a method and that of its pseudo-labels, for the rows about which pseudo-labels
    say anything, in the order of the table.

    `rows`: image id → its row in `right`. `levels`: τ and α.
    """
    rows_seen = _seen(verifications, rows)
    cells: dict[tuple[str, str, str, str], list[Bias]] = defaultdict(list)
    for bias in (Bias(**row) for row in biases.to_pylist()):
        keyword = bias.value if bias.attribute == KEYWORD else ""
        cells[bias.classifier, bias.target_class, bias.attribute, keyword].append(bias)
    counted_biases = []
    for (classifier, target, attribute, keyword), members in cells.items():
        rows_of_value = rows_seen.get((target, keyword or attribute), {})
        values = [YES, NO] if keyword else [bias.value for bias in members]
        answered, count = _counts_of_bias(rows_of_value, values, right[classifier])
        # A keyword has one bias, that of `yes`; an attribute has one for each value. A value that no image was seen to
        # show is left out: it would agree with every verdict `none`.
        at_all = count > 0
        counted_biases += [
            _Counted(bias, answered, count, i) for i, bias in enumerate(members) if at_all[i] and at_all.sum() > 1
        ]
    return _signs(counted_biases, levels)


def _seen(verifications: pa.Table, rows: Mapping[str, int]) -> dict[tuple[str, str], dict[str, list[int]]]:
    """Returns (class, attribute) → value → the rows in which it was seen."""
    result: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for row in verifications.select(["image_id", "target_class", "attributes", "values"]).to_pylist():
        row_number = rows.get(row["image_id"])
        if row_number is None:
            continue
        for attribute, value in zip(row["attributes"], row["values"], strict=True):
            if value is not None:
                result[row["target_class"], attribute][value].append(row_number)
    return result


def _counts_of_bias(
    shown: Mapping[str, list[int]], values: Sequence[str], right: tuple[NDArray[np.bool_], NDArray[np.bool_]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ok, is_answered = right
    rows = [np.array(shown.get(value, []), np.int64) for value in values]
    return (
        np.array([int((ok & is_answered)[of_value].sum()) for of_value in rows], np.int64),
        np.array([int(is_answered[of_value].sum()) for of_value in rows], np.int64),
    )


def _signs(counted_biases: Sequence[_Counted], levels: tuple[float, float]) -> Verdicts:
    tau, alpha = levels
    paper = [int(stats.paper_verdicts(counts.right, counts.shown, tau)[counts.at]) for counts in counted_biases]
    p = np.array(
        [float(stats.bias_score_p_values(counts.right, counts.shown, tau)[counts.at]) for counts in counted_biases]
    )
    tested = [sign if q <= alpha else 0 for sign, q in zip(paper, stats.benjamini_hochberg(p).tolist(), strict=True)]
    return Verdicts(
        classifiers=[counts.bias.classifier for counts in counted_biases],
        paper=[(counts.bias.paper, sign) for counts, sign in zip(counted_biases, paper, strict=True)],
        tested=[(counts.bias.tested, sign) for counts, sign in zip(counted_biases, tested, strict=True)],
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
        spelled = [form.get(normalise(value), value) for value in encoded.dictionary.to_pylist()]
        column = pa.array(spelled, pa.string()).take(encoded.indices)
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
        has_value = column.is_valid().to_numpy(zero_copy_only=False)
        names, numbers = numbered(column.fill_null(""))
        values = [name for name in names.to_pylist() if name]
        number_of = {name: number for number, name in enumerate(names.to_pylist())}
        named_values = (
            [v for v in values if normalise(v) in PRESENT] if is_presence(frozenset(values)) else sorted(values)
        )
        for target in classes:
            inside = np.flatnonzero(members[target] & has_value)
            for value in named_values:
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
    counted_cells = (
        cells
        if pictures is None
        else {cell: (once(sides[0], pictures), once(sides[1], pictures)) for cell, sides in cells.items()}
    )
    correct, total = np.moveaxis(_counts(counted_cells, right), -1, 0)
    scores = stats.bias_scores(correct, total)[:, 0]
    p = stats.bias_score_p_values(correct, total, tau)[:, 0]
    q = stats.benjamini_hochberg(p)
    paper = stats.paper_verdicts(correct, total, tau)[:, 0]
    rows = []
    for i, (classifier, cell) in enumerate((classifier, cell) for classifier in right for cell in cells):
        worded = wording(cell[1], cell[2], names)
        rows.append(
            {
                "source": TRUTH,
                "classifier": classifier,
                **dict(zip((TARGET, "attribute", "value"), cell, strict=True)),
                "wordings": list(worded.texts),
                "negated": worded.negated,
                "n": int(total[i, 0]),
                "score": float(scores[i]),
                "p_value": float(p[i]),
                "q_value": float(q[i]),
                "paper": int(paper[i]),
                "tested": int(np.sign(scores[i])) if q[i] <= alpha and paper[i] else 0,
            }
        )
    return pa.Table.from_pylist(rows, BIASES)


def once(rows: Ints, pictures: Ints) -> Ints:
    """Returns the first of these rows of each picture."""
    return rows[np.sort(np.unique(pictures[rows], return_index=True)[1])]


def _counts(cells: Mapping[TruthCell, Rows], right: Mapping[str, TruthAnswers]) -> NDArray[np.int64]:
    """Returns the numbers of right and of answered images, with the value and without: (classifiers × cells, 2, 2)."""
    return np.array(
        [
            [[int((ok & is_answered)[rows].sum()), int(is_answered[rows].sum())] for rows in pair]
            for ok, is_answered in right.values()
            for pair in cells.values()
        ],
        np.int64,
    ).reshape(-1, 2, 2)
