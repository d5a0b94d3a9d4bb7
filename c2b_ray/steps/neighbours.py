"""Finds the reference images nearest to each failure, among all and among those of its label, exactly and part by part.

It knows unit vectors, labels and names. The reference may be of any size, because only one part of it is in memory at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.schemas.evaluation import NEIGHBOURS
from c2b_ray.steps.features import unit


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
    """Returns a table of `schemas.NEIGHBOURS`.

    `failures` and `parts`: tables of `schemas.FEATURES` without errors. Where the reference has no labels there are no
    neighbours of the same label. Among equals the earlier row comes first.
    """
    queries = unit(failures)
    labels = np.array(failures["label"].to_pylist(), object)
    every, same = _Best.none(len(queries), k), _Best.none(len(queries), k)
    names: dict[int, tuple[str, str | None]] = {}
    for part in parts:
        numbers = part["row"].to_numpy()
        labels_here = np.array(part["label"].to_pylist(), object)
        similarities = (queries @ unit(part).T).astype(np.float32)
        every.meet(similarities, numbers)
        same.meet(np.where(labels[:, None] == labels_here[None], similarities, np.float32(-np.inf)), numbers)
        kept = set(every.rows.ravel().tolist()) | set(same.rows.ravel().tolist())
        known = zip(numbers.tolist(), part["key"].to_pylist(), labels_here.tolist(), strict=True)
        names |= {row: (key, label) for row, key, label in known if row in kept}
        names = {row: name for row, name in names.items() if row in kept}
    rows = [*_rows(failures, every, names, "all"), *_rows(failures, same, names, "same_label")]
    return pa.Table.from_pylist(rows, NEIGHBOURS)


def agreement(neighbours: pa.Table, meant: Callable[[str | None], str | None]) -> dict[str, float]:
    """Returns the share of failures most of whose nearest images have the predicted label, and the share for the true
    label.

    `meant`: returns what labels and answers are compared by: an answer is a name of the classifier's, `tabby cat`,
    where the label may be `cat`.
    """
    votes: dict[str, list[tuple[bool, bool]]] = {}
    for row in neighbours.to_pylist():
        if row["among"] == "all":
            neighbour, taken_for, label = (meant(row[name]) for name in ("neighbour_label", "predicted", "label"))
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
