"""Checks byte by byte that a file is safetensors and nothing else: header, offsets, types and sizes.

Source: the safetensors format, "Format" and its rules on holes, duplicate keys and alignment (huggingface/safetensors).
It reads the header alone, imports no library of models, and does not know the purpose of the tensors.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from c2b_ray.errors import WeightsError
from c2b_ray.storage.manifest import parse_json

LONGEST_HEADER = 100_000_000
"""The longest header in bytes, the library's limit."""
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
    "U64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_MOST_DIMENSIONS = 32


@dataclass(frozen=True)
class SafetensorsSummary:
    """The number of `tensors` and the `bytes` of all of them."""

    tensors: int
    bytes: int


def check_safetensors(path: str, most_tensors: int) -> SafetensorsSummary:
    """Checks a file. Raises WeightsError with the first fault found."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= LONGEST_HEADER or 8 + length > size:
            raise WeightsError(f"its first 8 bytes say that its header has {length} bytes; the file has {size} in all")
        header = file.read(length)
    if header[:1] != b"{":
        raise WeightsError("its header is no JSON object")
    try:
        tensors = parse_json(header.decode("utf-8"))
    except ValueError as error:
        raise WeightsError(f"its header is not JSON: {str(error)[:200]}") from error
    metadata = tensors.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise WeightsError("its __metadata__ is not an object of texts")
    if not tensors or len(tensors) > most_tensors:
        raise WeightsError(f"it holds {len(tensors)} tensors, expected 1 to {most_tensors}")
    spans = sorted(_span(name, entry) for name, entry in tensors.items())
    _check_cover(spans, size - 8 - length)
    return SafetensorsSummary(len(tensors), size - 8 - length)


def _span(name: str, entry: Any) -> tuple[int, int, str]:
    """Returns a tensor's begin and end, and its name."""
    short_name = name[:100]
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise WeightsError(f"{short_name!r}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise WeightsError(f"{short_name!r}: unknown dtype {str(dtype)[:40]!r}")
    if not _are_counts(shape) or len(shape) > _MOST_DIMENSIONS:
        raise WeightsError(f"{short_name!r}: its shape is no list of at most {_MOST_DIMENSIONS} numbers from 0 on")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise WeightsError(f"{short_name!r}: its data_offsets are no beginning and end")
    n_bits = prod(shape) * _BITS[dtype]
    if n_bits % 8 or n_bits // 8 != offsets[1] - offsets[0]:
        raise WeightsError(f"{short_name!r}: {dtype} of this shape has {n_bits} bits, its offsets span another number")
    return offsets[0], offsets[1], name


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _check_cover(spans: Iterable[tuple[int, int, str]], size: int) -> None:
    """Checks that every byte belongs to exactly one tensor, so nothing is hidden between or after them."""
    covered = 0
    for begin, end, name in spans:
        if begin != covered:
            problem = "overlaps the one before" if begin < covered else "leaves a hole before it"
            raise WeightsError(f"{name[:100]!r}: {problem}, at byte {begin} of the tensors")
        covered = end
    if covered != size:
        raise WeightsError(f"its tensors end at byte {covered}, its data has {size} bytes")
