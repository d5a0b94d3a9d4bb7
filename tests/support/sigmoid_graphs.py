"""ONNX graphs that score each label on its own, linearly in a picture's mean colours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE = 8


def scores_of_colours(
    path: Path,
    weight: Sequence[Sequence[float]],
    bias: Sequence[float],
    labels: Sequence[str] = (),
    sigmoid: bool = True,
) -> Path:
    """Writes sigmoid(m · weight + bias) of the means m of red, green and blue, from 0 to 1; `weight` is (3, labels).

    `labels`: names in the file's metadata. `sigmoid`: whether the graph ends in it, or gives the logits.
    """
    constants = {
        "axes": np.array([2, 3], np.int64),
        "weight": np.array(weight, np.float32),
        "bias": np.array(bias, np.float32),
    }
    nodes = [
        helper.make_node("ReduceMean", ["pixels", "axes"], ["means"], keepdims=0),
        helper.make_node("Gemm", ["means", "weight", "bias"], ["logits"]),
        *([helper.make_node("Sigmoid", ["logits"], ["scores"])] if sigmoid else []),
    ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
    out = helper.make_tensor_value_info("scores" if sigmoid else "logits", TensorProto.FLOAT, ["n", len(bias)])
    tensors = [numpy_helper.from_array(values, name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "g", [pixels], [out], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    if labels:
        helper.set_model_props(model, {"labels": json.dumps(list(labels))})
    onnx.save(model, path)
    return path


def of_colour(red: float, green: float, blue: float) -> np.ndarray:
    """Returns a picture of one colour, each channel from 0 to 1; uint8 (SIDE, SIDE, 3)."""
    colour = np.round(255 * np.clip([red, green, blue], 0, 1)).astype(np.uint8)
    return np.broadcast_to(colour, (SIDE, SIDE, 3)).copy()
