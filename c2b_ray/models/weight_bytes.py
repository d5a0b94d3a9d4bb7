"""Measures the bytes of a loaded model's weights, for models of any library.

It imports no library: it looks for the attributes of PyTorch modules, NumPy arrays, faiss indexes and ONNX sessions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

_DEPTH = 4
_FIRST = 1000
"""The most entries of a list or table that are examined; weights are few and large."""


def weight_bytes(model: object) -> int:
    """Bytes of the parameters, buffers, arrays and codes that the model's attributes hold, each counted once.

    0 where none can be seen: the model is elsewhere, behind a URL, or of a library that is not known here.
    """
    return _bytes(model, set(), _DEPTH)


def _bytes(value: Any, seen_ids: set[int], depth: int) -> int:
    if value is None or id(value) in seen_ids or isinstance(value, str | bytes | int | float | type):
        return 0
    seen_ids.add(id(value))
    of_value = _bytes_of_value(value, seen_ids)
    if of_value is not None or depth == 0:
        return of_value or 0
    if isinstance(value, Mapping):
        parts = list(islice(value.values(), _FIRST))
    elif isinstance(value, list | tuple):
        parts = list(value[:_FIRST])
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    return sum(_bytes(part, seen_ids, depth - 1) for part in parts)


def _bytes_of_value(value: Any, seen_ids: set[int]) -> int | None:
    """Returns the bytes of an object that holds weights; None for any other, whose attributes are then examined."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if callable(getattr(value, "parameters", None)) and callable(getattr(value, "buffers", None)):  # torch.nn.Module
        tensors = {tensor.data_ptr(): tensor.nbytes for tensor in (*value.parameters(), *value.buffers())}
        new = {
            identity: size for identity, size in tensors.items() if identity not in seen_ids
        }  # tied weights, and modules within modules
        seen_ids.update(new)
        return int(sum(new.values()))
    if hasattr(value, "sa_code_size") and hasattr(value, "ntotal"):  # faiss
        return int(value.sa_code_size() * value.ntotal)
    if hasattr(value, "get_modelmeta"):  # onnxruntime: the graph it was made of
        graph, path = getattr(value, "_model_bytes", None), getattr(value, "_model_path", None)
        return len(graph) if graph else os.path.getsize(path) if path and os.path.exists(path) else 0
    return None
