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


def normalising(path: Path, **options: Any) -> str:
    """A graph with a free batch, as `torch.export` writes it: its size is read, and pixels from 0 to 1 normalised."""
    nodes = [
        node("Shape", ["x"], ["size"]),
        node("Gather", ["x", "bgr"], ["c"], axis=1),
        node("Sub", ["c", "mean"], ["d"]),
        node("Shape", ["d"], ["size of d"]),
        node("Div", ["d", "std"], ["s"]),
    ]
    mean, std = np.array([0.406, 0.456, 0.485]), np.array([0.225, 0.224, 0.229])
    constants = {"bgr": np.array([2, 1, 0]), "mean": mean.reshape(1, 3, 1, 1), "std": std.reshape(1, 3, 1, 1)}
    return save(
        path, start=nodes, constants={k: v.astype("f4" if v.dtype == float else v.dtype) for k, v in constants.items()},
        **options,
    )  # fmt: skip


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
    "normalised twice": (
        lambda path: normalising(path) + "?preprocess=imagenet",
        r"begins with Sub, Div, so it takes numbers from 0 to 1; write \?preprocess=unit\..*mean= and std= in numbers",
    ),
    "normalised twice, by the metadata": (
        lambda path: normalising(path, metadata={"mean": "[0.485, 0.456, 0.406]", "std": "[0.229, 0.224, 0.225]"}),
        r"what the file's metadata says does not suit the graph.*write \?preprocess=unit",
    ),
    "whole numbers of 32 bits": (
        lambda path: save(path, kind=TensorProto.INT32) + "?preprocess=none",
        r"of float32, float16, float64, uint8; the graph takes x tensor\(int32\)",
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
