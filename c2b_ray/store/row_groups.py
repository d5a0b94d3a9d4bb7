"""Reads some rows of a table by number or by id, and only the row groups that contain them.

A table is one or more Parquet files; its rows are in the order of `files.read_table`. This module knows files and
columns, not their meaning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.filesystems import THREADS
from c2b_ray.filesystems.sealed import Sealed
from c2b_ray.store import files
from c2b_ray.store.digests import Digests, digests
from c2b_ray.store.tables import group_reader

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RowGroups:
    """The row groups of a table. `locations`: the files. `file`, `number`: for each group, its file and its number
    there. `ends`: for each group, the number of rows up to its end."""

    locations: tuple[str, ...]
    file: Ints
    number: Ints
    ends: Ints

    @staticmethod
    def of(locations: Sequence[str]) -> RowGroups:
        """Reads the footers of the files. SourceError names one that cannot be read."""
        with ThreadPoolExecutor(THREADS) as pool:
            sizes = list(pool.map(lambda location: files.parquet(location, _sizes), locations))
        counts = [len(of_file) for of_file in sizes]
        number = np.concatenate([np.arange(count) for count in counts]) if counts else np.zeros(0)
        rows = np.array([rows for of_file in sizes for rows in of_file], np.int64)
        return RowGroups(tuple(locations), np.repeat(np.arange(len(counts)), counts), number.astype(int), rows.cumsum())

    @property
    def rows(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def page(self, start: int, limit: int, columns: Sequence[str]) -> list[pa.Table]:
        """Returns at most `limit` rows from `start` on, in one table per group."""
        end = min(start + limit, self.rows)
        if start >= end:
            return []
        first, last = np.searchsorted(self.ends, [start, end - 1], "right").tolist()
        read = []
        for group in range(first, last + 1):
            begin = int(self.ends[group - 1]) if group else 0
            read.append(self.read(group, columns).slice(max(0, start - begin), end - max(start, begin)))
        return read

    def take(self, rows: Sequence[int], columns: Sequence[str]) -> list[pa.Table]:
        """Returns the rows with these numbers, in this order, each in its own table."""
        groups = np.searchsorted(self.ends, rows, "right")
        read = {group: self.read(group, columns) for group in np.unique(groups).tolist()}
        begins = np.concatenate([[0], self.ends])[groups]
        return [
            read[group].slice(row - begin, 1)
            for row, group, begin in zip(rows, groups.tolist(), begins.tolist(), strict=True)
        ]

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Returns all rows of a group. Columns that its file lacks are left out."""
        return files.parquet(self.locations[self.file[group]], group_reader(int(self.number[group]), columns))

    def each(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yields the groups in order, reading some ahead."""
        groups = range(len(self.ends))
        with ThreadPoolExecutor(THREADS) as pool:
            for start in range(0, len(groups), THREADS):
                yield from pool.map(lambda group: self.read(group, columns), groups[start : start + THREADS])


@dataclass(frozen=True)
class IdIndex:
    """Finds the group of an id: twelve bytes of each id, sorted, and the number of its group."""

    ids: Digests
    group: NDArray[np.int32]

    @staticmethod
    def of(groups: RowGroups, column: str) -> IdIndex:
        """Builds the index, reading the ids once."""
        tables = [digests(table[column]) for table in groups.each([column])]
        if not tables:
            return IdIndex(np.zeros(0, "S12"), np.zeros(0, np.int32))
        ids = np.concatenate(tables)
        order = np.argsort(ids, kind="stable")
        return IdIndex(ids[order], np.repeat(np.arange(len(tables)), list(map(len, tables))).astype(np.int32)[order])

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.group.nbytes

    def groups_of(self, text: str) -> list[int]:
        """Returns the groups that may contain the id, mostly one or none."""
        [wanted] = digests(pa.chunked_array([[text]], pa.string()))
        first, end = np.searchsorted(self.ids, wanted, "left"), np.searchsorted(self.ids, wanted, "right")
        return sorted(set(self.group[first:end].tolist()))


def _sizes(file: Sealed) -> list[int]:
    return [file.metadata.row_group(group).num_rows for group in range(file.metadata.num_row_groups)]
