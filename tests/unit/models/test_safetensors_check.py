"""Headers of safetensors files as attackers write them, and whole files as the library does."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import save

from c2b_ray.errors import WeightsError
from c2b_ray.models.safetensors_check import check_safetensors


def file(tensors, data=b"\0" * 8, length=None):
    header = tensors if isinstance(tensors, bytes) else json.dumps(tensors).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def check(tmp_path, content):
    (tmp_path / "w").write_bytes(content)
    return check_safetensors(str(tmp_path / "w"), 10)


def test_what_the_library_writes_is_taken(tmp_path):
    tensors = {"a": np.ones((3, 2), np.float16), "b": np.zeros(5, np.int64), "empty": np.zeros((0, 4), np.float32)}
    summary = check(tmp_path, save(tensors, {"note": "x"}))
    assert (summary.tensors, summary.bytes) == (3, 52)


REFUSED = {
    "its first 8 bytes": [b"", b"\0" * 7, file(b"{}", length=2**60), file(b"{}", length=200_000_000), file(b"{}",
        length=1)],
    "no JSON object": [file(b'["a"]   '), file(b' {"a": 1}')],
    "not JSON": [file(b"{'a': 1}"), file(b'{"a": ' * 100_000), file(b'{"a": 1, "a": 2}'), file(b"{\xff}")],
    "__metadata__": [file({"__metadata__": {"a": 1}, "w": entry()}), file({"__metadata__": "x", "w": entry()})],
    "tensors, expected": [file({}), file({f"t{n}": entry(offsets=(0, 8)) for n in range(11)})],
    "expected dtype": [file({"w": {}}), file({"w": entry(code="x")}), file({"w": 1})],
    "unknown dtype": [file({"w": entry("PICKLE")}), file({"w": entry("f32")}), file({"w": entry(["F32"])})],
    "shape is no list": [file({"w": entry(shape=(-2,))}), file({"w": entry(shape=(2.0,))}),
        file({"w": entry(shape=(True,))}),
                         file({"w": entry(shape=(2**63,))}), file({"w": entry(shape=[1] * 40)})],
    "data_offsets": [file({"w": entry(offsets=(8, 0))}), file({"w": entry(offsets=(0, 8, 9))}),
        file({"w": entry(offsets=(-8, 0))})],
    "another number": [file({"w": entry(shape=(3,))}), file({"w": entry(shape=(2**32, 2**31))}),
        file({"w": entry("F4", (3,))})],
    "overlaps": [file({"a": entry(), "b": entry(offsets=(4, 12))}, b"\0" * 12)],
    "hole": [file({"a": entry(offsets=(4, 12))}, b"\0" * 12)],
    "its data has": [file({"w": entry()}, b"\0" * 7), file({"w": entry()}, b"\0" * 8 + b"PK\x03\x04")],
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(tmp_path, words):
    for content in REFUSED[words]:
        with pytest.raises(WeightsError, match=words):
            check(tmp_path, content)
