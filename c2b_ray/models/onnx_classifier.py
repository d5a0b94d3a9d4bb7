"""Classifiers from ONNX files, through onnxruntime.

    onnx:PATH[?option=value&...]

An ONNX file states the shape of its input and not the meaning of the numbers in it. Each setting is therefore an
option, else read from the file's metadata, from an exporter's config beside it, or from the graph (`onnx_settings`
lists them in their order); what nothing states, and would change the answers, is asked for:

    preprocess       imagenet, unit (0 to 1), minus-one-one or none (0 to 255): mean, std and scale at once
    mean, std        one number or three  of pixels from 0 to 1; asked for, like preprocess
    scale            pixels are multiplied by it before mean and std; 1/255 with these
    size             side in pixels, or height,width, where the input leaves it free: asked for
    resize           shorter side before the centre is cut out; else the input's size, which is assumed
    squash           true: pictures are squashed to the size instead
    interpolation    bilinear (assumed) or bicubic, with antialiasing, as torchvision does
    channels         rgb or bgr
    layout           nchw or nhwc; where the input's shape has its 3
    head             softmax or sigmoid (`heads`); else by the graph's last node
    labels           file of names; else the file's (`spec_options.names_in`), else label_0, …
    input            the graph's only one
    output_name      the graph's only one that can be numbers of labels; asked for where there are two
    output           logits, probabilities, log-probabilities or percent; else by what the graph gives (`output_kinds`)

Also: threads (2), batch (64; 256 on a GPU), device (cpu, cuda, cuda:1). Without device= it is the GPU that this process
may use (`devices`), where onnxruntime is built for GPUs. A uint8 input gets the pixels as they are. Before it is used
the graph is tried on fixed pictures: it must answer alike each time and in any batch; one that holds a batch of one is
given pictures one by one. A graph computes in the precision of its file. It knows neither what labels mean nor where
images come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from c2b_ray.errors import ServiceError, SpecError, WeightsError
from c2b_ray.models import devices
from c2b_ray.models.catalog import Spec, description_of
from c2b_ray.models.heads import Outputs, outputs_of, stated_head
from c2b_ray.models.onnx_graph import Graph, bytes_of, content_of, graph_of, is_kind, not_of_labels, read_model
from c2b_ray.models.onnx_settings import facts_of, layout_of, preprocessing, settings_of
from c2b_ray.models.output_kinds import OutputKind, judged, kind_named, trial_pictures
from c2b_ray.models.pixels.resize import Preprocessing
from c2b_ray.models.spec_options import BATCH, GPU_BATCH, batches, label_fact, names_in, options_of, positive
from c2b_ray.roles import Blocks, Description, Floats, Head, ModelFact, Pixels, Shape
from c2b_ray.tables import content_id

# Tries an ONNX graph on the trial pictures: whether it answers alike each time and in any batch, and with what kind
# of numbers.


ALONE = 3
"""So many of the last pictures are also answered one by one."""
LIKE, OTHER = 1e-2, 0.05
"""How far an answer in a batch may be from the answer to the picture alone, as a part of how far answers differ at all:
what half precision in another order makes; and from where on it is another answer."""

Rows = Callable[[Sequence[Pixels]], Floats]


@dataclass(frozen=True)
class Trial:
    """The numbers on the trial pictures, float32 (pictures, labels); `alone`: why pictures are answered one by one,
    or ""."""

    rows: Floats
    alone: str = ""


def tried(answer: Rows, batch: int, size: tuple[int, int], spec: str) -> Trial:
    """Returns the numbers of a graph on the trial pictures.

    `answer` takes up to `batch` pictures at once. Raises WeightsError where no picture is answered, where
    answers change from one time to the next, or where pictures of one batch change each other's answers.
    """
    pictures = trial_pictures(*size)
    try:
        single = np.concatenate([answer([picture]) for picture in pictures[-ALONE:]])
        repeated = answer([pictures[-1]])
    except ServiceError as error:
        raise WeightsError(f"{spec}: {error}") from error
    finite = single[np.isfinite(single).all(axis=1)]
    span = max(float(np.ptp(finite, axis=0).max()), 1e-6 * float(np.abs(finite).max())) if len(finite) else 0.0
    if _apart(single[-1:], repeated, span) > LIKE:
        raise WeightsError(
            f"{spec}: the graph gives two answers to one picture, so it draws at random: it was exported in training "
            "mode; export it after model.eval()"
        )
    if batch == 1:
        return Trial(np.concatenate([*(answer([picture]) for picture in pictures[:-ALONE]), single]))
    try:
        parts = [answer(pictures[start : start + batch]) for start in range(0, len(pictures), batch)]
        rows = np.concatenate(parts)
    except (ServiceError, ValueError):  # ValueError: batches of other widths
        rows = single[:0]
    if rows.shape == (len(pictures), single.shape[1]):
        deviation = _apart(rows[-ALONE:], single, span)
        if deviation <= LIKE:
            return Trial(rows)
        if deviation > OTHER:
            raise WeightsError(
                f"{spec}: the graph answers a picture otherwise in a batch of {min(batch, len(pictures))} than alone, "
                "so pictures change each other's answers: it was exported in training mode (model.eval() before the "
                "export mends it), or ?batch=1 states that pictures are answered alone"
            )
        reason = "answers in a batch differ a little"
    else:
        reason = "the graph holds a batch of one"
    return Trial(np.concatenate([*(answer([picture]) for picture in pictures[:-ALONE]), single]), reason)


def _apart(left: Floats, right: Floats, span: float) -> float:
    """Returns the largest difference as a part of `span`; infinite where one has a number and the other none."""
    if left.shape != right.shape or (np.isnan(left) != np.isnan(right)).any():
        return float("inf")
    with np.errstate(invalid="ignore"):
        differences = np.where(left == right, 0, np.abs(left - right))
    largest = float(np.nanmax(differences, initial=0))
    return largest / span if span else float("inf") if largest else 0.0


# A session of onnxruntime for a graph: its threads, and the device on which it actually runs.


THREADS = 2
CUDA = "CUDAExecutionProvider"
DRIVER = Path("/proc/driver/nvidia/gpus")
"""A folder with an entry for each GPU; onnxruntime itself only tells what it was built for."""


def session_of(spec: Spec, path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = positive(spec, "threads", THREADS)
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # its warnings about unused initialisers go to stderr otherwise
    device = device_of(spec)
    provider = {"cpu": "CPUExecutionProvider", "cuda": CUDA}.get(device.partition(":")[0])
    if provider not in onnxruntime.get_available_providers():
        raise SpecError(f"{spec.text}: this onnxruntime has no device {device!r}; device=cpu always works")
    # float32 is float32: by default CUDA would round its factors to 10 bits.
    settings = {"device_id": device.partition(":")[2] or "0", "use_tf32": "0"} if provider == CUDA else {}
    if provider == CUDA:
        onnxruntime.preload_dlls()  # libraries of CUDA that came with pip, which the dynamic linker does not find
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=[(provider, settings)])
    except Exception as error:  # onnxruntime's exceptions share no base class
        raise WeightsError(f"{path}: onnxruntime cannot load it: {error}") from error
    if session.get_providers()[0] != provider:  # onnxruntime takes the CPU instead, and says so on stderr alone
        raise ServiceError(
            f"{spec.text}: onnxruntime does not start on {device}: CUDA's libraries or the driver are absent, or of "
            "another version (pip install 'onnxruntime-gpu[cuda,cudnn]'); device=cpu always works"
        )
    return session


def device_of(spec: Spec) -> str:
    """Returns `cpu` or `cuda:N`: the spec's device, else the GPU that this process may use where onnxruntime is built
    for GPUs."""
    built = has_cuda()
    return devices.device(spec.options.get("device"), spec.text, len(list(DRIVER.glob("*"))) if built else 0)


def has_cuda() -> bool:
    """Returns whether onnxruntime is built for GPUs."""
    return CUDA in onnxruntime.get_available_providers()


_OPTIONS = options_of("classifier", "onnx")
LARGEST_DESCRIBED = 512 * 2**20
"""The most bytes of a file that is run for its description; a larger one is described where it is used."""


class OnnxClassifier:
    """An ONNX graph with its preprocessing and label names; implements `roles.Classifier`."""

    def __init__(self, session: Any, graph: Graph, prepare: Preprocessing, batch: int) -> None:
        self._session = session
        self._graph = graph
        self._prepare = prepare
        self.batch = graph.fixed_batch or (1 if graph.mixes else batch)
        # Last: what the numbers are, and how many labels, is known once the graph has run.
        self.kind = OutputKind("logits", "")
        self.outputs = Outputs(())
        self.revision = ""
        self.facts: tuple[ModelFact, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        return self.outputs.labels

    @property
    def head(self) -> Head:
        return self.outputs.head

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Logits, float32 (images, labels). `keys` are ignored. Raises ServiceError where the graph does not run, or
        gives numbers of another kind than on the trial pictures."""
        return self._whole([self.rows(part) for part in batches(images, self.batch)])

    @property
    def shape(self) -> Shape | None:
        """How pictures are prepared, where another process can do that (`roles.ShapedClassifier`)."""
        return self._prepare.of_shape

    def logits_of_shaped(self, images: Blocks) -> Floats:
        """Returns `logits` of pictures prepared by `shape`, uint8 (images, height, width, 3)."""
        parts = batches(images, self.batch)
        return self._whole([self._answered(self._prepare.of_shaped(part)) for part in parts])

    def _whole(self, rows: list[Floats]) -> Floats:
        logits = [self.outputs.logits(self.kind.as_logits(part)) for part in rows]
        return np.concatenate(logits) if logits else np.zeros((0, len(self.labels)), np.float32)

    def rows(self, images: Sequence[Pixels]) -> Floats:
        """The graph's own numbers, float32 (images, labels)."""
        return self._answered(self._prepare(images))

    def _answered(self, rows: NDArray[Any]) -> Floats:
        count = len(rows)
        if self._graph.fixed_batch:
            # Rows of a batch do not see each other (`tried`), so the last image repeated fills it up.
            rows = np.concatenate([rows, np.repeat(rows[-1:], self._graph.fixed_batch - len(rows), axis=0)])
        try:
            (answer,) = self._session.run([self._graph.output], {self._graph.input: rows})
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise ServiceError(f"the ONNX graph failed on {count} images: {error}") from error
        output: Floats = np.asarray(answer, dtype=np.float32)
        if len(rows) == 1 and output.ndim == 1:
            output = output[None]  # a graph without an axis for the batch
        if output.ndim == 0 or len(output) != len(rows):
            raise ServiceError(f"the ONNX graph answered {len(rows)} images with shape {output.shape}")
        if sum(side > 1 for side in output.shape[1:]) > 1:
            raise ServiceError(not_of_labels(self._graph.output, output.shape[1:], self._session.get_outputs()))
        return output[:count].reshape(count, -1)


def load(spec: Spec) -> OnnxClassifier:
    """Loads the classifier of an `onnx:` spec; raises WeightsError where the file is no ONNX file, takes no image or
    gives no number for each label, and SpecError where something has to be stated."""
    spec.options_among(_OPTIONS)
    path = Path(spec.name)
    return _loaded(spec, path, read_model(path))


def describe(spec: Spec) -> Description | None:
    """Returns the description of the loaded classifier, run on the CPU; None for a file that is too large, or that
    only a GPU runs."""
    spec.options_among(_OPTIONS)
    path = Path(spec.name)
    model = read_model(path)
    if bytes_of(model, path) > LARGEST_DESCRIBED:
        return None
    try:
        return description_of(_loaded(replace(spec, options={**spec.options, "device": "cpu"}), path, model))
    except WeightsError:
        if has_cuda():
            return None
        raise


def _loaded(spec: Spec, path: Path, model: onnx.ModelProto) -> OnnxClassifier:
    session = session_of(spec, path)
    outputs = session.get_outputs()
    graph = graph_of(spec, session.get_inputs(), outputs, model, layout_of(spec, model))
    settings = settings_of(spec, model, graph.input, graph.dtype, graph.sides)
    prepare = preprocessing(spec, settings, graph)
    default = GPU_BATCH if session.get_providers()[0] == CUDA else BATCH
    classifier = OnnxClassifier(session, graph, prepare, positive(spec, "batch", default))
    trial = tried(classifier.rows, classifier.batch, (prepare.height, prepare.width), spec.text)
    if graph.mixes and not graph.fixed_batch:
        trial = replace(trial, alone="the graph rounds by the range of a whole batch (DynamicQuantizeLinear)")
    if trial.alone:
        classifier.batch = 1
    kind = kind_named(spec.options["output"], spec.text) if is_kind(spec) else None
    classifier.kind = judged(trial.rows, spec.text, kind, graph.hint, head=stated_head(spec))
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    names, key = names_in(metadata, str(path)) if "labels" not in spec.options else (None, "")
    source = f"the file's metadata ({key})"
    if names is None and settings.labels is not None:
        names, source = settings.labels
    read: Head | None = "sigmoid" if classifier.kind.scores else None
    classifier.outputs = outputs_of(spec, trial.rows.shape[1], names, read, "the graph's last node, Sigmoid")
    content = content_of(model, path)
    # A graph of probabilities is read in another way than one of logits, and so are its answers.
    read_as = [classifier.kind.kind] if classifier.kind.kind in ("probabilities", "percent") else []
    settings_used = [*read_as, *prepare.unusual, *classifier.outputs.identity]
    classifier.revision = content_id("onnx", *content, repr(prepare), graph.output, classifier.labels, *settings_used)
    classifier.facts = (
        label_fact(spec, classifier.labels, source if names else None),
        *classifier.outputs.facts,
        *facts_of(prepare, settings, graph),
        *_output_facts(spec, classifier.kind, graph, trial, len(outputs)),
    )
    return classifier


def _output_facts(spec: Spec, kind: OutputKind, graph: Graph, trial: Trial, outputs: int) -> list[ModelFact]:
    source = "the spec" if {"output", "output_name"} & spec.options.keys() and not is_kind(spec) else "its type"
    return [
        ModelFact("output", kind.kind, f"trial pictures: {kind.evidence}", option="output"),
        *([ModelFact("output name", graph.output, source, option="output_name")] if outputs > 1 else []),
        *([ModelFact("batch", "pictures are answered one by one", trial.alone, option="batch")] if trial.alone else []),
    ]
