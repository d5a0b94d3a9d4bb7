"""Computes the biases of the ground truth from labels and answers: is a classifier better or worse at a class where a
value is shown?

    difference = accuracy of the class's images with the value − accuracy of those without

Classifier-to-Bias, section 4.2.1. It knows labels and whether answers are right, and neither images nor classifiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray import stats
from c2b_ray.audits.evaluate.steps.matching import PRESENT, is_presence, wording
from c2b_ray.names import normalise
from c2b_ray.steps.image_ids import numbered
from c2b_ray.steps.labels import spellings
from c2b_ray.tables.evaluate import BIASES

TRUTH, TARGET = "truth", "target_class"
Mask = NDArray[np.bool_]
TruthCell = tuple[str, str, str]


Ints = NDArray[np.int64]
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
