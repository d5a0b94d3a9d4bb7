"""Selects the images that a cell draws from its captions' pools.

A caption's pool is its nearest images in an index, fixed before any of them is looked at. The nearest to "a bus in the
snow" are not like other buses in the snow: more of them are at night. So images are looked at in random order within
the pool, and those that a verifier accepts are drawn, until the cell has the wanted number of distinct ones or the pool
is exhausted: the draws are a random sample of the accepted images. Without a verifier nothing can be accepted, and the
nearest are drawn. This module does not fetch or verify: it names the images that must be looked at before it can
continue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.errors import ConfigError
from c2b_ray.names import normalise
from c2b_ray.steps.cells import CellKey
from c2b_ray.steps.duplicates import Gallery
from c2b_ray.steps.intersect import ATTRIBUTE, of_kind
from c2b_ray.tables import DRAWS, content_id

ACCEPTED, NEAREST = "accepted", "nearest"
FIRST_LOOK = 2.0
"""The first look takes this many times the images that a caption is to draw; each further look doubles the number."""

Rows = NDArray[np.int64]


class VerifiedCandidates(Protocol):
    """The images that were looked at, and what is known about them."""

    def looked_at(self, image: str, caption: str) -> bool: ...

    def accepts(self, image: str, caption: str) -> bool:
        """Returns whether an image that was looked at shows what the caption says."""
        ...

    def fingerprint(self, image: str) -> bytes | None: ...


class Draws(Protocol):
    """Rows of `schemas.DRAWS`: a table, or an object that makes them in batches."""

    @property
    def num_rows(self) -> int: ...

    def to_batches(self) -> Iterable[pa.RecordBatch]: ...

    def equals(self, other: Any) -> bool: ...


@dataclass(frozen=True)
class Selection:
    """The result of a selection.

    `drawn`: rank is the position among the caption's drawn images. `looked`: all rows of pools that were looked at,
    rank the position in the order of looking. `missing`: rows of images that must be looked at before more can be
    drawn.
    """

    drawn: Draws
    looked: Draws
    missing: Draws


@dataclass(frozen=True)
class _CellPools:
    """The captions of a cell, and the rows of each caption's pool in the order in which they are looked at."""

    captions: tuple[str, ...]
    pools: tuple[Rows, ...]

    @property
    def longest(self) -> int:
        return max(map(len, self.pools), default=0)

    def __iter__(self) -> Iterator[tuple[str, Rows]]:
        return zip(self.captions, self.pools, strict=True)


@dataclass(frozen=True)
class _Task:
    """A cell, the number of images that it should draw, and the images that it must not draw."""

    cell: _CellPools
    target: int
    besides: frozenset[str]


@dataclass
class _PoolRows:
    """Rows of the pool by purpose, with their ranks."""

    drawn: list[tuple[int, int]] = field(default_factory=list)
    looked: list[tuple[int, int]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)


def cells_of(captions: pa.Table) -> dict[CellKey, list[str]]:
    """Returns the caption ids of every cell, in their order. A caption that repeats another of its cell word for word
    is left out: it would draw the same images."""
    result: dict[CellKey, dict[str, str]] = {}
    columns = ("proposal_id", "bias_class", "text", "caption_id")
    for proposal, value, text, caption in zip(*(captions[name].to_pylist() for name in columns), strict=True):
        result.setdefault((proposal, value), {}).setdefault(normalise(text), caption)
    return {key: list(of_text.values()) for key, of_text in result.items()}


def shares(cells: Mapping[CellKey, Sequence[str]], targets: Mapping[CellKey, int]) -> dict[str, int]:
    """Returns for every caption how many of its cell's images it draws, where captions do not share images; 0 where
    its cell has no target."""
    return {
        caption: targets.get(key, 0) // len(caption_ids) + (number < targets.get(key, 0) % len(caption_ids))
        for key, caption_ids in cells.items()
        for number, caption in enumerate(caption_ids)
    }


def check_captions(captions: pa.Table) -> None:
    """Raises ConfigError where two values of an attribute have the same caption: they would draw the same images."""
    of_text: dict[tuple[str, str], str] = {}
    for row in of_kind(captions, ATTRIBUTE).to_pylist():
        other = of_text.setdefault((row["proposal_id"], normalise(row["text"])), row["bias_class"])
        if other != row["bias_class"]:
            values = f"the values {other!r} and {row['bias_class']!r} of class {row['target_class']!r}"
            raise ConfigError(
                f"attributes.{row['attribute']}",
                f"{values} have the same caption, {row['text']!r}, and would draw the same images; name values that a "
                "caption tells apart",
            )


class _Unseen:
    """Knows nothing about any image, and reports none as missing."""

    def looked_at(self, image: str, caption: str) -> bool:
        return True

    def accepts(self, image: str, caption: str) -> bool:
        return True

    def fingerprint(self, image: str) -> bytes | None:
        return None


class CellPools:
    """The pools of all cells of an audit.

    `nearest`: of `schemas.DRAWS`, the pool of each caption, rank 0 the nearest. `by`: ACCEPTED or NEAREST. `shuffled`:
    whether images are looked at in random order, which follows from `seed` and each image's id only: an image has the
    same rank for all captions, so that looking at it once serves many cells.
    """

    def __init__(self, captions: pa.Table, nearest: pa.Table, by: str, seed: int, shuffled: bool = True) -> None:
        check_captions(captions)
        self._captions, self._rows, self._by, self._seed = captions, nearest, by, seed
        images = nearest["image_id"].combine_chunks().dictionary_encode()
        names = images.dictionary.to_pylist()
        self._images = images.indices.to_numpy()
        self._names: Sequence[str] = names
        order = nearest["rank"].to_numpy()
        if shuffled:
            keys = np.array([content_id("look", image, seed) for image in names], dtype="S20")
            order = np.argsort(np.argsort(keys))[self._images]
        owners = nearest["caption_id"].combine_chunks().dictionary_encode()
        sorted_rows = np.lexsort((order, owners.indices.to_numpy()))
        ends = np.cumsum(np.bincount(owners.indices.to_numpy(), minlength=len(owners.dictionary)))
        pools = dict(zip(owners.dictionary.to_pylist(), np.split(sorted_rows, ends[:-1]), strict=False))
        nothing = np.zeros(0, np.int64)
        self._cells = {
            key: _CellPools(tuple(caption_ids), tuple(pools.get(caption, nothing) for caption in caption_ids))
            for key, caption_ids in cells_of(captions).items()
        }

    def fixed(self, most: int) -> CellPools:
        """Returns pools of the images that each cell would draw at most, to be looked at in random order: a budget that
        ends early has then seen a random sample of them."""
        chosen = self.select(dict.fromkeys(self._cells, most), _Unseen())
        return CellPools(self._captions, chosen.drawn, self._by, self._seed)

    def select(
        self, targets: Mapping[CellKey, int], seen: VerifiedCandidates, besides: Collection[str] = ()
    ) -> Selection:
        """Selects distinct images for the cells, at most `targets` of each, given what is known so far.

        Captions of a cell take turns, each drawing its next image; one that has none left leaves its turns to the
        others. A larger target begins with the same images: a cell whose target grows keeps its draws. `besides`:
        images that must not be drawn.
        """
        result, left_out = _PoolRows(), frozenset(besides)
        fill = self._accepted if self._by == ACCEPTED else self._nearest
        for key, cell in self._cells.items():
            if targets.get(key, 0) > 0:
                fill(_Task(cell, targets[key], left_out), seen, result)
        return Selection(self._table(result.drawn), self._table(result.looked), self._table(result.missing))

    def _accepted(self, task: _Task, seen: VerifiedCandidates, rows: _PoolRows) -> None:
        depth = ceil(FIRST_LOOK * task.target / len(task.cell.captions))
        while True:
            looked, missing = [], []
            for caption, pool in task.cell:
                for position, row in enumerate(pool[:depth].tolist()):
                    if (image := self._name(row)) not in task.besides:
                        looked.append((row, position))
                        if not seen.looked_at(image, caption):
                            missing.append((row, position))
            drawn = [] if missing else self._by_turns(task, depth, seen)
            if missing or len(drawn) == task.target or depth >= task.cell.longest:
                break
            depth *= 2
        rows.looked += looked
        rows.missing += missing
        rows.drawn += [(row, rank) for row, rank, _ in drawn]

    def _nearest(self, task: _Task, seen: VerifiedCandidates, rows: _PoolRows) -> None:
        """Selects the nearest. Images count as distinct until they are fetched; copies are then dropped and the next
        images drawn."""
        for row, rank, caption in self._by_turns(task, task.cell.longest, seen):
            rows.drawn.append((row, rank))
            rows.looked.append((row, rank))
            if not seen.looked_at(self._name(row), caption):
                rows.missing.append((row, rank))

    def _by_turns(self, task: _Task, depth: int, seen: VerifiedCandidates) -> list[tuple[int, int, str]]:
        """Returns row, rank and caption of the images that a cell's captions draw in turn, each image and each picture
        once."""
        taken, pictures = set(task.besides), Gallery()

        def of(caption: str, pool: Rows) -> Iterator[int]:
            for row in pool[:depth].tolist():
                image = self._name(row)
                if image in taken or (self._by == ACCEPTED and not seen.accepts(image, caption)):
                    continue
                taken.add(image)
                if pictures.add(seen.fingerprint(image)):
                    yield row

        drawn: list[tuple[int, int, str]] = []
        turns = [(caption, of(caption, pool)) for caption, pool in task.cell]
        rank = 0
        while turns and len(drawn) < task.target:
            going = []
            for caption, turn in turns:
                row = next(turn, None) if len(drawn) < task.target else None
                if row is not None:
                    drawn.append((row, rank, caption))
                    going.append((caption, turn))
            turns, rank = going, rank + 1
        return drawn

    def _name(self, row: int) -> str:
        return self._names[int(self._images[row])]

    def _table(self, rows: list[tuple[int, int]]) -> pa.Table:
        taken = self._rows.take(pa.array([row for row, _ in rows], pa.int64()))
        ranks = pa.array([rank for _, rank in rows], pa.int32())
        return taken.set_column(DRAWS.get_field_index("rank"), DRAWS.field("rank"), ranks)
