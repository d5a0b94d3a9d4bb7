"""An ONNX file as its bytes describe it: the model, its content, and which input and output a classifier uses."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models.catalog import Spec
from c2b_ray.models.output_kinds import KINDS, Hint

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
    """The file's description of its input and output; `sides` (height, width) and `fixed_batch` are None where free."""

    input: str
    output: str
    dtype: str
    channels_last: bool
    sides: tuple[int | None, int | None]
    fixed_batch: int | None
    hint: Hint


def read_model(path: Path) -> Any:
    """Reads the file by onnx, without weights in other files. Raises WeightsError where it cannot be used, or where
    these files are gone."""
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf's own, whose implementation varies
        raise WeightsError(f"{path}: not an ONNX file, or a damaged one") from error
    if not model.graph.node:
        raise WeightsError(f"{path}: not an ONNX file: it holds no graph")
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
    taken = _named(spec, "input", inputs) if "input" in spec.options else inputs[0]
    output = _output(spec, outputs)
    shape = [side if isinstance(side, int) and side > 0 else None for side in taken.shape]
    dtype = DTYPES.get(taken.type)
    layouts = [name for name, axis in (("nchw", 1), ("nhwc", 3)) if len(shape) == 4 and shape[axis] in (3, None)]
    if dtype is None or not layouts or len(inputs) > 1:
        listed = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs)
        raise WeightsError(f"{spec.text}: expected one image input, N×3×H×W or N×H×W×3; the graph takes {listed}")
    if layout is None and len(layouts) > 1 and shape[1] == shape[3]:
        raise SpecError(
            f"{spec.text}: the input {taken.shape} may be N×3×H×W or N×H×W×3; state it with ?layout=nchw or nhwc"
        )
    known = [name for name, axis in (("nchw", 1), ("nhwc", 3)) if len(shape) == 4 and shape[axis] == 3]
    layout = layout.lower() if layout is not None else (known or layouts)[0]
    if layout not in layouts:
        raise SpecError(
            f"{spec.text}: layout={layout!r} does not fit the input {taken.shape}; {nearest(layout, layouts)}"
        )
    last = layout == "nhwc"
    sides = (shape[1], shape[2]) if last else (shape[2], shape[3])
    return Graph(taken.name, output.name, dtype, last, sides, shape[0], _hint(output.name, model))


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
    stated = spec.options.get("output", "")
    if "output_name" in spec.options:
        chosen = _named(spec, "output_name", outputs)
    elif stated and not is_kind(spec):
        chosen = _named(spec, "output", outputs)
    elif named := [output for output in outputs if output.name == stated]:
        chosen = named[0]  # ?output=logits, of a graph with an output of that name
    else:
        chosen = _only(spec, outputs)
    if not chosen.type.startswith("tensor("):
        raise WeightsError(
            f"{spec.text}: the output {chosen.name!r} is a {chosen.type}: a dictionary for each picture, as "
            "scikit-learn's converter writes (ZipMap); export it with options={'zipmap': False}, or remove the ZipMap "
            "node, so that probabilities are an array"
        )
    if chosen.type not in DTYPES and chosen.type != "tensor(bfloat16)":
        raise WeightsError(
            f"{spec.text}: the output {chosen.name!r} is {chosen.type}: the label alone, without a number for each "
            f"label{_others(chosen.name, outputs)}; export the scores, before ArgMax"
        )
    return chosen


def _only(spec: Spec, outputs: Sequence[Any]) -> Any:
    first = outputs[0]
    able = [output for output in outputs if output.type in DTYPES and not _is_map(output)]
    if not able:  # refused, with the reason of the one that says most
        return next((output for output in outputs if not output.type.startswith("tensor(")), first)
    if first not in able and first.type in DTYPES:
        return first
    if len(able) > 1:
        listed = ", ".join(f"{output.name} {output.shape}" for output in able)
        raise SpecError(
            f"{spec.text}: {len(able)} outputs of the graph may be the labels' numbers: {listed}; choose one with "
            "?output_name="
        )
    return able[0]


def _is_map(output: Any) -> bool:
    """Returns whether an output has two axes or more beside the batch, such as a segmentation's or a detector's."""
    return sum(not isinstance(side, int) or side > 1 for side in output.shape[1:]) > 1


def _named(spec: Spec, option: str, among: Sequence[Any]) -> Any:
    names = {node.name: node for node in among}
    wanted = spec.options[option]
    if wanted not in names:
        also = f", and it is none of {', '.join(KINDS)}" if option == "output" else ""
        what = "output" if option == "output_name" else option
        raise SpecError(f"{spec.text}: the graph has no {what} {wanted!r}{also}; {nearest(wanted, names)}")
    return names[wanted]


def _others(name: str, outputs: Sequence[Any]) -> str:
    others = [other.name for other in outputs if other.name != name]
    return f"; choose another with ?output_name=: {', '.join(others)}" if others else ""


def not_of_labels(output: str, sides: Sequence[int], outputs: Sequence[Any]) -> str:
    shape = " × ".join(map(str, sides))
    others = _others(output, outputs) or "; the graph has no other output"
    return f"the output {output!r} is {shape} for an image, and a classifier's is a number for each label{others}"
