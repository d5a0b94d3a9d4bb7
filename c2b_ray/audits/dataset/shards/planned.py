"""The captions of a dataset's plan, loaded as they are needed: numbers of all, texts of the few that a shard draws.

It knows `captions.parquet`, not who wrote the captions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from c2b_ray.audits.dataset.shard_files import ShardFiles
from c2b_ray.audits.dataset.steps.plan import Ints
from c2b_ray.audits.dataset.steps.sources import Caption
from c2b_ray.storage import files, resolve
from c2b_ray.storage.s3 import patiently
from c2b_ray.tables.dataset import PLANNED

CAPTIONS = "captions.parquet"
GROUP = 4096
"""Captions that are read in one go."""
_GROUPS_HELD = 4


class PlannedCaptions:
    """The captions of a plan. `firsts`: the position of each caption's first draw. `label_numbers`: by caption."""

    def __init__(self, location: ShardFiles) -> None:
        self._files = location
        numbers = location.read(CAPTIONS, ["first", "label_number"])
        self.firsts: Ints = numbers["first"].to_numpy()
        self.label_numbers: NDArray[np.int32] = numbers["label_number"].to_numpy()
        self._groups: OrderedDict[int, list[Caption]] = OrderedDict()
        self._lock = Lock()

    def positions(self, table: pa.Table) -> Ints:
        """Returns the position of each row's draw, of a table with columns `caption_number` and `draw`."""
        positions: Ints = self.firsts[table["caption_number"].to_numpy()] + table["draw"].to_numpy()
        return positions

    def __len__(self) -> int:
        return len(self.firsts)

    def __getitem__(self, number: int) -> Caption:
        with self._lock:
            group = number // GROUP
            if group not in self._groups:
                self._groups[group] = self._read(group)
                while len(self._groups) > _GROUPS_HELD:
                    self._groups.popitem(last=False)
            self._groups.move_to_end(group)
            return self._groups[group][number % GROUP]

    def _read(self, group: int) -> list[Caption]:
        filesystem, path = resolve(self._files.at(CAPTIONS))

        def read() -> pa.Table:
            with filesystem.open_input_file(path) as stream:
                return pq.ParquetFile(stream, page_checksum_verification=True).read_row_group(group)

        with files.reading(self._files.at(CAPTIONS), "table"):
            table = patiently(self._files.location, read, reached=True)
        return [
            Caption(
                group * GROUP + row,
                entry["label"],
                entry["caption"],
                None if entry["rows"] is None else tuple(entry["rows"]),
            )
            for row, entry in enumerate(table.to_pylist())
        ]


def write_captions(location: ShardFiles, tables: Iterator[pa.Table]) -> None:
    """Writes tables of `tables.dataset.PLANNED`, in the order of their captions; a few are in memory at a time."""

    def fill(path: str) -> None:
        with pq.ParquetWriter(path, PLANNED, compression="zstd", write_page_checksum=True) as writer:
            pending = PLANNED.empty_table()
            for table in tables:
                pending = pa.concat_tables([pending, table])
                while pending.num_rows >= GROUP:
                    writer.write_table(pending.slice(0, GROUP).combine_chunks(), row_group_size=GROUP)
                    pending = pending.slice(GROUP)
            if pending.num_rows:
                writer.write_table(pending.combine_chunks(), row_group_size=GROUP)

    location.put_file(CAPTIONS, fill)
