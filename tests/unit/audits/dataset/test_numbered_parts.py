"""A table in numbered parts, against the rows of each part chosen one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from c2b_ray.audits.dataset import shard_files
from c2b_ray.audits.dataset.shard_files import ShardFiles


@pytest.fixture
def folder(tmp_path):
    files = ShardFiles(str(tmp_path), "writer")
    files.make_folders()
    return files


@pytest.mark.parametrize(
    ("rows", "count"), [(0, 3), (1, 1), (10_000, 7), (10_000, 3000), (12_288, 3)], ids=lambda size: str(size)
)
def test_every_part_has_its_rows_in_order_and_few_are_in_memory(folder, monkeypatch, rows, count):
    monkeypatch.setattr(shard_files, "ROWS_AT_ONCE", 100)
    part_of = np.random.default_rng(count).integers(0, count, rows) // 2 * 2  # the odd parts are empty
    largest = int(np.bincount(part_of, minlength=1).max())
    asked = []

    def table(numbers):
        asked.append(len(numbers))
        return pa.table({"number": pa.array(numbers)})

    shard_files.put(folder, "repeats/parts", table, part_of, count)
    for number in range(count):
        read = shard_files.read(folder, "repeats/parts", number)["number"].to_numpy()
        np.testing.assert_array_equal(read, np.flatnonzero(part_of == number))
    assert max(asked) <= max(100, largest)
    assert sum(asked) == rows


def test_a_file_that_was_cut_short_is_refused(folder, tmp_path):
    whole = pa.table({"number": range(1000)})
    shard_files.put(folder, "repeats/parts", lambda rows: whole.take(pa.array(rows)), np.zeros(1000, int), 1)
    file = tmp_path / "repeats" / "parts.arrow"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(pa.ArrowInvalid):
        shard_files.read(folder, "repeats/parts", 0)
