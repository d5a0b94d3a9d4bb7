"""ONNX graphs that end in one to three odd nodes after a head, and what a classifier made of them answers.

The oracle is onnxruntime: where the graph's own rows are probabilities, a classifier's must be the same, or it must
refuse the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from c2b_ray.errors import InputError
from c2b_ray.models import catalog

SIDE, PICTURES = 8, 6
Outcome = Literal["right", "refused", "wrong"]


@dataclass
class Graph:
    """A graph under construction, whose last value has `labels` numbers for each picture."""

    labels: int
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    last: str = "x"

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node behind `inputs`, else behind the last one; returns its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs) or [self.last], [name], **attributes))
        self.last = name
        return name

    def constant(self, value: Any, kind: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def by(self, kind: str, value: Any) -> str:
        return self.add(kind, self.last, self.constant(value))

    def whole(self, *numbers: int) -> str:
        return self.constant(numbers, np.int64)


def _written(graph: Graph) -> None:
    largest = graph.add("ReduceMax", graph.last, graph.whole(1), keepdims=1)
    power = graph.add("Exp", graph.add("Sub", graph.nodes[-1].input[0], largest))
    graph.add("Div", power, graph.add("ReduceSum", power, graph.whole(1), keepdims=1))


def _average(graph: Graph) -> None:
    start = graph.last
    one = graph.add("Softmax", start, axis=1)
    graph.last = start
    graph.by("Mul", 0.5)
    graph.add("Add", one, graph.add("Softmax", axis=1))
    graph.by("Mul", 0.5)


def _half(graph: Graph, apply: Callable[[], object]) -> None:
    graph.add("Cast", to=TensorProto.FLOAT16)
    apply()
    graph.add("Cast", to=TensorProto.FLOAT)


def _rounded(graph: Graph, digits: int) -> None:
    graph.by("Mul", 10.0**digits)
    graph.add("Round")
    graph.by("Div", 10.0**digits)


def _flip(graph: Graph) -> None:
    graph.add("Transpose", perm=[1, 0])
    graph.add("Transpose", perm=[1, 0])


def _shape(graph: Graph) -> None:
    graph.add("Reshape", graph.last, graph.whole(-1, graph.labels, 1, 1))
    graph.add("Flatten", axis=1)


def _halves(graph: Graph) -> None:
    middle, start = graph.labels // 2, graph.last
    first = graph.add("Slice", start, graph.whole(0), graph.whole(middle), graph.whole(1))
    rest = graph.add("Slice", start, graph.whole(middle), graph.whole(graph.labels), graph.whole(1))
    graph.add("Concat", first, rest, axis=1)


def _part(graph: Graph) -> None:
    graph.labels = max(2, graph.labels // 2)
    graph.add("Slice", graph.last, graph.whole(0), graph.whole(graph.labels), graph.whole(1))


def _twice(graph: Graph) -> None:
    graph.labels *= 2
    graph.add("Concat", graph.last, graph.last, axis=1)


def _turned(graph: Graph) -> None:
    graph.add("Gather", graph.last, graph.whole(*reversed(range(graph.labels))), axis=1)


def _complement(graph: Graph) -> None:
    graph.labels *= 2
    start = graph.last
    graph.add("Concat", start, graph.add("Sub", graph.constant(1.0), start), axis=1)


def _likeliest(graph: Graph) -> None:
    graph.add("ArgMax", axis=1, keepdims=0)


def _one_hot(graph: Graph) -> None:
    start = graph.last
    best = graph.add("ReduceMax", start, graph.whole(1), keepdims=1)
    graph.add("Cast", graph.add("Equal", start, best), to=TensorProto.FLOAT)


Step = Callable[[Graph], object]
HEADS: dict[str, Step] = {
    "logits": lambda graph: graph.add("Identity"),
    "softmax": lambda graph: graph.add("Softmax", axis=1),
    "log-softmax": lambda graph: graph.add("LogSoftmax", axis=1),
    "exp of log-softmax": lambda graph: (graph.add("LogSoftmax", axis=1), graph.add("Exp")),
    "softmax written out": _written,
    "average of two": _average,
    "softmax in half": lambda graph: _half(graph, lambda: graph.add("Softmax", axis=1)),
    "sigmoid": lambda graph: graph.add("Sigmoid"),
    "one-hot": _one_hot,
}
TAILS: dict[str, Step] = {
    "Mul 1": lambda graph: graph.by("Mul", 1.0),
    "Add 0": lambda graph: graph.by("Add", 0.0),
    "Sub 0": lambda graph: graph.by("Sub", 0.0),
    "Div 1": lambda graph: graph.by("Div", 1.0),
    "Identity": lambda graph: graph.add("Identity"),
    "Clip 0 1": lambda graph: graph.add("Clip", graph.last, graph.constant(0.0), graph.constant(1.0)),
    "Clip 1e-7": lambda graph: graph.add("Clip", graph.last, graph.constant(1e-7), graph.constant(1.0)),
    "Clip .05": lambda graph: graph.add("Clip", graph.last, graph.constant(0.05), graph.constant(0.95)),
    "half": lambda graph: _half(graph, lambda: graph.add("Identity")),
    "round 3": lambda graph: _rounded(graph, 3),
    "round 2": lambda graph: _rounded(graph, 2),
    "transposes": _flip,
    "Transpose": lambda graph: graph.add("Transpose", perm=[1, 0]),
    "reshapes": _shape,
    "Unsqueeze": lambda graph: (graph.add("Unsqueeze", graph.last, graph.whole(2)), graph.add("Flatten", axis=1)),
    "halves": _halves,
    "Slice": _part,
    "Concat": _twice,
    "Gather": _turned,
    "1 - p": _complement,
    "percent": lambda graph: graph.by("Mul", 100.0),
    "Mul 2": lambda graph: graph.by("Mul", 2.0),
    "Div 8": lambda graph: graph.by("Div", 8.0),
    "Add 1": lambda graph: graph.by("Add", 1.0),
    "Neg": lambda graph: graph.add("Neg"),
    "Exp": lambda graph: graph.add("Exp"),
    "Log": lambda graph: graph.add("Log"),
    "Sqrt": lambda graph: graph.add("Sqrt"),
    "Relu": lambda graph: graph.add("Relu"),
    "Sigmoid": lambda graph: graph.add("Sigmoid"),
    "Tanh": lambda graph: graph.add("Tanh"),
    "Softmax": lambda graph: graph.add("Softmax", axis=1),
    "Softmax of the batch": lambda graph: graph.add("Softmax", axis=0),
    "ArgMax": _likeliest,
}


@dataclass(frozen=True)
class Recipe:
    """`temperature`: what logits are multiplied by."""

    head: str
    tail: tuple[str, ...]
    labels: int = 5
    temperature: float = 10.0
    seed: int = 0


def write(recipe: Recipe, path: Path) -> None:
    """Writes a graph: a matrix of the means of each channel and of its square, the head, the tail."""
    random = np.random.default_rng(recipe.seed)
    graph = Graph(recipe.labels)
    means = graph.add("Flatten", graph.add("GlobalAveragePool", "x"))
    graph.add("Concat", means, graph.add("Mul", means, means), axis=1)
    graph.add("MatMul", graph.last, graph.constant(random.normal(size=(6, recipe.labels)) * recipe.temperature))
    graph.by("Add", random.normal(size=recipe.labels))
    for step in (HEADS[recipe.head], *(TAILS[name] for name in recipe.tail)):
        step(graph)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])]
    kind = TensorProto.INT64 if "ArgMax" in recipe.tail[-1:] else TensorProto.FLOAT
    made = helper.make_graph(
        graph.nodes, "g", inputs, [helper.make_tensor_value_info(graph.last, kind, None)], graph.constants
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def outcome(recipe: Recipe, path: Path) -> tuple[Outcome, str]:
    """Writes the graph and compares the classifier's answers with onnxruntime's; returns the reason too."""
    write(recipe, path)
    random = np.random.default_rng(recipe.seed + 1)
    pictures = [random.integers(0, 256, (SIDE, SIDE, 3), np.uint8) for _ in range(PICTURES // 2)]
    pictures += [np.full((SIDE, SIDE, 3), random.integers(0, 256, 3), np.uint8) for _ in range(PICTURES // 2)]
    try:
        classifier = catalog.classifier(f"onnx:{path}?preprocess=unit")
        found = classifier.logits(pictures, [""] * PICTURES)
    except InputError as error:
        return "refused", str(error)
    rows = _own(path, pictures)
    if rows.shape != found.shape:
        return "wrong", f"{found.shape} for {rows.shape}"
    return _compared_scores(rows, found) if classifier.head == "sigmoid" else _compared(rows, found)


def _own(path: Path, pictures: Sequence[np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path))
    tensor = np.stack(pictures).transpose(0, 3, 1, 2).astype(np.float32) / 255
    (rows,) = session.run(None, {"x": tensor})
    return np.asarray(rows, np.float64).reshape(len(rows), -1)


def _compared_scores(rows: np.ndarray, found: np.ndarray) -> tuple[Outcome, str]:
    """Compares scores of labels on their own: a graph that ends in a Sigmoid gives their probabilities."""
    answered = ~np.isnan(rows).any(axis=1)
    if (np.isnan(found).any(axis=1) == answered).any():
        return "wrong", "a number where the graph has none, or the reverse"
    off = np.abs(rows[answered] - 1 / (1 + np.exp(-found[answered].astype(np.float64)))).max(initial=0)
    return ("right", "scores") if off <= 1e-4 else ("wrong", f"scores differ by {off:.3g}")


def _compared(rows: np.ndarray, found: np.ndarray) -> tuple[Outcome, str]:
    answered = ~np.isnan(rows).any(axis=1)
    if (np.isnan(found).any(axis=1) == answered).any():
        return "wrong", "a number where the graph has none, or the reverse"
    if not answered.any():
        return "right", "no number"
    rows, found = rows[answered], found[answered]
    shares = np.exp(found.astype(np.float64) - found.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    given = np.where(rows == rows.max(axis=1, keepdims=True), shares, 0).max(axis=1)
    if (given < shares.max(axis=1) - 1e-6).any():
        return "wrong", "another label"
    with np.errstate(over="ignore"):  # no logarithm of a probability is that large
        raised = np.exp(rows)
    for name, own in (("probabilities", rows), ("percent", rows / 100), ("log-probabilities", raised)):
        if own.min() < -1e-6 or np.abs(own.sum(axis=1) - 1).max() > 5e-3:
            continue
        off = np.abs(own / own.sum(axis=1, keepdims=True) - shares).max()
        return ("right", name) if off <= 1e-4 else ("wrong", f"{name} differ by {off:.3g}")
    return "right", "no distribution: the label alone"
