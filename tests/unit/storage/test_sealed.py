import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from c2b_ray.errors import SourceError, StorageError
from c2b_ray.storage import files, parts, sealed

TABLE = pa.table(
    {
        "image_id": ["a", "b", None] * 8,
        "phi": pa.array([0.5, None, float("inf")] * 8),
        "n": pa.array(range(24), pa.int32()),
        "bytes": pa.array([b"abc", b"\xff\xd8", None] * 8),
        "answered": pa.array([["bus", "tram"], None, []] * 8),
    }
)


def test_every_flipped_bit_reads_back_equal_or_is_an_error():
    data = bytes(sealed.encoded(TABLE, compression="zstd"))
    assert pq.read_table(pa.BufferReader(data)).equals(TABLE)  # as any other program reads it
    caught = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = sealed.read(pa.BufferReader(bytes(flipped)))
        except (OSError, pa.ArrowException):
            caught += 1
            continue
        assert found.schema.equals(TABLE.schema), bit
        assert found.equals(TABLE), bit
    assert caught > 0.95 * 8 * len(data)


@pytest.mark.parametrize("kind", ["table", "part"])
def test_a_flip_in_a_table_or_part_names_its_file(tmp_path, kind):
    place = tmp_path / "part-1.parquet"
    if kind == "table":
        files.write_table(place, TABLE)
    else:
        place.write_bytes(parts._encoded(TABLE))
    whole = place.read_bytes()
    for byte in range(4, len(whole) - 8, 7):
        place.write_bytes(whole[:byte] + bytes([whole[byte] ^ 16]) + whole[byte + 1 :])
        try:
            found = files.read_table(place) if kind == "table" else parts.opened(str(tmp_path)).read("part-1.parquet")
        except (SourceError, StorageError) as error:
            assert "part-1.parquet" in str(error)  # noqa: PT017
        else:
            assert found.equals(TABLE)


def test_a_few_columns_or_row_groups_are_read_without_the_others():
    data = bytearray(sealed.encoded(TABLE, row_group_size=8))
    at = data.index(b"\xff\xd8")  # in the first row group's bytes
    data[at] ^= 1
    file = sealed.SealedParquet(pa.BufferReader(bytes(data)))
    assert file.read(["n", "image_id", "absent"]).equals(TABLE.select(["n", "image_id"]))
    assert file.read_groups([1, 2]).equals(TABLE.slice(8))
    with pytest.raises(pa.ArrowInvalid, match="checksum of column 'bytes'"):
        file.read(["bytes"])


def test_a_footer_longer_than_the_first_look_and_a_file_of_another_program():
    wide = pa.table({f"column {number} " + "x" * 200: [number] for number in range(300)})
    data = bytes(sealed.encoded(wide))
    assert sealed.read(pa.BufferReader(data)).equals(wide)
    sink = pa.BufferOutputStream()
    pq.write_table(TABLE, sink)
    assert sealed.read(pa.BufferReader(sink.getvalue())).equals(TABLE)
