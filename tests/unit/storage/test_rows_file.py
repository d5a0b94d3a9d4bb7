"""A shard's bytes follow from its rows: a shard that is made again is the same file, however its rows came together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.storage import tables
from c2b_ray.storage.tables import RowsFile

KINDS = pa.schema(
    [pa.field("name", pa.string()), pa.field("image", pa.binary()), pa.field("few", pa.list_(pa.int64()))]
)


def rows_of(count):
    random = np.random.default_rng(0)
    rows = [
        {"name": f"row {n}", "image": random.bytes(int(random.integers(0, 9000))), "few": [n]} for n in range(count)
    ]
    return pa.Table.from_pylist(rows, KINDS)


def written(path, pieces):
    file = RowsFile(str(path), KINDS)
    for piece in pieces:
        file.add(piece)
    file.close()
    return file.written


@pytest.mark.parametrize("count", [0, 1, 100])
def test_the_same_rows_are_the_same_bytes_however_they_are_added(tmp_path, monkeypatch, count):
    monkeypatch.setattr(tables, "GROUP_BYTES", 50_000)
    table, nothing = rows_of(count), KINDS.empty_table()
    whole = written(tmp_path / "whole", [table])
    assert whole.rows == count
    for width in (1, 7, 33):
        pieces = [table.slice(start, width) for start in range(0, count, width)]
        assert written(tmp_path / str(width), [nothing, *pieces, nothing]) == whole
    file = pq.ParquetFile(tmp_path / "whole")
    assert file.read().equals(table)
    assert file.num_row_groups == {0: 0, 1: 1, 100: 10}[count]


def test_a_row_that_is_larger_than_a_group_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "GROUP_BYTES", 600)
    table = rows_of(5)
    assert written(tmp_path / "a", [table]) == written(tmp_path / "b", [table.slice(0, 2), table.slice(2)])
    assert pq.ParquetFile(tmp_path / "a").read().equals(table)
