"""A table in numbered parts, in one file of which each part can be read alone.

The second pass of a dataset build writes one such file for each task, and each task that follows reads one part of
every file. This module knows rows and their parts, not the meaning of either.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.filesystems import resolve
from c2b_ray.filesystems.patience import patiently
from c2b_ray.store.shards import ShardFiles

Ints = NDArray[np.int64]
ENDING = ".arrow"
ROWS_AT_ONCE = 4096
"""As many rows are in memory as this, or as one part has."""


def put(location: ShardFiles, name: str, rows: Callable[[Ints], pa.Table], part_of: Ints, count: int) -> None:
    """Writes the file in `count` parts. `part_of` (rows,): the part of each row, in [0, count). `rows` returns the rows
    of these numbers."""
    order = np.argsort(part_of, kind="stable")
    bounds = np.searchsorted(part_of[order], np.arange(count + 1))
    schema = rows(order[:0]).schema

    def fill(path: str) -> None:
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            first = 0
            while first < count:
                last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + ROWS_AT_ONCE, "right")) - 1)
                table = rows(order[bounds[first] : bounds[last]]).combine_chunks()
                for start, stop in itertools.pairwise((bounds[first : last + 1] - bounds[first]).tolist()):
                    part = table.slice(start, stop - start).to_batches()
                    writer.write_batch(part[0] if part else pa.RecordBatch.from_pylist([], schema))
                first = last

    location.put_file(f"{name}{ENDING}", fill)


def read(location: ShardFiles, name: str, number: int) -> pa.Table:
    """Returns one part. Raises ArrowInvalid if the file was cut short: its footer is written last."""
    filesystem, path = resolve(location.at(f"{name}{ENDING}"))

    def part() -> pa.Table:
        with filesystem.open_input_file(path) as stream, pa.ipc.open_file(stream) as reader:
            return pa.Table.from_batches([reader.get_batch(number)])

    return patiently(location.location, part, reached=True)
