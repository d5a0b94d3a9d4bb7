"""Tables that are written a piece at a time: whole or not at all, checked as any other, and left alone where equal."""

from pathlib import Path

import pyarrow as pa
import pytest

from c2b_ray.errors import SourceError
from c2b_ray.storage import files, tables

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
