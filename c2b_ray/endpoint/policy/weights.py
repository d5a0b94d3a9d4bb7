"""Checks uploaded weights before they are stored: ONNX or safetensors, by content and not by name.

A separate process reads the file (`python -m c2b_ray.endpoint.policy.weights`), without credentials, without network
where the kernel allows that, and with limits of memory and time. An attack on the parser, or a crash of it, then does
not reach the endpoint.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any, Literal

from c2b_ray.config.endpoint import Weights
from c2b_ray.endpoint.policy.isolation import can_cut_off, launched
from c2b_ray.errors import C2BError, WeightsError

Kind = Literal["onnx", "safetensors"]
_ONLY = "only ONNX and safetensors are accepted"
_CONVERT = "it runs code when it is read; convert it with safetensors.torch.save_file, or export it as ONNX"
_KNOWN: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", f"a zip archive, as PyTorch, TorchScript and Keras write: {_CONVERT}"),
    (0, b"PK\x05\x06", f"a zip archive: {_ONLY}"),
    (0, b"\x80\x02", f"a pickle: {_CONVERT}"),
    (0, b"\x80\x03", f"a pickle: {_CONVERT}"),
    (0, b"\x80\x04", f"a pickle: {_CONVERT}"),
    (0, b"\x80\x05", f"a pickle: {_CONVERT}"),
    (0, b"\x89HDF\r\n\x1a\n", f"HDF5, as Keras writes: {_ONLY}"),
    (0, b"GGUF", f"GGUF: {_ONLY}"),
    (0, b"\x93NUMPY", f"a NumPy array: {_ONLY}"),
    (0, b"\x1f\x8b", f"packed with gzip: {_ONLY}, unpacked"),
    (0, b"BZh", f"packed with bzip2: {_ONLY}, unpacked"),
    (0, b"\xfd7zXZ\0", f"packed with xz: {_ONLY}, unpacked"),
    (0, b"7z\xbc\xaf\x27\x1c", f"a 7z archive: {_ONLY}"),
    (0, b"\x7fELF", f"a program: {_ONLY}"),
    (0, b"MZ", f"a program: {_ONLY}"),
    (0, b"#!", f"a script: {_ONLY}"),
    (0, b"<", f"a page: {_ONLY}"),
    (0, b"%PDF", f"a PDF: {_ONLY}"),
    (4, b"TFL3", f"TensorFlow Lite: {_ONLY}"),
    (257, b"ustar", f"a tar archive: {_ONLY}"),
)
_HEADER = 512


@dataclass(frozen=True)
class WeightsSummary:
    """The number of `nodes` (0 for safetensors) and `tensors`, and the `opset` of an ONNX graph."""

    kind: Kind
    tensors: int
    nodes: int = 0
    opset: int = 0


def kind_of(head: bytes) -> Kind:
    """Returns the kind of a file by its first bytes, of which 512 are enough. WeightsError names a kind that is
    refused."""
    # First of all, because the length of a safetensors header may look like any other magic number.
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 2**32:
        return "safetensors"
    for offset, magic, description in _KNOWN:
        if head[offset : offset + len(magic)] == magic:
            raise WeightsError(f"the file is {description}")
    # A message of protobuf: its first field is the version of the format (field 1, a small number), nearly always.
    if head[:1] == b"\x08" and 1 <= int.from_bytes(head[1:2], "little") < 128:
        return "onnx"
    raise WeightsError(f"the file is neither ONNX nor safetensors by its first bytes; {_ONLY}")


def check_weights(path: str, limits: Weights | None = None) -> WeightsSummary:
    """Returns what a file contains, read in a separate process. WeightsError says why it is refused."""
    limits = limits or Weights()
    with open(path, "rb") as file:
        kind = kind_of(file.read(_HEADER))
    argv = (sys.executable, "-m", "c2b_ray.endpoint.policy.weights", kind, path, limits.model_dump_json())
    bounds = {"AS": limits.memory_bytes, "CPU": int(limits.seconds) + 1, "CORE": 0, "FSIZE": 0}
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = launched(argv, bounds, cut=can_cut_off())
    try:
        result = subprocess.run(  # noqa: S603  (our own program; the path is of our own making)
            command, env=environment, capture_output=True, timeout=limits.seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise WeightsError(f"the {kind} file could not be read within {limits.seconds:g} s; it is refused") from error
    if result.returncode != 0:
        raise WeightsError(
            f"the {kind} file is refused: the process that read it died: memory ran out, or the file is damaged"
        )
    answer: dict[str, Any] = json.loads(result.stdout)
    if "error" in answer:
        raise WeightsError(f"the {kind} file is refused: {answer['error']}")
    return WeightsSummary(**answer)


def _seen(kind: str, path: str, limits: Weights) -> WeightsSummary:
    if kind == "safetensors":
        from c2b_ray.models.safetensors_check import check_safetensors

        return WeightsSummary("safetensors", check_safetensors(path, limits.tensors).tensors)
    from c2b_ray.models.onnx_check import OnnxLimits, check_onnx

    graph = check_onnx(path, OnnxLimits(limits.nodes, limits.depth, limits.tensors))
    return WeightsSummary("onnx", graph.tensors, graph.nodes, graph.opset)


def main(argv: list[str]) -> None:
    """Prints what the file contains, or the error, as JSON."""
    kind, path, limits = argv
    try:
        answer: dict[str, Any] = asdict(_seen(kind, path, Weights.model_validate_json(limits)))
    except C2BError as error:
        answer = {"error": str(error)[:1000]}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
