"""What the first nodes of an ONNX graph say about the pixels that it takes.

A graph that begins with x / 255, or with (x − 123.675) / 58.395, normalises pixels from 0 to 255 by itself; one that
begins with (x − 0.485) / 0.229 takes them from 0 to 1; a quantised one names the range of its input. It reads constants
and runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

Line = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Slope and offset, per channel: what the graph makes of a pixel at first is slope · x + offset."""
_FORM = ("Identity", "Cast", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Resize", "Pad")
_SMALL = 64
"""Constants with more numbers are no normalisation."""
_RANGES = {
    "none": (0.0, 255.0),
    "unit": (0.0, 1.0),
    "minus-one-one": (-1.0, 1.0),
    "imagenet": (-2.118, 2.64),
}
"""The numbers of an input by preprocessing, from black to white."""


@dataclass(frozen=True)
class Start:
    """The `preprocess` word that fits a graph's first nodes, and the nodes in words."""

    word: str
    nodes: str


def start_of(graph: Any, taken: str) -> Start | None:
    """Returns what the nodes behind the input `taken` say; None where they say nothing, or nothing certain."""
    constants = _constants(graph)
    slope, offset, passed = np.ones(1), np.zeros(1), list[str]()
    while len(users := [node for node in graph.node if taken in node.input]) == 1:
        (node,) = users
        if node.op_type == "QuantizeLinear":
            return _quantised(node, constants, slope, offset)
        line = (np.ones(1), np.zeros(1)) if node.op_type in _FORM and node.input[0] == taken else None
        line = line or _affine(node, taken, constants)
        if line is None or node.domain not in ("", "ai.onnx"):
            break
        if node.op_type not in _FORM:
            passed.append(node.op_type)
        try:
            slope, offset = line[0] * slope, line[0] * offset + line[1]
        except ValueError:  # constants of other shapes than one number a channel
            return None
        taken = node.output[0]
    word = _word(slope, offset) if passed else None
    return Start(word, f"the graph begins with {', '.join(passed)}") if word else None


def _constants(graph: Any) -> dict[str, NDArray[np.float64]]:
    found = {}
    tensors = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant":
            tensors += [(node.output[0], attribute.t) for attribute in node.attribute if attribute.HasField("t")]
            for attribute in node.attribute:
                if attribute.name == "value_float":
                    found[node.output[0]] = np.array([attribute.f])
    for name, tensor in tensors:
        if not tensor.external_data and np.prod(tensor.dims, dtype=float) <= _SMALL:
            array = numpy_helper.to_array(tensor)
            if array.dtype.kind in "fiu":
                found[name] = np.asarray(array, np.float64).reshape(-1)
    return found


def _affine(node: Any, taken: str, constants: dict[str, NDArray[np.float64]]) -> Line | None:
    """Returns what an arithmetic node does; None for another node."""
    if node.op_type == "BatchNormalization" and node.input[0] == taken:
        known = [constants.get(name) for name in node.input[1:5]]
        if any(values is None for values in known):
            return None
        scale, bias, mean, variance = (values for values in known if values is not None)
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        slope = scale / np.sqrt(variance + epsilon)
        return slope, bias - slope * mean
    if node.op_type not in ("Add", "Sub", "Mul", "Div") or len(node.input) != 2:
        return None
    first = node.input[0] == taken
    values = constants.get(node.input[1] if first else node.input[0])
    if values is None or len(values) not in (1, 3) or not np.isfinite(values).all():
        return None
    one, none = np.ones(1), np.zeros(1)
    if node.op_type == "Add":
        return one, values
    if node.op_type == "Mul":
        return values, none
    if node.op_type == "Sub":
        return (one, -values) if first else (-one, values)
    return (1 / values, none) if first and (values != 0).all() else None


def _word(slope: NDArray[np.float64], offset: NDArray[np.float64]) -> str | None:
    """Returns the preprocessing whose pixels a graph's first sums bring to a usual range."""
    if (slope <= 0).any():
        return None
    middle = -offset / slope  # the pixel that becomes 0
    raw = ((slope * 255 >= 0.5) & (slope * 255 <= 12) & (middle >= -1) & (middle <= 180)).all()
    if raw or ((np.abs(slope - 1) < 0.01) & (middle >= 60) & (middle <= 180)).all():
        return "none"
    if ((slope >= 0.9) & (slope <= 12) & (middle >= 0.2) & (middle <= 0.8)).all():
        return "unit"
    if ((np.abs(slope - 0.5) < 0.01) & (np.abs(middle + 1) < 0.01)).all():
        return "minus-one-one"
    return None


def _quantised(
    node: Any, constants: dict[str, NDArray[np.float64]], slope: NDArray[np.float64], offset: NDArray[np.float64]
) -> Start | None:
    """Returns the preprocessing by the range of numbers that an input is quantised to, within a tenth of it."""
    scale, zero = constants.get(node.input[1]), constants.get(node.input[2] if len(node.input) > 2 else "")
    if scale is None or len(scale) != 1 or (slope != 1).any() or (offset != 0).any():
        return None
    step, origin = float(scale[0]), float(zero[0]) if zero is not None else 0.0
    lows = [-128.0, 0.0]  # of int8 and uint8: the range is the same for its fitting origin
    for low in lows:
        least, most = (low - origin) * step, (low + 255 - origin) * step
        for word, (black, white) in _RANGES.items():
            slack = 0.1 * (white - black)
            if abs(least - black) <= slack and abs(most - white) <= slack:
                return Start(word, f"the graph's input is quantised from {least:.3g} to {most:.3g}")
    return None
