"""Tables written a piece at a time: whole or not at all, with bytes that follow from rows, read by row group."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.errors import SourceError
from c2b_ray.storage import files, sealed, tables
from c2b_ray.storage.tables import IdIndex, RowGroups, RowsFile

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def piece(first: int, rows: int = 3) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table({"id": [f"{n:x}" for n in numbers], "n": list(numbers)}, SCHEMA)


def write(path: Path, *pieces: pa.Table) -> bool:
    """Whether the file was replaced."""
    told: list[None] = []
    tables.write_tables(path, SCHEMA, pieces, lambda: told.append(None))
    return bool(told)


def test_a_file_is_replaced_by_other_rows_only(tmp_path: Path) -> None:
    path = tmp_path / "draws.parquet"
    assert write(path, piece(0), piece(3))
    assert files.read_table(path).equals(piece(0, 6))
    assert tables.count_rows(path) == 6
    before = path.stat()
    assert not write(path, piece(0), piece(3))
    assert path.stat().st_ino == before.st_ino
    assert write(path, piece(0), piece(4))
    assert files.read_table(path)["n"].to_pylist() == [0, 1, 2, 4, 5, 6]
    assert write(path)
    assert files.read_table(path).equals(SCHEMA.empty_table())
    assert [entry.name for entry in tmp_path.iterdir()] == ["draws.parquet"]


def test_pieces_that_fail_leave_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "draws.parquet"
    write(path, piece(0))

    def broken():
        yield piece(9)
        raise InterruptedError("killed")

    with pytest.raises(InterruptedError):
        tables.write_tables(path, SCHEMA, broken(), lambda: None)
    assert files.read_table(path).equals(piece(0))
    assert [entry.name for entry in tmp_path.iterdir()] == ["draws.parquet"]


def test_every_byte_of_it_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "draws.parquet"
    write(path, piece(0), piece(3))
    data = path.read_bytes()
    for at in range(4, len(data), 41):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        try:
            assert files.read_table(path).equals(piece(0, 6)), at
        except SourceError:
            continue


SIZES = (5, 1, 7, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """17 rows in four parts, of row groups of three."""
    first = 0
    for number, rows in enumerate(SIZES):
        ids = [f"id-{row}" for row in range(first, first + rows)]
        table = pa.table({"image_id": ids, "n": range(first, first + rows), "bytes": [b"x" * 500] * rows})
        path = tmp_path / f"part-{number}.parquet"
        path.write_bytes(sealed.encoded(table, row_group_size=3, compression="none"))
        first += rows
    return tmp_path


def numbers(tables: list[pa.Table]) -> list[int]:
    return [n for table in tables for n in table["n"].to_pylist()]


def test_pages_and_chosen_rows_are_those_of_the_table(folder: Path) -> None:
    groups = RowGroups.of(files.table_files(folder))
    assert groups.rows == sum(SIZES)
    for start in range(19):
        for limit in (0, 1, 3, 8, 50):
            assert numbers(groups.page(start, limit, ["n"])) == list(range(start, min(start + limit, 17)))[:limit]
    assert numbers(groups.take([16, 0, 5, 6, 4], ["n"])) == [16, 0, 5, 6, 4]
    assert groups.take([], ["n"]) == []
    assert RowGroups.of([]).rows == 0
    assert RowGroups.of([]).page(0, 5, ["n"]) == []


def test_an_id_is_in_its_group_and_what_is_nowhere_in_none(folder: Path) -> None:
    groups = RowGroups.of(files.table_files(folder))
    index = IdIndex.of(groups, "image_id")
    for n in range(17):
        [group] = index.groups_of(f"id-{n}")
        assert n in groups.read(group, ["n"])["n"].to_pylist()
    assert index.groups_of("id-17") == []
    assert IdIndex.of(RowGroups.of([]), "image_id").groups_of("id-0") == []


def test_no_other_group_is_read(folder: Path) -> None:
    groups = RowGroups.of(files.table_files(folder))
    index = IdIndex.of(groups, "image_id")
    spoil(folder, keep="part-2.parquet")
    assert numbers(groups.page(6, 7, ["n", "bytes"])) == list(range(6, 13))
    assert groups.read(index.groups_of("id-8")[0], ["bytes"]).num_rows == 3
    with pytest.raises(SourceError, match=r"part-1\.parquet: not a Parquet file that can be read"):
        groups.page(5, 8, ["n", "bytes"])


def spoil(folder: Path, keep: str) -> None:
    """Flips a bit in each column chunk of the others, which their checksums tell as soon as the chunk is read."""
    for path in folder.glob("part-*.parquet"):
        if path.name != keep:
            data = bytearray(path.read_bytes())
            with path.open("rb") as stream:
                metadata = sealed.SealedParquet(pa.PythonFile(stream)).metadata
            for group in range(metadata.num_row_groups):
                for column in range(metadata.num_columns):
                    chunk = metadata.row_group(group).column(column)
                    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
            path.write_bytes(data)


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
