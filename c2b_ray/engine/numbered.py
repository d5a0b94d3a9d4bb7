"""Rows of a source as the rows of a stage: numbers until a worker needs their ids, and a source that threads share.

It knows numbers, ids and sources, not what is fetched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import ceil

import numpy as np
import pyarrow as pa

from c2b_ray.engine.stage import Rows
from c2b_ray.steps import draw
from c2b_ray.steps.draw import FetchedImages, ImageSource, fetched, image_ids

AT_ONCE = 256
MOST_BLOCKS = 128
"""The most blocks of row numbers. Each block costs a driver on Ray some memory, however small."""

Named = Callable[[pa.Table], pa.Table]


def numbered(
    wanted_rows: draw.RowNumbers, revision: str, id_column: str = "image_id", named: Named | None = None
) -> Rows:
    """Returns the rows of a stage: `row` and `image_id` of each of the `wanted_rows` rows of the source of this
    revision.

    `named`: adds columns that follow from `image_id`, such as the stage's `id_column`.
    """
    # Ids are made where the rows are fetched: as text they take eight times the memory of the numbers.
    numbers = wanted_rows.astype(
        np.min_scalar_type(wanted_rows.max(initial=0))
    )  # held, and sent, while images are fetched
    size = max(AT_ONCE, ceil(len(numbers) / MOST_BLOCKS))
    blocks = [pa.table({"row": numbers[start : start + size]}) for start in range(0, max(1, len(numbers)), size)]
    expand = partial(_with_ids, revision=revision, named=named)

    def ids() -> Iterator[pa.Array]:
        for block in blocks:
            for part in expand(block):
                column = part[id_column].combine_chunks()
                yield column.flatten() if pa.types.is_list(column.type) else column

    return Rows(blocks, expand, len(wanted_rows), ids)


def _with_ids(rows: pa.Table, revision: str, named: Named | None) -> Iterator[pa.Table]:
    for start in range(0, rows.num_rows, AT_ONCE):
        block = rows.slice(start, AT_ONCE)
        block = block.append_column("image_id", image_ids(block["row"].to_numpy(), revision))
        yield block if named is None else named(block)


class _OneAtATime:
    """A source that serves one thread at a time, because it may keep what it reads. Sources of other processes are not
    affected."""

    def __init__(self, source: ImageSource) -> None:
        self._source = source
        self._lock = threading.Lock()

    @property
    def revision(self) -> str:
        return self._source.revision

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        with self._lock:
            return self._source.fetch(ids)

    def read(self, ids: Sequence[int]) -> FetchedImages:
        with self._lock:
            return fetched(self._source, ids)


def one_at_a_time(load: Callable[[], ImageSource]) -> ImageSource:
    return _OneAtATime(load())
