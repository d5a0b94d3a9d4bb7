"""An ONNX file as its bytes describe it: the model, its content, and which input and output a classifier uses."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models.catalog import Spec
from c2b_ray.models.output_kinds import KINDS, Hint
from c2b_ray.models.spec_options import TO_ONNX

DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
}
_OF_FORM = frozenset({"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout"})
_HINTS: dict[str, Hint] = {"Softmax": "softmax", "Sigmoid": "sigmoid", "HardSigmoid": "sigmoid"}


@dataclass(frozen=True)
class Graph:
    """The file's description of its input and output; `sides` (height, width) and `fixed_batch` are None where free.

    `mixes`: whether it rounds numbers by the range of a whole batch, so that pictures of one change each other's
    answers.
    """

    input: str
    output: str
    dtype: str
    channels_last: bool
    sides: tuple[int | None, int | None]
    fixed_batch: int | None
    hint: Hint
    mixes: bool = False


def read_model(path: Path) -> Any:
    """Reads the file by onnx, without weights in other files. Raises WeightsError where it cannot be used, or where
    these files are gone."""
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf's own, whose implementation varies
        raise WeightsError(f"{path}: not an ONNX file, or a damaged one; {TO_ONNX}") from error
    if not model.graph.node:
        raise WeightsError(f"{path}: not an ONNX file: it holds no graph; {TO_ONNX}")
    for file in _external(model, path):
        if not file.is_file():
            raise WeightsError(
                f"{path}: its weights are in {file.name}, which is not beside it ({file}); copy both files together, "
                "or save the model as one, with save_as_external_data=False"
            )
    return model


def content_of(model: Any, path: Path) -> list[memoryview]:
    """Returns the bytes of the file and of those that hold its weights, mapped into memory."""
    return [_mapped(file) for file in (path, *_external(model, path)) if file.stat().st_size]


def bytes_of(model: Any, path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *_external(model, path)))


def _external(model: Any, path: Path) -> list[Path]:
    places = {e.value for tensor in _weights(model.graph) for e in tensor.external_data if e.key == "location"}
    return [path.parent / name for name in sorted(places)]


def _weights(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            for inner in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                yield from _weights(inner)


def _mapped(path: Path) -> memoryview:
    """Maps a file into memory, so bytes are read when they are used."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def graph_of(spec: Spec, inputs: Sequence[Any], outputs: Sequence[Any], model: Any, layout: str | None) -> Graph:
    """Returns the input and output that a classifier uses, of those that onnxruntime declares.

    `layout`: as the spec or the file states it. Raises SpecError and WeightsError for a graph that takes no picture,
    gives no number for each label, or leaves open which output does.
    """
    image_input = _named(spec, "input", inputs) if "input" in spec.options else inputs[0]
    output = _output(spec, outputs)
    shape = [side if isinstance(side, int) and side > 0 else None for side in image_input.shape]
    dtype = DTYPES.get(image_input.type)
    layouts = [name for name, axis in (("nchw", 1), ("nhwc", 3)) if len(shape) == 4 and shape[axis] in (3, None)]
    if dtype is None or not layouts or len(inputs) > 1:
        declared = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs)
        raise WeightsError(
            f"{spec.text}: expected one image input, N×3×H×W or N×H×W×3, of {', '.join(DTYPES.values())}; the graph "
            f"takes {declared}; export it with such an input"
        )
    if layout is None and len(layouts) > 1 and shape[1] == shape[3]:
        raise SpecError(
            f"{spec.text}: the input {image_input.shape} may be N×3×H×W or N×H×W×3; state it with ?layout=nchw or nhwc"
        )
    fitting = [name for name, axis in (("nchw", 1), ("nhwc", 3)) if len(shape) == 4 and shape[axis] == 3]
    layout = layout.lower() if layout is not None else (fitting or layouts)[0]
    if layout not in layouts:
        raise SpecError(
            f"{spec.text}: layout={layout!r} does not fit the input {image_input.shape}; {nearest(layout, layouts)}"
        )
    mixes = any(node.op_type == "DynamicQuantizeLinear" for node in model.graph.node)
    last = layout == "nhwc"
    sides = (shape[1], shape[2]) if last else (shape[2], shape[3])
    return Graph(image_input.name, output.name, dtype, last, sides, shape[0], _hint(output.name, model), mixes)


def is_kind(spec: Spec) -> bool:
    """Returns whether `output=` states what the numbers are; otherwise it is the name of an output."""
    return spec.options.get("output") in KINDS


def _hint(output: str, model: Any) -> Hint:
    """Returns what gives the output, be it through nodes that change only its form."""
    makers = {name: node for node in model.graph.node for name in node.output}
    while (node := makers.get(output)) is not None and node.op_type in _OF_FORM and node.input:
        output = node.input[0]
    return _HINTS.get(node.op_type, "") if node is not None else ""


def _output(spec: Spec, outputs: Sequence[Any]) -> Any:
    """Returns the output that is named, else the only one that can be numbers of labels."""
    option = spec.options.get("output", "")
    if "output_name" in spec.options:
        selected = _named(spec, "output_name", outputs)
    elif option and not is_kind(spec):
        selected = _named(spec, "output", outputs)
    elif same_name := [output for output in outputs if output.name == option]:
        selected = same_name[0]  # ?output=logits, of a graph with an output of that name
    else:
        selected = _only(spec, outputs)
    if not selected.type.startswith("tensor("):
        raise WeightsError(
            f"{spec.text}: the output {selected.name!r} is a {selected.type}: a dictionary for each picture, as "
            "scikit-learn's converter writes (ZipMap); export it with options={'zipmap': False}, or remove the ZipMap "
            "node, so that probabilities are an array"
        )
    if selected.type not in DTYPES and selected.type != "tensor(bfloat16)":
        raise WeightsError(
            f"{spec.text}: the output {selected.name!r} is {selected.type}: the label alone, without a number for each "
            f"label{_others(selected.name, outputs)}; export the scores, before ArgMax"
        )
    return selected


def _only(spec: Spec, outputs: Sequence[Any]) -> Any:
    first = outputs[0]
    candidates = [output for output in outputs if output.type in DTYPES and not _is_map(output)]
    if not candidates:  # refused, with the reason of the one that says most
        return next((output for output in outputs if not output.type.startswith("tensor(")), first)
    if first not in candidates and first.type in DTYPES:
        return first
    if len(candidates) > 1:
        texts = ", ".join(f"{output.name} {output.shape}" for output in candidates)
        raise SpecError(
            f"{spec.text}: {len(candidates)} outputs of the graph may be the labels' numbers: {texts}; choose one with "
            "?output_name="
        )
    return candidates[0]


def _is_map(output: Any) -> bool:
    """Returns whether an output has two axes or more beside the batch, such as a segmentation's or a detector's."""
    return sum(not isinstance(side, int) or side > 1 for side in output.shape[1:]) > 1


def _named(spec: Spec, option: str, among: Sequence[Any]) -> Any:
    names = {node.name: node for node in among}
    value = spec.options[option]
    if value not in names:
        suffix = f", and it is none of {', '.join(KINDS)}" if option == "output" else ""
        role = "output" if option == "output_name" else option
        raise SpecError(f"{spec.text}: the graph has no {role} {value!r}{suffix}; {nearest(value, names)}")
    return names[value]


def _others(name: str, outputs: Sequence[Any]) -> str:
    others = [other.name for other in outputs if other.name != name]
    return f"; choose another with ?output_name=: {', '.join(others)}" if others else ""


def not_of_labels(output: str, sides: Sequence[int], outputs: Sequence[Any]) -> str:
    shape = " × ".join(map(str, sides))
    alternatives = _others(output, outputs) or "; the graph has no other output"
    return f"the output {output!r} is {shape} for an image, and a classifier's is a number for each label{alternatives}"


# What the first nodes of an ONNX graph say about the pixels that it takes.


Line = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Slope and offset, per channel: what the graph makes of a pixel at first is slope · x + offset."""
_FORM = ("Identity", "Cast", "Transpose", "Reshape", "Unsqueeze", "Squeeze", "Resize", "Pad", "Slice", "Gather")
_OF_SHAPE = ("Shape", "Size")
"""Nodes that read how large a tensor is, and not its numbers; exports with a free batch begin with them."""
_LEAST_SLOPE = 2.0
"""A batch norm of numbers from 0 to 1 has at least this slope, as their standard deviation is at most a half."""
_SMALL = 64
"""Constants with more numbers are no normalisation."""
RANGES = {
    "none": (0.0, 255.0),
    "unit": (0.0, 1.0),
    "minus-one-one": (-1.0, 1.0),
    "imagenet": (-2.118, 2.64),
}
"""The numbers of an input by preprocessing, from black to white."""
_CONTRADICTS = 0.25
"""How far black or white may be from where the first nodes take them, as a part of the range."""
_SLACK = {"imagenet": 0.03}
"""Likewise for the range of a quantised input, else a tenth: other means and deviations come near to ImageNet's."""


@dataclass(frozen=True)
class Start:
    """The `preprocess` word that fits a graph's first nodes, and the nodes in words.

    `certain`: whether the nodes normalise pixels; a batch norm may also be learned on numbers that were normalised
    before.
    """

    word: str
    nodes: str
    certain: bool = True

    def contradicts(self, mean: Sequence[float], std: Sequence[float], scale: float) -> bool:
        """Returns whether pixels that are normalised so cannot be what the nodes take."""
        black, white = RANGES[self.word]
        lowest = min(-m / s for m, s in zip(mean, std, strict=True))
        highest = max((255 * scale - m) / s for m, s in zip(mean, std, strict=True))
        return self.certain and max(abs(lowest - black), abs(highest - white)) > _CONTRADICTS * (white - black)


def start_of(graph: Any, tensor: str) -> Start | None:
    """Returns what the nodes behind the input `tensor` say; None where they say nothing, or nothing certain."""
    constants = _constants(graph)
    slope, offset, passed = np.ones(1), np.zeros(1), list[str]()
    while len(users := [n for n in graph.node if tensor in n.input and n.op_type not in _OF_SHAPE]) == 1:
        (node,) = users
        if node.op_type == "QuantizeLinear":
            return _quantised(node, constants, slope, offset)
        line = (np.ones(1), np.zeros(1)) if node.op_type in _FORM and node.input[0] == tensor else None
        line = line or _affine(node, tensor, constants)
        if line is None or node.domain not in ("", "ai.onnx"):
            break
        if node.op_type not in _FORM:
            passed.append(node.op_type)
        try:
            slope, offset = line[0] * slope, line[0] * offset + line[1]
        except ValueError:  # constants of other shapes than one number a channel
            return None
        tensor = node.output[0]
    word = _word(slope, offset) if passed else None
    is_learned = "BatchNormalization" in passed
    if word is None or (word == "unit" and is_learned and (slope < _LEAST_SLOPE).any()):
        return None
    return Start(word, f"the graph begins with {', '.join(passed)}", word == "none" or not is_learned)


def _constants(graph: Any) -> dict[str, NDArray[np.float64]]:
    constants = {}
    tensors = [(tensor.name, tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant":
            tensors += [(node.output[0], attribute.t) for attribute in node.attribute if attribute.HasField("t")]
            for attribute in node.attribute:
                if attribute.name == "value_float":
                    constants[node.output[0]] = np.array([attribute.f])
    for name, tensor in tensors:
        if not tensor.external_data and np.prod(tensor.dims, dtype=float) <= _SMALL:
            array = numpy_helper.to_array(tensor)
            if array.dtype.kind in "fiu":
                constants[name] = np.asarray(array, np.float64).reshape(-1)
    return constants


def _affine(node: Any, tensor: str, constants: dict[str, NDArray[np.float64]]) -> Line | None:
    """Returns what an arithmetic node does; None for another node."""
    if node.op_type == "BatchNormalization" and node.input[0] == tensor:
        parameters = [constants.get(name) for name in node.input[1:5]]
        if any(values is None for values in parameters):
            return None
        scale, bias, mean, variance = (values for values in parameters if values is not None)
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        slope = scale / np.sqrt(variance + epsilon)
        return slope, bias - slope * mean
    if node.op_type not in ("Add", "Sub", "Mul", "Div") or len(node.input) != 2:
        return None
    first = node.input[0] == tensor
    values = constants.get(node.input[1] if first else node.input[0])
    if values is None or len(values) not in (1, 3) or not np.isfinite(values).all():
        return None
    ones, zeros = np.ones(1), np.zeros(1)
    if node.op_type == "Add":
        return ones, values
    if node.op_type == "Mul":
        return values, zeros
    if node.op_type == "Sub":
        return (ones, -values) if first else (-ones, values)
    return (1 / values, zeros) if first and (values != 0).all() else None


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
    """Returns the preprocessing by the range of numbers that an input is quantised to."""
    scale, zero = constants.get(node.input[1]), constants.get(node.input[2] if len(node.input) > 2 else "")
    if scale is None or len(scale) != 1 or (slope != 1).any() or (offset != 0).any():
        return None
    step, origin = float(scale[0]), float(zero[0]) if zero is not None else 0.0
    lows = [-128.0, 0.0]  # of int8 and uint8: the range is the same for its fitting origin
    for low in lows:
        lowest, highest = (low - origin) * step, (low + 255 - origin) * step
        for word, (black, white) in RANGES.items():
            slack = _SLACK.get(word, 0.1) * (white - black)
            if abs(lowest - black) <= slack and abs(highest - white) <= slack:
                return Start(word, f"the graph's input is quantised from {lowest:.3g} to {highest:.3g}")
    return None
