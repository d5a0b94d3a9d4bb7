"""The captions of `c2b index search --captions FILE.txt`."""

import pyarrow as pa

from c2b_ray.engine.index import read_captions


def test_a_byte_order_mark_is_no_part_of_the_first_caption(tmp_path):
    for name, mark in (("plain.txt", b""), ("marked.txt", b"\xef\xbb\xbf")):
        (tmp_path / name).write_bytes(mark + b"a bus in the snow\n\n a boat \n")
    plain, marked = (
        pa.concat_tables(read_captions(str(tmp_path / f"{name}.txt")).tables()) for name in ("plain", "marked")
    )
    assert plain["caption"].to_pylist() == ["a bus in the snow", "a boat"]
    assert plain["row"].to_pylist() == [0, 2]
    assert marked.equals(plain)
