"""Ranks images' true labels in each classifier's answers. Images are decoded once for all classifiers.

It knows logits and labels; it does not know where images come from or where classifiers run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.roles import Classifier, Floats
from c2b_ray.steps import encoded
from c2b_ray.steps.classify import NO_ANSWER, LoadedClassifier
from c2b_ray.steps.retrieve import unit
from c2b_ray.tables import content_id
from c2b_ray.tables.dataset import CHECKED, NEIGHBOURS, CheckedRow


def answer_id(image_id: str, classifier: str, revision: str) -> str:
    return content_id("check", image_id, classifier, revision)


def check(rows: pa.Table, classifiers: Sequence[LoadedClassifier]) -> pa.Table:
    """Returns a table of `tables.CHECKED`.

    `rows`: `image_id`, `bytes`, `error`, `label`, `caption_number`, `built_failed` and `answer_id`, for each image the
    list of the wanted answers. `key`: what tables of predictions may call the images, besides their ids; may be absent.
    """
    ids, ids_wanted = rows["image_id"].to_pylist(), [set(row) for row in rows["answer_id"].to_pylist()]
    fields = rows.select(["image_id", "caption_number", "label", "built_failed"]).to_pylist()
    errors, keys = rows["error"].to_pylist(), rows["key" if "key" in rows.column_names else "image_id"].to_pylist()
    once = encoded.DecodedOnce(encoded.files_of(rows))
    answers: list[CheckedRow] = []
    for loaded in classifiers:
        question = loaded.classification
        names = [answer_id(image, question.classifier, question.revision) for image in ids]
        rows_to_answer = [row for row, name in enumerate(names) if name in ids_wanted[row]]
        if not rows_to_answer:
            continue
        logits, undecoded = _asked(once, rows_to_answer, (ids, keys), loaded.classifier)
        groups = dict(zip(question.classes, question.labels_of_class, strict=True))
        for i, row in enumerate(rows_to_answer):
            predicted, rank, error = None, None, errors[row] or undecoded[i]
            if error is None:
                predicted, rank, error = _answer(logits[i], groups[fields[row]["label"]], loaded.classifier.labels)
            answers.append(
                {
                    "answer_id": names[row],
                    "image_id": ids[row],
                    "classifier": question.classifier,
                    "revision": question.revision,
                    "caption_number": fields[row]["caption_number"],
                    "label": fields[row]["label"],
                    "predicted": predicted,
                    "rank": rank,
                    "built_failed": fields[row]["built_failed"],
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
    retried = [i for i in unknown if errors[i] is None and second[rows[i]] != first[rows[i]]]
    if retried:
        logits = np.array(logits)
        logits[retried], _ = files.logits([rows[i] for i in retried], [second[rows[i]] for i in retried], classifier)
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
    other_outputs = np.delete(values, list(group))
    return 1 + int((other_outputs >= of_label).sum())


# Finds the reference images nearest to each failure, among all and among those of its label, exactly and part by
# part.


@dataclass
class _Best:
    """The k most similar candidates of each query so far, most similar first; row −1 where there are fewer."""

    similarities: NDArray[np.float32]
    rows: NDArray[np.int64]

    @staticmethod
    def none(queries: int, k: int) -> _Best:
        return _Best(np.full((queries, k), -np.inf, np.float32), np.full((queries, k), -1, np.int64))

    def meet(self, similarities: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        """`similarities`: (queries, candidates), −inf for pairs that are not to be compared; `rows`: (candidates,)."""
        values = np.concatenate([self.similarities, similarities], axis=1)
        candidates = np.concatenate([self.rows, np.broadcast_to(rows, similarities.shape)], axis=1)
        k = self.rows.shape[1]
        order = np.lexsort((candidates, -values), axis=1)[:, :k]
        self.similarities = np.take_along_axis(values, order, axis=1)
        self.rows = np.take_along_axis(candidates, order, axis=1)
        self.rows[self.similarities == -np.inf] = -1


def nearest(failures: pa.Table, parts: Iterable[pa.Table], k: int = 10) -> pa.Table:
    """Returns a table of `tables.NEIGHBOURS`.

    `failures` and `parts`: tables of `tables.FEATURES` without errors. Where the reference has no labels there are no
    neighbours of the same label. Among equals the earlier row comes first.
    """
    queries = unit(failures)
    labels = np.array(failures["label"].to_pylist(), object)
    of_all_labels, of_same_label = _Best.none(len(queries), k), _Best.none(len(queries), k)
    names: dict[int, tuple[str, str | None]] = {}
    for part in parts:
        numbers = part["row"].to_numpy()
        labels_here = np.array(part["label"].to_pylist(), object)
        similarities = (queries @ unit(part).T).astype(np.float32)
        of_all_labels.meet(similarities, numbers)
        of_same_label.meet(np.where(labels[:, None] == labels_here[None], similarities, np.float32(-np.inf)), numbers)
        kept_rows = set(of_all_labels.rows.ravel().tolist()) | set(of_same_label.rows.ravel().tolist())
        keys_and_labels = zip(numbers.tolist(), part["key"].to_pylist(), labels_here.tolist(), strict=True)
        names |= {row: (key, label) for row, key, label in keys_and_labels if row in kept_rows}
        names = {row: name for row, name in names.items() if row in kept_rows}
    rows = [*_rows(failures, of_all_labels, names, "all"), *_rows(failures, of_same_label, names, "same_label")]
    return pa.Table.from_pylist(rows, NEIGHBOURS)


def agreement(neighbours: pa.Table, comparable: Callable[[str | None], str | None]) -> dict[str, float]:
    """Returns the share of failures most of whose nearest images have the predicted label, and the share for the true
    label.

    `comparable`: returns what labels and answers are compared by: an answer is a name of the classifier's, `tabby cat`,
    where the label may be `cat`.
    """
    votes: dict[str, list[tuple[bool, bool]]] = {}
    for row in neighbours.to_pylist():
        if row["among"] == "all":
            neighbour, taken_for, label = (comparable(row[name]) for name in ("neighbour_label", "predicted", "label"))
            vote = (neighbour is not None and neighbour == taken_for, neighbour is not None and neighbour == label)
            votes.setdefault(row["image_id"], []).append(vote)
    shares = np.array([np.mean(of_image, axis=0) > 0.5 for of_image in votes.values()]).reshape(-1, 2)
    predicted, true = shares.mean(axis=0).tolist() if len(shares) else (float("nan"), float("nan"))
    return {"failures": float(len(shares)), "mostly_predicted": predicted, "mostly_true": true}


def _rows(
    failures: pa.Table, best: _Best, names: dict[int, tuple[str, str | None]], among: str
) -> Iterable[dict[str, object]]:
    columns: Sequence[list[object]] = [failures[name].to_pylist() for name in ("key", "label", "predicted")]
    for query, (image, label, predicted) in enumerate(zip(*columns, strict=True)):
        for rank, (row, similarity) in enumerate(zip(best.rows[query], best.similarities[query], strict=True), 1):
            if row >= 0:
                key, label_of_image = names[int(row)]
                yield {
                    "image_id": image,
                    "label": label,
                    "predicted": predicted,
                    "among": among,
                    "rank": rank,
                    "key": key,
                    "row": int(row),
                    "neighbour_label": label_of_image,
                    "similarity": float(similarity),
                }
