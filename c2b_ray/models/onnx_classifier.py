"""Classifiers from ONNX files, through onnxruntime.

    onnx:PATH[?option=value&...]

An ONNX file states the shape of its input and not the meaning of the numbers in it. Each setting is therefore an
option, else an entry of the file's own metadata (`metadata_props` of the same name), else the default of this table:

    mean, std    one number or three      ImageNet's (0.485, 0.456, 0.406; 0.229, 0.224, 0.225)
    scale        pixels are multiplied    1/255, before mean and std
    size         side in pixels           what the input's shape says, else 224
    resize       shorter side before it   the same: the crop trims the longer side alone
    layout       nchw or nhwc             where the input's shape has its 3
    labels       file of names            (metadata: a JSON list, or names with commas between), else label_0, …
    input, output                         the graph's first

Also: threads (2), batch (64; 256 on a GPU), device (cpu, cuda, cuda:1). Without device= it is the GPU that this process
may use (`devices`), where onnxruntime is built for GPUs. Pictures are resized bilinearly with antialiasing, as
torchvision does. A uint8 input gets the pixels as they are. Outputs that a Softmax or Sigmoid node gives, be it through
nodes that change only their form, are probabilities: their logarithm is taken. A graph computes in the precision of its
file. It knows neither what labels mean nor where images come from.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from c2b_ray.errors import ServiceError, SpecError, WeightsError, nearest
from c2b_ray.filesystems.documents import parse_json
from c2b_ray.models.catalog import Spec
from c2b_ray.models.onnx_session import CUDA, session_of
from c2b_ray.models.pixels.tensor import Preprocessing
from c2b_ray.models.spec_options import BATCH, GPU_BATCH, batches, label_names, numbers, positive
from c2b_ray.roles import Blocks, Description, Floats, Pixels, Shape
from c2b_ray.schemas import content_id

_SETTINGS = ("mean", "std", "scale", "size", "resize", "layout")
_OPTIONS = (*_SETTINGS, "labels", "input", "output", "threads", "batch", "device")
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(uint8)": "uint8",
}
_PROBABILITIES = frozenset({"Softmax", "Sigmoid"})
_OF_FORM = frozenset({"Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout"})
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SIDE = 224


@dataclass(frozen=True)
class Graph:
    """The file's description of its input and output; `sides` (height, width) and `fixed_batch` are None where free."""

    input: str
    output: str
    dtype: str
    channels_last: bool
    sides: tuple[int | None, int | None]
    fixed_batch: int | None
    probabilities: bool


class OnnxClassifier:
    """An ONNX graph with its preprocessing and label names; implements `roles.Classifier`."""

    def __init__(self, session: Any, graph: Graph, prepare: Preprocessing, batch: int) -> None:
        self._session = session
        self._graph = graph
        self._prepare = prepare
        self._batch = graph.fixed_batch or batch
        # Last: the number of labels is known once the graph has run.
        self.labels: tuple[str, ...] = ()
        self.revision = ""

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Logits, float32 (images, labels). `keys` are ignored. Raises ServiceError where the graph does not run."""
        return self._whole([self._rows(self._prepare(part)) for part in batches(images, self._batch)])

    @property
    def shape(self) -> Shape | None:
        """How pictures are prepared, where another process can do that (`roles.ShapedClassifier`)."""
        return self._prepare.of_shape

    def logits_of_shaped(self, images: Blocks) -> Floats:
        """Returns `logits` of pictures prepared by `shape`, uint8 (images, height, width, 3)."""
        return self._whole([self._rows(self._prepare.of_shaped(part)) for part in batches(images, self._batch)])

    def _whole(self, logits: list[Floats]) -> Floats:
        return np.concatenate(logits) if logits else np.zeros((0, len(self.labels)), np.float32)

    def _rows(self, rows: NDArray[Any]) -> Floats:
        count = len(rows)
        if self._graph.fixed_batch:
            # Rows of a batch do not see each other, so the last image repeated fills it up.
            rows = np.concatenate([rows, np.repeat(rows[-1:], self._graph.fixed_batch - len(rows), axis=0)])
        try:
            (answer,) = self._session.run([self._graph.output], {self._graph.input: rows})
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise ServiceError(f"the ONNX graph failed on {count} images: {error}") from error
        output: Floats = np.asarray(answer, dtype=np.float32)
        if len(output) != len(rows):
            raise ServiceError(f"the ONNX graph answered {len(rows)} images with shape {output.shape}")
        if sum(side > 1 for side in output.shape[1:]) > 1:
            raise ServiceError(_not_of_labels(self._graph.output, output.shape[1:], self._session.get_outputs()))
        output = output[:count].reshape(count, -1)
        if self._graph.probabilities:
            output = np.log(np.maximum(output, np.finfo(np.float32).tiny))  # NaN stays NaN
        return output


def load(spec: Spec) -> OnnxClassifier:
    """Loads the classifier of an `onnx:` spec; raises WeightsError where the file is no ONNX file, or takes no
    image."""
    spec.options_among(_OPTIONS)
    path = Path(spec.name)
    model = _model(path)
    session = session_of(spec, path)
    settled = _settled(spec, model)
    graph = _graph(settled, session.get_inputs(), session.get_outputs(), model)
    default = GPU_BATCH if session.get_providers()[0] == CUDA else BATCH
    prepare = _preprocessing(settled, graph)
    classifier = OnnxClassifier(session, graph, prepare, positive(spec, "batch", default))
    try:
        count = classifier.logits([np.zeros((prepare.height, prepare.width, 3), np.uint8)], [""]).shape[1]
    except ServiceError as error:
        raise WeightsError(f"{spec.text}: {error}") from error
    known = _known(settled, model, graph, count)
    classifier.labels, classifier.revision = known.labels, known.revision
    return classifier


def describe(spec: Spec) -> Description | None:
    """Returns the description from the file's input and output; None where it leaves the output's size open."""
    spec.options_among(_OPTIONS)
    model = _model(Path(spec.name))
    settled, weights = _settled(spec, model), {tensor.name for tensor in model.graph.initializer}
    inputs = [_declared(value) for value in model.graph.input if value.name not in weights]
    graph = _graph(settled, inputs, outputs := [_declared(value) for value in model.graph.output], model)
    declared = next(output.shape for output in outputs if output.name == graph.output)[1:]
    sizes = [size for size in declared if isinstance(size, int) and size > 0]
    if not sizes or len(sizes) < len(declared):
        return None
    if sum(size > 1 for size in sizes) > 1:
        raise WeightsError(f"{spec.text}: {_not_of_labels(graph.output, sizes, outputs)}")
    return _known(settled, model, graph, math.prod(sizes))


@dataclass(frozen=True)
class _Declared:
    """An input or output as the file declares it, in onnxruntime's terms."""

    name: str
    type: str
    shape: list[int | str]


def _declared(value: Any) -> _Declared:
    tensor = value.type.tensor_type
    kinds = {
        onnx.TensorProto.FLOAT: "tensor(float)",
        onnx.TensorProto.FLOAT16: "tensor(float16)",
        onnx.TensorProto.DOUBLE: "tensor(double)",
        onnx.TensorProto.UINT8: "tensor(uint8)",
    }
    shape = [side.dim_value if side.HasField("dim_value") else side.dim_param for side in tensor.shape.dim]
    return _Declared(value.name, kinds.get(tensor.elem_type, f"tensor of kind {tensor.elem_type}"), shape)


def _settled(spec: Spec, model: Any) -> Spec:
    """Returns the spec, completed from the file's metadata."""
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    settings = {key: metadata[key] for key in _SETTINGS if key in metadata} | spec.options
    return Spec(spec.text, spec.scheme, spec.name, settings)


def _known(settled: Spec, model: Any, graph: Graph, count: int) -> Description:
    """Returns the description of a graph with `count` outputs."""
    path, metadata = Path(settled.name), {entry.key: entry.value for entry in model.metadata_props}
    labels = label_names(settled, count, _names(metadata.get("labels", "")))
    external = {e.value for t in model.graph.initializer for e in t.external_data if e.key == "location"}
    content = [_mapped(file) for file in (path, *(path.parent / name for name in sorted(external)))]
    prepare = _preprocessing(settled, graph)
    # A graph of probabilities is read in another way than one of logits, and so are its answers.
    read_as = ["probabilities"] if graph.probabilities else []
    revision = content_id("onnx", *content, repr(prepare), graph.output, labels, *read_as)
    return Description(revision, labels, shape=prepare.of_shape)


def _mapped(path: Path) -> memoryview:
    """Maps a file into memory, so bytes are read when they are used."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _model(path: Path) -> Any:
    """Reads the file by onnx, without weights in other files."""
    try:
        model = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # protobuf's own, whose implementation varies
        raise WeightsError(f"{path}: not an ONNX file, or a damaged one") from error
    if not model.graph.node:
        raise WeightsError(f"{path}: not an ONNX file: it holds no graph")
    return model


def _graph(spec: Spec, inputs: Sequence[Any], outputs: Sequence[Any], model: Any) -> Graph:
    taken = _chosen(spec, "input", inputs)
    output = _chosen(spec, "output", outputs)
    shape = [side if isinstance(side, int) and side > 0 else None for side in taken.shape]
    dtype = _DTYPES.get(taken.type)
    layouts = [name for name, axis in (("nchw", 1), ("nhwc", 3)) if len(shape) == 4 and shape[axis] in (3, None)]
    layout = spec.options.get("layout", layouts[0] if layouts else "").lower()
    if dtype is None or not layouts or len(inputs) > 1:
        listed = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs)
        raise WeightsError(f"{spec.text}: expected one image input, N×3×H×W or N×H×W×3; the graph takes {listed}")
    if layout not in layouts:
        raise SpecError(
            f"{spec.text}: layout={layout!r} does not fit the input {taken.shape}; {nearest(layout, layouts)}"
        )
    last = layout == "nhwc"
    sides = (shape[1], shape[2]) if last else (shape[2], shape[3])
    return Graph(taken.name, output.name, dtype, last, sides, shape[0], _are_probabilities(output.name, model))


def _are_probabilities(output: str, model: Any) -> bool:
    """Tells whether a Softmax or Sigmoid node gives the output, be it through nodes that change only its form."""
    makers = {name: node for node in model.graph.node for name in node.output}
    while (node := makers.get(output)) is not None and node.op_type in _OF_FORM:
        output = node.input[0]
    return node is not None and node.op_type in _PROBABILITIES


def _not_of_labels(output: str, sides: Sequence[int], outputs: Sequence[Any]) -> str:
    others = [other.name for other in outputs if other.name != output]
    shape = " × ".join(map(str, sides))
    choose = f"choose another with ?output=: {', '.join(others)}" if others else "the graph has no other output"
    return f"the output {output!r} is {shape} for an image, and a classifier's is a number for each label; {choose}"


def _chosen(spec: Spec, option: str, among: Sequence[Any]) -> Any:
    names = {node.name: node for node in among}
    wanted = spec.options.get(option, among[0].name)
    if wanted not in names:
        raise SpecError(f"{spec.text}: the graph has no {option} {wanted!r}; {nearest(wanted, names)}")
    return names[wanted]


def _preprocessing(spec: Spec, graph: Graph) -> Preprocessing:
    side = positive(spec, "size", SIDE)
    height, width = (fixed or side for fixed in graph.sides)
    if "size" in spec.options and (height, width) != (side, side):
        raise SpecError(f"{spec.text}: size={side}, but the graph takes {height} × {width}")
    resize = positive(spec, "resize", min(height, width))
    if resize < min(height, width):
        raise SpecError(f"{spec.text}: resize={resize} is smaller than the {height} × {width} that the graph takes")
    scale = 1 / 255
    if "scale" in spec.options:
        try:
            scale = float(spec.options["scale"])
        except ValueError:
            scale = math.nan
        if not math.isfinite(scale):
            raise SpecError(f"{spec.text}: scale={spec.options['scale']!r} is not a number")
    mean, std = numbers(spec, "mean") or MEAN, numbers(spec, "std") or STD
    return Preprocessing(height, width, resize, tuple(mean), tuple(std), scale, graph.channels_last, graph.dtype)


def _names(text: str) -> list[str] | None:
    """Parses label names from a file's metadata: a JSON list, or names separated by commas or line ends."""
    if not text.strip():
        return None
    try:
        names = parse_json(text)
    except ValueError:
        names = text.splitlines() if "\n" in text.strip() else text.split(",")
    return [str(name).strip() for name in names] if isinstance(names, list) else None
