"""Rows by number and by id are those of the whole table, and no other row group is read."""

from pathlib import Path

import pyarrow as pa
import pytest

from c2b_ray.errors import SourceError
from c2b_ray.storage import files, sealed
from c2b_ray.storage.tables import IdIndex, RowGroups

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
                metadata = sealed.Sealed(pa.PythonFile(stream)).metadata
            for group in range(metadata.num_row_groups):
                for column in range(metadata.num_columns):
                    chunk = metadata.row_group(group).column(column)
                    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
            path.write_bytes(data)
