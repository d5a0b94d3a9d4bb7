"""Counts draws, replies and images that do not count, by reason.

Knows tables of a run and cells; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.report.c2b.ranking import Cell
from c2b_ray.report.kit import words
from c2b_ray.steps.image_ids import codes, vocabulary
from c2b_ray.steps.labels import TARGET


@dataclass(frozen=True)
class Drop:
    """`number` of dropped items of kind `what`; `then` tells what happened to them."""

    number: str
    what: str
    then: str


def drops(
    rejected: pa.Table,
    pool: pa.Table,
    draws: pa.Table,
    images: pa.Table,
    cells: Sequence[Cell],
    blank_rows: Mapping[str, int] | None = None,
) -> tuple[Drop, ...]:
    """Returns the kinds of drops that occurred, in order from captions to scores. `images` needs no bytes.

    `blank_rows`: for each column of a labelled table, the rows without a value.
    """
    found = [*_blank(blank_rows or {}), *_drops(rejected, pool, draws, images, cells)]
    return tuple(Drop(words.count(number), what, then) for number, what, then in found if number)


def _blank(rows: Mapping[str, int]) -> Iterator[tuple[int, str, str]]:
    for column, number in rows.items():
        cells = "in no cell" if column == TARGET else f"in no cell of {column}"
        yield number, f"rows of the labelled table without a value in column {column}", cells


def _drops(
    rejected: pa.Table, pool: pa.Table, draws: pa.Table, images: pa.Table, cells: Sequence[Cell]
) -> Iterator[tuple[int, str, str]]:
    captions = int(pc.sum(pc.equal(rejected["step"], "caption")).as_py() or 0)
    yield rejected.num_rows - captions, "replies with attributes, values or templates", "rejected, asked for again"
    yield captions, "captions", "rejected: they did not name class and value, or said nothing new"
    # `pool` holds what was looked at, by caption.
    captions_of, ids = (vocabulary(pool[name], draws[name]) for name in ("caption_id", "image_id"))
    looked, drawn = (
        codes(rows["caption_id"], captions_of) * len(ids) + codes(rows["image_id"], ids) for rows in (pool, draws)
    )
    yield (
        len(np.setdiff1d(looked, drawn)),
        "images that a caption’s search gave",
        "not drawn: not accepted, or the cell was full",
    )
    yield images.num_rows - images["error"].null_count, "images", "without bytes, or no picture"
    once = {(cell.target_class, cell.attribute, cell.bias_class): cell for cell in cells}
    yield sum(cell.repeats for cell in once.values()), "near-duplicates of another image of the cell", "left out"
    yield sum(cell.errors for cell in cells), "answers, of all classifiers", "failed: in no accuracy"
    yield sum(cell.undecided for cell in cells), "answers, of all classifiers", "undecided: counted as wrong"
    shared = sum(cell.shared for cell in once.values())
    yield shared, "images of a cell that another value holds too", "counted in both; many of them, and nothing is clear"
