"""Divides captions × draws into numbered shards, by arithmetic alone, so that no process holds a list of draws or of
rows.

Every draw has a position: captions are in the order of their numbers, the draws of each in the order of theirs. A shard
is a range of positions, a batch a range within a shard; none of them depends on who makes it or when. It knows numbers,
not what is drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.audits.dataset.steps.fingerprint import MOVES
from c2b_ray.tables import content_id, seed_of
from c2b_ray.tables.dataset import PLANNED
from c2b_ray.tables.dataset_rows import PlannedRow

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
        held: list[PlannedRow] = []
        for label, caption, rows in pairs:
            mark = hashlib.blake2b(f"{label}\0{caption}".encode(), digest_size=12).digest()
            if mark in self._met:
                self.repeated += 1
                continue
            self._met.add(mark)
            number = self.labels.setdefault(label, len(self.labels))
            draws = self.draws if rows is None else len(rows)
            held.append(
                {
                    "label": label, "caption": caption, "label_number": number, "first": self.total, "draws": draws,
                    "rows": rows,
                }
            )  # fmt: skip
            self.captions, self.total = self.captions + 1, self.total + draws
            if len(held) == AT_ONCE:
                yield pa.Table.from_pylist(held, PLANNED)
                held = []
        if held:
            yield pa.Table.from_pylist(held, PLANNED)
