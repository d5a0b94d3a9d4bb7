"""Ranks images' true labels in each classifier's answers. Images are decoded once for all classifiers.

It knows logits and labels; it does not know where images come from or where classifiers run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.roles import Classifier, Floats
from c2b_ray.schemas import content_id
from c2b_ray.schemas.evaluation import CHECKED
from c2b_ray.steps import encoded
from c2b_ray.steps.predict import LoadedClassifier
from c2b_ray.steps.right import NO_ANSWER


class CheckedRow(TypedDict):
    """A row of `schemas.CHECKED`."""

    answer_id: str
    image_id: str
    classifier: str
    revision: str
    caption_number: int | None
    label: str
    predicted: str | None
    rank: int | None
    built_failed: list[bool] | None
    error: str | None


def answer_id(image_id: str, classifier: str, revision: str) -> str:
    return content_id("check", image_id, classifier, revision)


def check(rows: pa.Table, classifiers: Sequence[LoadedClassifier]) -> pa.Table:
    """Returns a table of `schemas.CHECKED`.

    `rows`: `image_id`, `bytes`, `error`, `label`, `caption_number`, `built_failed` and `answer_id`, for each image the
    list of the wanted answers. `key`: what tables of predictions may call the images, besides their ids; may be absent.
    """
    ids, wanted = rows["image_id"].to_pylist(), [set(row) for row in rows["answer_id"].to_pylist()]
    known = rows.select(["image_id", "caption_number", "label", "built_failed"]).to_pylist()
    errors, keys = rows["error"].to_pylist(), rows["key" if "key" in rows.column_names else "image_id"].to_pylist()
    once = encoded.DecodedOnce(encoded.files_of(rows))
    answers: list[CheckedRow] = []
    for one in classifiers:
        question = one.classification
        names = [answer_id(image, question.classifier, question.revision) for image in ids]
        chosen = [row for row, name in enumerate(names) if name in wanted[row]]
        if not chosen:
            continue
        logits, undecoded = _asked(once, chosen, (ids, keys), one.classifier)
        groups = dict(zip(question.classes, question.labels_of_class, strict=True))
        for at, row in enumerate(chosen):
            predicted, rank, error = None, None, errors[row] or undecoded[at]
            if error is None:
                predicted, rank, error = _answer(logits[at], groups[known[row]["label"]], one.classifier.labels)
            answers.append(
                {
                    "answer_id": names[row],
                    "image_id": ids[row],
                    "classifier": question.classifier,
                    "revision": question.revision,
                    "caption_number": known[row]["caption_number"],
                    "label": known[row]["label"],
                    "predicted": predicted,
                    "rank": rank,
                    "built_failed": known[row]["built_failed"],
                    "error": error,
                }
            )
    return pa.Table.from_pylist(answers, CHECKED)


def _asked(
    files: encoded.DecodedOnce, rows: Sequence[int], names: tuple[Sequence[str], Sequence[str]], classifier: Classifier
) -> tuple[Floats, list[str | None]]:
    """Returns the logits of these files and why one cannot be decoded. A file that is not known by the first of its
    names, as in a table of predictions, is asked for by the second."""
    first, second = names
    logits, errors = files.logits(rows, [first[row] for row in rows], classifier)
    unknown = np.flatnonzero(np.isnan(logits).all(axis=1)).tolist()
    again = [at for at in unknown if errors[at] is None and second[rows[at]] != first[rows[at]]]
    if again:
        logits = np.array(logits)
        logits[again], _ = files.logits([rows[at] for at in again], [second[rows[at]] for at in again], classifier)
    return logits, errors


def _answer(
    row: NDArray[np.float32], group: Sequence[int], labels: Sequence[str]
) -> tuple[str | None, int | None, str | None]:
    """Returns the likeliest label (None for a tie), the rank of the label's outputs, and the error where there is no
    answer."""
    values = row.astype(np.float64)
    if not values.max(initial=-np.inf) < np.inf or values.max(initial=-np.inf) == -np.inf:
        return None, None, NO_ANSWER
    best = np.flatnonzero(values == values.max())
    return labels[int(best[0])] if len(best) == 1 else None, rank(values, group), None


def rank(values: NDArray[np.float64], group: Sequence[int]) -> int:
    """Returns the rank of a label's likeliest output among all other outputs, from 1; equally likely ones come before
    it."""
    of_label = values[list(group)].max()
    others = np.delete(values, list(group))
    return 1 + int((others >= of_label).sum())
