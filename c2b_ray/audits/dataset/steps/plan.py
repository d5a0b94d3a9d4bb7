"""Divides captions × draws into numbered shards, by arithmetic alone, so that no process holds a list of draws or of
rows.

Every draw has a position: captions are in the order of their numbers, the draws of each in the order of theirs. A shard
is a range of positions, a batch a range within a shard; none of them depends on who makes it or when. It knows numbers,
not what is drawn.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from c2b_ray.audits.dataset.steps.fingerprint import MOVES
from c2b_ray.tables import content_id, seed_of
from c2b_ray.tables.dataset import PLANNED, PlannedRow

Ints = NDArray[np.int64]

GROUP_SHARDS = 8
MOST_GROUPS = 256
BUCKET_ENTRIES = 20_000
"""Entries (fingerprints times bands) that one process compares at a time, if every draw is a failure."""


@dataclass(frozen=True)
class Plan:
    """`dataset_id`: hash of everything that determines the rows. `draws`: of all captions together."""

    dataset_id: str
    draws: int
    shard_draws: int
    batch: int

    @property
    def shards(self) -> int:
        return -(-self.draws // self.shard_draws)

    def shard_id(self, number: int) -> str:
        return content_id("shard", self.dataset_id, number)

    def name(self, number: int) -> str:
        """Returns the name of a shard's files, without their ending."""
        return f"{number:06d}-{self.shard_id(number)}"

    def bounds(self, number: int) -> tuple[int, int]:
        """Returns the first position of a shard, and the one after its last."""
        start = number * self.shard_draws
        return start, min(self.draws, start + self.shard_draws)

    def batches(self, number: int) -> list[tuple[int, int]]:
        """Returns the bounds of a shard's batches."""
        start, stop = self.bounds(number)
        return [(first, min(stop, first + self.batch)) for first in range(start, stop, self.batch)]

    @property
    def groups(self) -> int:
        """The number of groups of consecutive shards in the second pass."""
        return max(1, min(MOST_GROUPS, -(-self.shards // GROUP_SHARDS)))

    def shards_of_group(self, group: int) -> range:
        return range(group * self.shards // self.groups, (group + 1) * self.shards // self.groups)

    def groups_of(self, positions: Ints) -> Ints:
        """Returns the group that holds each position."""
        firsts = [self.shards_of_group(group).start * self.shard_draws for group in range(self.groups)]
        return np.searchsorted(np.array(firsts, np.int64), positions, side="right") - 1

    def buckets(self, distance: int, format: int) -> int:
        """Returns the number of buckets that the second pass uses for the bands of all fingerprints, and since format 3
        windows."""
        entries = distance + 1 + (1 + len(MOVES) if format >= 3 else 0)
        return max(1, -(-self.draws * entries // BUCKET_ENTRIES))


def caption_of(firsts: Ints, positions: Ints) -> tuple[Ints, Ints]:
    """Returns caption number and draw of each position. `firsts`: the position of each caption's first draw,
    ascending."""
    numbers = np.searchsorted(firsts, positions, side="right") - 1
    return numbers, positions - firsts[numbers]


def seed_of_draw(seed: int, caption: str, draw: int) -> int:
    """Returns the seed of draw number `draw` of a caption, in [0, 2**31): the same in every process, shard and
    batch."""
    return seed_of("dataset", seed, caption, draw)


# Numbers the captions of a plan in their order, each once, with the position of its first draw. It knows texts.


AT_ONCE = 4096


@dataclass
class NumberedCaptions:
    """Numbers captions in their order, each text of a label once. `labels`: those that have occurred."""

    draws: int
    labels: dict[str, int] = field(default_factory=dict)
    captions: int = 0
    total: int = 0
    repeated: int = 0
    _met: set[bytes] = field(default_factory=set)

    def tables(self, pairs: Iterable[tuple[str, str, list[int] | None]]) -> Iterator[pa.Table]:
        """Yields tables of `tables.dataset.PLANNED` for (label, caption, rows). A caption with rows has a draw for
        each."""
        pending: list[PlannedRow] = []
        for label, caption, rows in pairs:
            mark = hashlib.blake2b(f"{label}\0{caption}".encode(), digest_size=12).digest()
            if mark in self._met:
                self.repeated += 1
                continue
            self._met.add(mark)
            number = self.labels.setdefault(label, len(self.labels))
            draws = self.draws if rows is None else len(rows)
            pending.append(
                {
                    "label": label, "caption": caption, "label_number": number, "first": self.total, "draws": draws,
                    "rows": rows,
                }
            )  # fmt: skip
            self.captions, self.total = self.captions + 1, self.total + draws
            if len(pending) == AT_ONCE:
                yield pa.Table.from_pylist(pending, PLANNED)
                pending = []
        if pending:
            yield pa.Table.from_pylist(pending, PLANNED)


# Splits a dataset's rows into two parts that have only labels in common.


By = Literal["caption", "image"]
ENOUGH_CAPTIONS = 10
"""With fewer captions a fifth is one or two, which say little about the others: then images are split."""
_BLOCK = 512


@dataclass(frozen=True)
class Split:
    """`test`: whether each row is held out. `groups`: their number. `by`: what the rows of a group have in common."""

    test: NDArray[np.bool_]
    groups: int
    by: By


def split(
    ids: Sequence[str],
    captions: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    by: By | None = None,
    share: float = 0.2,
    distance: int = 4,
) -> Split:
    """Holds out at least `share` of the rows, and no more groups than needed for that; one group is always left.

    Args: captions, hashes: of each row. by: None: captions if there are `ENOUGH_CAPTIONS`, else images. distance:
    for images, hashes that differ in at most this many of 64 bits are near-duplicates.

    Raises: ValueError where there are fewer than two groups.
    """
    chosen_by: By = by or ("caption" if len(np.unique(captions)) >= ENOUGH_CAPTIONS else "image")
    pairs = _of_one_caption(captions) if chosen_by == "caption" else near_pairs(hashes, distance)
    graph = coo_matrix((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(len(ids), len(ids)))
    count, group = connected_components(graph, directed=False)
    if count < 2:
        likeness = "of one caption" if chosen_by == "caption" else "near-duplicates of one image"
        raise ValueError(f"its {len(ids)} rows are {likeness}, and two groups are needed")
    smallest = [""] * count
    for name, number in zip(ids, group.tolist(), strict=True):
        smallest[number] = min(smallest[number] or name, name)
    order = np.array(sorted(range(count), key=lambda number: hashlib.sha256(smallest[number].encode()).digest()))
    sizes = np.bincount(group, minlength=count)[order]
    is_held_out = np.cumsum(sizes) - sizes < share * len(ids)
    is_held_out[-1] = False
    return Split(np.isin(group, order[is_held_out]), int(count), chosen_by)


def _of_one_caption(captions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns pairs (pairs, 2) of rows that link all rows of each caption."""
    order = np.argsort(captions, kind="stable")
    is_same = captions[order][1:] == captions[order][:-1]
    return np.stack([order[1:][is_same], order[:-1][is_same]], axis=1)


def near_pairs(hashes: NDArray[np.uint64], distance: int) -> NDArray[np.int64]:
    """Returns pairs (pairs, 2) of rows that link all rows whose hashes differ in at most `distance` bits, directly or
    through others.

    In such a pair at least one of `distance` + 1 bands of bits agrees, so only rows that share a band are compared.
    """
    pairs = [np.zeros((0, 2), np.int64)]
    edges = np.linspace(0, 64, distance + 2).astype(int)
    for low, high in itertools.pairwise(edges):
        band = (hashes >> np.uint64(low)) & np.uint64((1 << int(high - low)) - 1)
        order = np.lexsort((hashes, band))
        starts = np.flatnonzero(np.r_[True, band[order][1:] != band[order][:-1]])
        runs = np.split(order, starts[1:])
        pairs += [_compared(rows, hashes, distance) for rows in runs if len(rows) > 1]
    return np.concatenate(pairs)


def _compared(rows: NDArray[np.int64], hashes: NDArray[np.uint64], distance: int) -> NDArray[np.int64]:
    """Returns the near pairs among rows sorted by their hashes; equal hashes are linked once and compared once."""
    is_same = hashes[rows][1:] == hashes[rows][:-1]
    pairs = [np.stack([rows[1:][is_same], rows[:-1][is_same]], axis=1)]
    rows = rows[np.r_[True, ~is_same]]
    bits = hashes[rows]
    for start in range(0, len(rows), _BLOCK):
        bits_apart = np.bitwise_count(bits[start : start + _BLOCK, None] ^ bits[None, start:])
        a, b = np.nonzero(bits_apart <= distance)
        first_is_smaller = a < b
        pairs.append(np.stack([rows[start + a[first_is_smaller]], rows[start + b[first_is_smaller]]], axis=1))
    return np.concatenate(pairs)
