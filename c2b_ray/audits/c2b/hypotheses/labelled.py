"""Turns a labelled table into captions and images: a caption for each value of each attribute, and the rows that it
draws.

Rows are numbers until they are written: as text, a million draws take 70 MB. It does not know files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.audits.c2b.thresholds import Limit
from c2b_ray.errors import SourceError
from c2b_ray.steps.draw import IDS_AT_ONCE, LABELLED, draws_of, image_ids, no_numbers
from c2b_ray.steps.intersect import ATTRIBUTE, Pair, bias_class
from c2b_ray.steps.labels import TARGET, ComparedColumn, check_classes, chosen
from c2b_ray.tables import CAPTIONS, DRAWS, PROPOSALS, content_id, seed_of

Rows = NDArray[np.int32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class RowDraws:
    """The rows of a labelled table that each caption draws, by caption id and in the order of drawing."""

    rows: Mapping[str, Rows]
    revision: str

    @property
    def num_rows(self) -> int:
        return sum(map(len, self.rows.values()))

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yields batches of `schemas.DRAWS`."""
        for caption, rows in self.rows.items():
            for start in range(0, len(rows), IDS_AT_ONCE):
                some = rows[start : start + IDS_AT_ONCE]
                count = len(some)
                ranks = np.arange(start, start + count)
                draws = draws_of(pa.repeat(caption, count), some, self.revision, ranks, no_numbers(count), LABELLED)
                yield from draws.to_batches()

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.to_batches(), DRAWS)

    def distinct(self) -> Rows:
        """Returns each row once, in ascending order."""
        drawn = np.zeros(1 + max((int(rows.max(initial=-1)) for rows in self.rows.values()), default=-1), bool)
        for rows in self.rows.values():
            drawn[rows] = True
        return np.flatnonzero(drawn).astype(np.int32)

    def image_ids(self) -> pa.Array:
        """Returns the id of each image once."""
        return image_ids(self.distinct(), self.revision)

    def first(self, most: Mapping[str, int]) -> RowDraws:
        """Returns the first rows of each caption, at most `most` of them."""
        return RowDraws({caption: rows[: most.get(caption, 0)] for caption, rows in self.rows.items()}, self.revision)

    def where(self, kept: Callable[[pa.Array], Mask]) -> RowDraws:
        """Returns the rows whose image ids `kept` accepts."""
        return RowDraws({caption: self._kept(rows, kept) for caption, rows in self.rows.items()}, self.revision)

    def _kept(self, rows: Rows, kept: Callable[[pa.Array], Mask]) -> Rows:
        some = [rows[start : start + IDS_AT_ONCE] for start in range(0, len(rows), IDS_AT_ONCE)]
        left = np.concatenate([rows[:0], *(part[kept(image_ids(part, self.revision))] for part in some)])
        return rows if len(left) == len(rows) else left  # no copy of millions

    def equals(self, other: RowDraws) -> bool:
        return self.rows.keys() == other.rows.keys() and all(
            np.array_equal(rows, other.rows[caption]) for caption, rows in self.rows.items()
        )


def labelled_rows(
    labels: pa.Table,
    revision: str,
    classes: Sequence[str],
    attributes: Mapping[str, Sequence[str]] | None,
    limit: Limit,
    needed: bool = True,
) -> tuple[pa.Table, pa.Table, RowDraws]:
    """Returns proposals, captions and the rows that each caption draws, from a table of labels.

    `labels`: `target_class` and a string column per attribute, a row per image; nulls belong to no cell. `attributes`:
    which columns, and which of their values; None: all possible ones (`labels.no_attribute`). `limit`: of the images of
    each cell. `needed`: whether a table without anything to compare is an error.
    """
    attributes = chosen(labels, attributes, needed=needed)
    check_classes(labels, classes)
    targets = ComparedColumn.of(labels, TARGET)
    proposals, captions = [], []
    draws: dict[str, Rows] = {}
    for target_class in classes:
        of_class = targets.equal(target_class)
        for attribute, values in attributes.items():
            column = ComparedColumn.of(labels, attribute)
            present = [v for v in values if (of_class & column.equal(v)).any()]
            if len(present) < 2:
                continue
            proposal = _proposal(target_class, attribute, present)
            proposals.append(proposal)
            for value in present:
                caption_id = content_id("labelled", proposal["proposal_id"], value)
                draws[caption_id] = _limited(of_class & column.equal(value), limit, caption_id)
                captions.append(_caption(caption_id, proposal, value))
    if not captions and needed:
        raise SourceError("the labelled table has no class with two or more values of an attribute: nothing to compare")
    return (
        pa.Table.from_pylist(proposals, PROPOSALS),
        pa.Table.from_pylist(captions, CAPTIONS),
        RowDraws(draws, revision),
    )


def labelled_pair_rows(
    labels: pa.Table, revision: str, pairs: Sequence[Pair], limit: Limit
) -> tuple[pa.Table, RowDraws]:
    """Returns captions of every cell of the pairs, and the rows that each draws; a cell without rows gets only a
    caption.

    The arguments are those of `labelled_rows`; the pairs consist of its proposals.
    """
    targets = ComparedColumn.of(labels, TARGET)
    columns = {
        name: ComparedColumn.of(labels, name) for pair in pairs for name in (pair.a["attribute"], pair.b["attribute"])
    }
    captions = []
    draws: dict[str, Rows] = {}
    for pair in pairs:
        of_class = targets.equal(pair.target_class)
        a, b = columns[pair.a["attribute"]], columns[pair.b["attribute"]]
        for x, y in pair.cells():
            value = bias_class(x, y)
            caption_id = content_id("labelled", pair.proposal_id, value)
            draws[caption_id] = _limited(of_class & a.equal(x) & b.equal(y), limit, caption_id)
            captions.append(_caption(caption_id, pair.as_proposal(), value))
    return pa.Table.from_pylist(captions, CAPTIONS), RowDraws(draws, revision)


def lacking(proposals: pa.Table, classes: Sequence[str], chosen: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns in words which of the chosen attributes and values have no image in some class, and so are not compared
    there."""
    of_class: dict[tuple[str, str], list[str]] = {
        (row["target_class"], row["attribute"]): row["bias_classes"] for row in proposals.to_pylist()
    }
    said = []
    for attribute, values in chosen.items():
        for name in classes:
            present = of_class.get((name, attribute), [])
            absent = [value for value in values if value not in present]
            if not present:
                said.append(f"{attribute} of {name}: fewer than two values have images, so nothing is compared")
            elif absent:
                said.append(f"{attribute} of {name}: no image shows {', '.join(map(repr, absent))}")
    return said


def _limited(drawn: Mask, limit: Limit, caption_id: str) -> Rows:
    rows = np.flatnonzero(drawn)
    most, seed = limit
    if most is not None and len(rows) > most:
        rows = np.sort(np.random.default_rng(seed_of("labelled", caption_id, seed)).permutation(rows)[:most])
    return rows.astype(np.int32)


def _proposal(target_class: str, attribute: str, values: list[str]) -> dict[str, object]:
    return {
        # Sorted: the order in which values are listed must not decide which rows are drawn of them.
        "proposal_id": content_id("labelled", target_class, attribute, sorted(values)),
        "target_class": target_class,
        "attribute": attribute,
        "bias_classes": values,
        "source": "user",
        "merged_from": [attribute],
        "merged": [],
    }


def _caption(caption_id: str, proposal: Mapping[str, object], value: str) -> dict[str, object]:
    return {
        "caption_id": caption_id,
        "proposal_id": proposal["proposal_id"],
        "kind": proposal.get("kind", ATTRIBUTE),
        "target_class": proposal["target_class"],
        "attribute": proposal["attribute"],
        "bias_class": value,
        "number": 0,
        "text": f"{proposal['target_class']}, {proposal['attribute']}: {value}",
    }
