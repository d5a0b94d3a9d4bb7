"""Files that call themselves models, looked at by a process of their own."""

import gzip
import io
import pickle
import tarfile
import zipfile

import numpy as np
import pytest
from onnx import TensorProto, helper
from safetensors.numpy import save

from c2b_ray.config.endpoint import MIB, Weights
from c2b_ray.endpoint.policy.weights import check_weights, kind_of
from c2b_ray.errors import WeightsError


class Evil:
    def __reduce__(self):
        return (print, ("run",))


def zipped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil()))
    return buffer.getvalue()


def tarred():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("x"))
    return buffer.getvalue()


REFUSED = [
    *(pickle.dumps(Evil(), protocol) for protocol in (0, 2, 3, 4, 5)),
    zipped(), tarred(), gzip.compress(b"x"), b"\x89HDF\r\n\x1a\n" + b"\0" * 64, b"GGUF\3\0\0\0",
    b"\0\0\0\0TFL3" + b"\0" * 64,
    b"\x93NUMPY\1\0", b"\x7fELF\2\1\1", b"MZ\x90\0", b"#!/bin/sh\nid\n", b"<html>", b"", b"\x08", b"\0" * 600,
    b"%PDF-1.7",
]  # fmt: skip


@pytest.mark.parametrize("content", REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_model_is_refused_by_its_bytes(content):
    with pytest.raises(WeightsError):
        kind_of(content[:512])


def graph():
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 8, 8])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 192])
    node = helper.make_node("Flatten", ["image"], ["logits"])
    made = helper.make_graph([node], "g", [image], [logits])
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def test_models_are_seen_and_damage_is_said(tmp_path):
    path = tmp_path / "evil.pkl"  # a name says nothing
    path.write_bytes(save({"w": np.ones(4, np.float32)}))
    assert check_weights(str(path)).kind == "safetensors"
    path.write_bytes(graph())
    assert (check_weights(str(path)).kind, check_weights(str(path)).nodes) == ("onnx", 1)
    path.write_bytes(graph()[:-30])
    with pytest.raises(WeightsError, match="the onnx file is refused"):
        check_weights(str(path))


def test_a_file_that_swells_while_it_is_read_ends_its_own_process(tmp_path):
    """Fifty million empty nodes, of two bytes each."""
    path = tmp_path / "bomb"
    nodes = b"\x0a\x00" * (20 * MIB)
    length, size = b"", len(nodes)
    while size:
        length, size = length + bytes([size & 127 | (128 if size > 127 else 0)]), size >> 7
    path.write_bytes(b"\x08\x0a\x3a" + length + nodes)
    with pytest.raises(WeightsError, match="refused"):
        check_weights(str(path), Weights(memory_bytes=768 * MIB, seconds=20))
    with pytest.raises(WeightsError, match=r"within 0\.01 s"):
        check_weights(str(path), Weights(seconds=0.01))
