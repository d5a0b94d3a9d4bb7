"""Small ONNX files, each with one thing that files of strangers have: a defect, or something only they state.

All answer six times the mean of each channel of the input tensor, for the labels red, green and blue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIDE = 8
node = helper.make_node


def value(name: str, shape: list[Any] | None, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def save(
    path: Path,
    nodes: list[Any] | None = None,
    *,
    start: list[Any] | None = None,
    shape: list[Any] | None = None,
    kind: int = TensorProto.FLOAT,
    more_inputs: list[Any] | None = None,
    outputs: list[Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Saves a graph: `start` from "x" to "s" before the mean of each channel, `nodes` from "six" to "out" after it."""
    shape = shape or ["n", 3, SIDE, SIDE]
    axes = [2, 3] if shape[1] in (3, "c") else [1, 2]
    body = [
        *(start or [node("Cast", ["x"], ["s"], to=TensorProto.FLOAT)]),
        node("ReduceMean", ["s", "axes"], ["means"], keepdims=0),
        node("Mul", ["means", "factor"], ["six"]),
        *(nodes or [node("Identity", ["six"], ["out"])]),
    ]
    arrays = {"axes": np.array(axes), "factor": np.float32(6), **(constants or {})}
    graph = helper.make_graph(
        body,
        "g",
        [value("x", shape, kind), *(more_inputs or [])],
        outputs or [value("out", None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    helper.set_model_props(model, dict(metadata or {}))
    onnx.save(model, path)
    return f"onnx:{path}"


def _zipmap(path: Path) -> str:
    maps = onnx.ValueInfoProto()
    maps.name = "maps"
    kind = maps.type.sequence_type.elem_type.map_type
    kind.key_type, kind.value_type.tensor_type.elem_type = TensorProto.INT64, TensorProto.FLOAT
    nodes = [
        node("Softmax", ["six"], ["p"], axis=1),
        node("ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]),
        node("ArgMax", ["six"], ["label"], axis=1, keepdims=0),
    ]
    return save(path, nodes, outputs=[value("label", ["n"], TensorProto.INT64), maps])


def _external(path: Path) -> str:
    spec = save(path, constants={"unused": np.zeros(999, np.float32)})
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=64)
    (path.parent / "w.bin").unlink()
    return spec


def _two(path: Path, second: str = "Softmax", width: int = 3) -> str:
    nodes = [node("Identity", ["six"], ["out"]), node(second, ["six"], ["also"])]
    return save(path, nodes, outputs=[value("out", ["n", 3]), value("also", ["n", width])])


def _random(path: Path) -> str:
    noise = [node("RandomNormalLike", ["six"], ["noise"]), node("Add", ["six", "noise"], ["out"])]
    return save(path, noise)


def _seen(path: Path, strength: float) -> str:
    nodes = [
        node("ReduceMean", ["six", "first"], ["common"], keepdims=1),
        node("Mul", ["common", "strength"], ["part"]),
        node("Sub", ["six", "part"], ["out"]),
    ]
    return save(path, nodes, constants={"first": np.array([0]), "strength": np.float32(strength)})


REFUSED: dict[str, tuple[Callable[[Path], str], str]] = {
    "nothing states the normalisation": (
        lambda path: save(path).removesuffix("?preprocess=unit"),
        r"preprocess=imagenet .*unit .*minus-one-one .*none .*\?mean=&std=",
    ),
    "free size": (lambda path: save(path, shape=["n", 3, "h", "w"]) + "?preprocess=unit", r"such as \?size=224"),
    "free channels": (
        lambda path: save(path, shape=["n", "c", "h", "w"]) + "?preprocess=unit&size=8",
        r"\?layout=nchw or nhwc",
    ),
    "mean without std": (lambda path: save(path) + "?mean=0.5", "mean without std leaves"),
    "mean of bytes": (lambda path: save(path) + "?mean=123.675&std=58.395", r"mean=123\.675 .* give mean=0\.485"),
    "mean of shares for bytes": (lambda path: save(path) + "?mean=0.5&std=0.25&scale=1", "scale= leaves them from 0"),
    "stated for bytes": (
        lambda path: save(path, kind=TensorProto.UINT8) + "?preprocess=imagenet",
        "whole numbers from 0 to 255",
    ),
    "ZipMap": (lambda path: _zipmap(path) + "?preprocess=unit&output_name=maps", "'zipmap': False"),
    "ZipMap, unnamed": (lambda path: _zipmap(path) + "?preprocess=unit", "'zipmap': False"),
    "label alone": (lambda path: _zipmap(path) + "?preprocess=unit&output_name=label", "the label alone"),
    "external data gone": (lambda path: _external(path) + "?preprocess=unit", r"w\.bin, which is not beside it"),
    "two of one width": (
        lambda path: _two(path) + "?preprocess=unit",
        r"out .*, also .*choose one with \?output_name=",
    ),
    "an output that is not there": (
        lambda path: _two(path) + "?preprocess=unit&output=logitz",
        "no output 'logitz', and it is none of logits, probabilities",
    ),
    "training mode, dropout": (lambda path: _random(path) + "?preprocess=unit", r"draws at random: .*model\.eval\(\)"),
    "training mode, batch norm": (
        lambda path: _seen(path, 1) + "?preprocess=unit",
        r"otherwise in a batch .*\?batch=1",
    ),
    "another input": (
        lambda path: save(path, more_inputs=[value("training", [], TensorProto.BOOL)]) + "?preprocess=unit",
        "expected one image input.*training tensor",
    ),
    "names from 1": (
        lambda path: save(path, metadata={"names": "{1: 'red', 2: 'green', 3: 'blue'}"}) + "?preprocess=unit",
        r"`names` begins at 1.*\?labels=PATH",
    ),
    "too many names": (
        lambda path: save(path, metadata={"names": "['red', 'green', 'blue', 'grey']"}) + "?preprocess=unit",
        "4 label names for 3 outputs",
    ),
}
