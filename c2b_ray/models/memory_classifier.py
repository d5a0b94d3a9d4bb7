"""Classifiers that a program holds in memory: a torch module, or a callable that answers for a batch of pictures.

    in-memory:REVISION     a model that this process holds (`hold`); no other process can load it

A module is used on its device and in its dtype; it is in evaluation mode while it answers, and in its former mode
afterwards. A callable gets a list of uint8 arrays (height, width, 3) and returns an array (pictures, labels). Both
answer with logits or with probabilities: which is known from what they give on trial pictures (`output_kinds`), before
the audit, or from `InMemory(output=...)`.

The revision of a module is a hash of its tensors, its classes' code and its preprocessing, so a run resumes with the
same model and starts over with another one. A function cannot be hashed: a callable, or a module with a function for
its preprocessing, gets a new revision each time, and its run resumes only if you name a `revision`. It knows neither
the meaning of labels nor the source of pictures.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import isfunction
from threading import Lock
from types import CodeType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import nn

from c2b_ray.errors import ConfigError, ServiceError, SpecError
from c2b_ray.models.batched_run import Runtime, run
from c2b_ray.models.catalog import Spec, description_of
from c2b_ray.models.heads import HEADS, Outputs
from c2b_ray.models.output_kinds import KINDS, Kind, OutputKind, judged, trial_pictures
from c2b_ray.models.pixels.preprocess import OnArrays, Preparation, Transform, batched
from c2b_ray.models.spec_options import BATCH, batches, label_fact
from c2b_ray.roles import Blocks, Description, Floats, Head, ModelFact, Pixels, Shape
from c2b_ray.tables import content_id

# Identifies a torch module in memory by its content: tensors, structure, and the code of its classes.


ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""What an object's `repr` says of its place in memory, which differs from process to process."""
# Their classes are identified by name, so upgrading these libraries does not change a model's revision.
_LIBRARIES = ("torch", "torchvision", "timm", "transformers", "open_clip")


def content_of(module: nn.Module) -> str:
    """Returns 20 hexadecimal digits that change with a module's tensors, its structure and its classes' code."""
    digest = hashlib.blake2b(digest_size=10)
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(f"{name} {ADDRESS.sub('', repr(tensor))}".encode())
    digest.update(ADDRESS.sub("", repr(module)).encode())
    kinds = {type(part) for part in module.modules() if type(part).__module__.partition(".")[0] not in _LIBRARIES}
    for kind in sorted(kinds, key=lambda kind: (kind.__module__, kind.__qualname__)):
        digest.update(f"{kind.__module__}.{kind.__qualname__}".encode())
        for name, method in sorted(vars(kind).items()):
            if isfunction(method):
                digest.update(f"{name} {_content_of_code(method.__code__)}".encode())
    return digest.hexdigest()


def _content_of_code(code: CodeType) -> str:
    """Describes a function's code: its instructions, names and constants, and not its position in a file."""
    constants = (
        _content_of_code(value)
        if isinstance(value, CodeType)
        else repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value)
        for value in code.co_consts
    )
    return f"{code.co_code.hex()} {code.co_names} {code.co_freevars} {' '.join(constants)}"


# Names the picture on which a model fails, by asking about each picture of the failed batch alone.


LONGEST = 500  # characters of the message of what a model raises


def failure_of(
    answer: Callable[[list[Pixels]], Any], images: Sequence[Pixels], keys: Sequence[str], error: Exception
) -> str:
    """Returns which of the pictures the model fails on and why, and what to do; `error` is what it raised for all of
    them together."""
    if len(images) < 2:
        return f"failed on {len(images)} pictures: {_in_words(error)}"
    failed: list[tuple[str, Exception]] = []
    for key, image in zip(keys, images, strict=True):
        try:
            answer([image])
        except Exception as single_error:  # whatever a stranger's code raises
            failed.append((key, single_error))
    if not failed:
        return f"failed on {len(images)} pictures together, and on none of them alone: {_in_words(error)}"
    if len(failed) == len(images):
        return f"failed on {len(images)} pictures: {_in_words(error)}"
    key, first = failed[0]
    return (
        f"failed on {len(failed)} of {len(images)} pictures, the first of them {key}: {_in_words(first)}. Answer with "
        "a row of NaN for a picture that the model cannot take: it counts as an error, and the audit goes on"
    )


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:LONGEST]}{'…' if len(str(error)) > LONGEST else ''}"


Answering = Callable[[list[Pixels]], Any]
Model = nn.Module | Answering
SCHEME = "in-memory"
SIDE = 64
"""The height and width of the pictures on which a model is tried."""


@dataclass(frozen=True)
class Preprocess:
    """Preprocessing of a picture for a module: its shorter side is resized, its centre cropped, and pixels are divided
    by 255 and normalised.

    `size`: the crop's side or (height, width). `resize`: the length of the shorter side, by default the crop's. `mean`
    and `std`: per channel, by default ImageNet's.
    """

    size: int | tuple[int, int]
    resize: int | None = None
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        sides = self.crop
        if min(sides) < 1 or (self.resize is not None and self.resize < min(sides)):
            raise ConfigError(
                "preprocess", f"size {self.size}, resize {self.resize}: the crop must fit the resized side"
            )
        if any(np.shape(numbers) != (3,) for numbers in (self.mean, self.std)) or min(self.std) <= 0:
            raise ConfigError("preprocess", "mean and std are three numbers each, of red, green and blue, std above 0")

    @property
    def crop(self) -> tuple[int, int]:
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def on_arrays(self) -> OnArrays:
        return OnArrays(self.resize or min(self.crop), "bilinear", self.crop, tuple(self.mean), tuple(self.std))


@dataclass(frozen=True)
class InMemory:
    """A classifier that this program holds, for `c2b_ray.audit(config, classifier=...)`.

    `model`: a torch module from a batch of tensors to logits, or a callable from a list of uint8 arrays (height, width,
    3) to logits or probabilities. `labels`: a name for each output. `preprocess`: for a module alone, a `Preprocess`,
    or a transform from a PIL image to a tensor (channels, height, width) as torchvision and timm make them; a timm
    model brings its own. `revision`: identifies the model where no hash can. `batch`: pictures per batch.
    `output`: "logits", "probabilities", "log-probabilities" or "percent", where what it gives on trial pictures leaves
    that open. `head`: "sigmoid" where each output is the score of a label on its own, so that a picture may show
    several labels or none. A model with one output has one label, whose score it is: without a head, "not dog" then
    stands beside "dog".
    """

    model: Model
    labels: Sequence[str]
    preprocess: Preprocess | Transform | None = None
    revision: str | None = None
    batch: int = field(default=BATCH)
    output: Kind | None = None
    head: Head | None = None

    def __post_init__(self) -> None:
        if isinstance(self.labels, str) or not all(isinstance(label, str) for label in self.labels) or not self.labels:
            raise ConfigError("labels", "expected a list with the name of each of the model's outputs")
        if not callable(self.model):
            raise ConfigError("classifier", f"expected a torch module or a callable, not a {type(self.model).__name__}")
        if not isinstance(self.model, nn.Module) and self.preprocess is not None:
            raise ConfigError("preprocess", "is for a torch module; a callable gets the pictures as they are")
        if self.output is not None and self.output not in KINDS:
            raise ConfigError("output", f"{self.output!r} is none of {', '.join(KINDS)}")
        if self.head is not None and self.head not in HEADS:
            raise ConfigError("head", f"{self.head!r} is none of {', '.join(HEADS)}")
        if self.batch < 1:
            raise ConfigError("batch", f"{self.batch}: at least 1")


class MemoryClassifier:
    """A model in memory with its label names; implements `roles.Classifier`. Only one thread at a time runs the
    model."""

    def __init__(self, source: InMemory, name: str = "the model in memory") -> None:
        self._outputs = _outputs(source)
        self.labels, self.head = self._outputs.labels, self._outputs.head
        self._batch, self._name, self._one_at_a_time = source.batch, name, Lock()
        self.module: nn.Module | None = None
        self.preparation: Preparation | None = None
        self.shape: Shape | None = None  # where another process can prepare pictures (`roles.ShapedClassifier`)
        if isinstance(source.model, nn.Module):
            prepare, described = _preparing(source.model, source.preprocess)
            self._answer = _of_module(source.model, prepare)
            if isinstance(prepare, OnArrays) and any(part.is_cuda for part in source.model.parameters()):
                # On a CPU there is little to gain, and what the module fails on is named by its key.
                self.shape, self._answer_shaped = prepare.shape, _of_module(source.model, prepare.prepared)
            self.module, self.preparation = source.model, prepare
            content = None if described is None else (content_of(source.model), described)
        else:
            self._answer, content = source.model, None
        identity = source.revision or content or uuid.uuid4().hex
        output_kind = [] if source.output is None else [source.output]
        also = [self.head] if self.head != "softmax" else []
        self.revision = content_id(SCHEME, identity, list(self.labels), *output_kind, *also)
        self._stated = source.output
        self.kind = OutputKind(source.output or "logits", "as stated")
        self.facts: tuple[ModelFact, ...] = (label_fact(None, self.labels, "the program that holds the model"),)

    @property
    def spec(self) -> str:
        return f"{SCHEME}:{self.revision}"

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Logits, float32 (images, labels); a NaN of the model stays one. `keys` name pictures in messages.

        ServiceError where the model fails, or answers with another number of rows or labels.
        """
        return self._in_batches(images, keys, self._answer)

    def logits_of_shaped(self, images: Blocks) -> Floats:
        """Returns `logits` of pictures prepared by `shape`, uint8 (images, height, width, 3)."""
        keys = [f"number {row + 1} of {len(images)}" for row in range(len(images))]
        return self._in_batches(list(images), keys, self._answer_shaped)

    def _in_batches(self, images: Sequence[Pixels], keys: Sequence[str], answer: Answering) -> Floats:
        pairs = zip(batches(images, self._batch), batches(keys, self._batch), strict=True)
        rows = [self._rows(batch, names, answer) for batch, names in pairs]
        answers = [self._outputs.logits(self.kind.as_logits(batch)) for batch in rows]
        return np.concatenate(answers) if answers else np.zeros((0, len(self.labels)), np.float32)

    def try_out(self) -> None:
        """Finds out, on trial pictures, whether the model answers, and with what kind of numbers.

        Raises ServiceError where it does not answer, SpecError where its numbers are of no kind that can be used.
        """
        pictures = trial_pictures(SIDE, SIDE)
        try:
            parts = [
                self._rows(part, ["a trial picture"] * len(part), self._answer)
                for part in batches(pictures, self._batch)
            ]
        except ServiceError:
            parts = list(self._answered(pictures))
            if not parts:
                raise
        rows = np.concatenate(parts)
        how, head = "c2b_ray.InMemory(…, output=) ", self._outputs.head
        stated: Head | None = head if head == "sigmoid" else None
        self.kind = judged(rows, self._name, self._stated, how=how, assuming=True, head=stated)
        fact = ModelFact("output", self.kind.kind, f"trial pictures: {self.kind.evidence}", self.kind.assumed, "output")
        self.facts = (self.facts[0], *self._outputs.facts, fact)

    def _answered(self, pictures: Sequence[Pixels]) -> Iterator[Floats]:
        """Yields the rows of those pictures that the model answers alone: it may fail on an odd one."""
        for picture in pictures:
            with suppress(ServiceError):
                yield self._rows([picture], ["a trial picture"], self._answer)

    def _rows(self, images: Sequence[Pixels], keys: Sequence[str], answer: Answering) -> Floats:
        array = partial(self._array, answer)
        try:
            logits = array(images)
        except Exception as error:  # whatever a stranger's code raises
            raise ServiceError(f"{self._name} {failure_of(array, images, keys, error)}") from error
        if self._outputs.single:
            logits = logits.reshape(len(logits), -1)
        width = 1 if self._outputs.single else len(self.labels)
        if logits.shape != (len(images), width):
            raise ServiceError(
                f"{self._name} answered {len(images)} pictures with an array of shape {logits.shape}; its "
                f"{'one label makes' if width == 1 else f'{width} labels make'} ({len(images)}, {width})"
            )
        return logits

    def _array(self, answer: Answering, images: Sequence[Pixels]) -> Floats:
        with self._one_at_a_time:
            logits = answer([np.array(image) for image in images])  # copies, which the model may write to
        return np.asarray(logits.detach().float().cpu() if isinstance(logits, torch.Tensor) else logits, np.float32)


_HELD: WeakValueDictionary[str, MemoryClassifier] = WeakValueDictionary()


def hold(
    models: Model | InMemory | Mapping[str, Model | InMemory], labels: Sequence[str] | None = None
) -> dict[str, MemoryClassifier]:
    """Registers models and returns classifiers by name; the spec of each loads it in this process for as long as the
    caller keeps it.

    A single model is named after its class or function; several are a mapping, name → model. `labels` apply to every
    model that is no `InMemory`. Raises ConfigError where a model does not return a row of numbers for each trial
    picture, or where these are of no kind that can be used.
    """
    if isinstance(models, Mapping) and not models:
        raise ConfigError("classifier", "expected a model, or a mapping name → model with at least one")
    classifiers: dict[str, MemoryClassifier] = {}
    for name, model in (models if isinstance(models, Mapping) else {_name_of(models): models}).items():
        source = _with_labels(model, labels)
        classifier = MemoryClassifier(source, name)
        try:
            classifier.try_out()
        except ServiceError as error:
            explanation = (
                f"before the audit it is tried on small pictures, {SIDE} × {SIDE}, as (height, width, 3) uint8"
            )
            raise ConfigError("classifier", f"{error}; {explanation}") from error
        except SpecError as error:
            raise ConfigError("classifier", str(error)) from error
        classifiers[name] = _HELD[classifier.spec] = classifier
    return classifiers


def _outputs(source: InMemory) -> Outputs:
    """Returns the labels of a model in memory: of one output, which has one name, two."""
    labels = tuple(source.labels)
    if len(labels) == 1 and source.head != "sigmoid":
        if source.head == "softmax":
            raise ConfigError("head", "softmax, but the model has one label, whose softmax is 1 for every picture")
        value = f"one sigmoid: the score of {labels[0]!r}, against 'not {labels[0]}'"
        fact = ModelFact("head", value, "the program that holds the model")
        return Outputs((f"not {labels[0]}", labels[0]), "softmax", True, fact)
    if source.head != "sigmoid":
        return Outputs(labels)
    return Outputs(labels, "sigmoid", fact=ModelFact("head", "a sigmoid for each label", "the program that holds it"))


def _name_of(model: Model | InMemory) -> str:
    inner = model.model if isinstance(model, InMemory) else model
    name = type(inner).__name__ if isinstance(inner, nn.Module) else getattr(inner, "__name__", type(inner).__name__)
    return str(name) if name != "<lambda>" else "lambda"


def _with_labels(model: Model | InMemory, labels: Sequence[str] | None) -> InMemory:
    if not isinstance(model, InMemory):
        return InMemory(model, labels or ())
    if labels is not None:
        raise ConfigError("labels", "an InMemory has labels of its own; leave these out")
    return model


def load(spec: Spec) -> MemoryClassifier:
    """Returns the classifier of an `in-memory:` spec; raises SpecError where this process does not hold it."""
    spec.options_among(())
    classifier = _HELD.get(spec.text)
    if classifier is None:
        raise SpecError(
            f"{spec.text}: a model that was in another program's memory, or is gone from this one's; pass it again: "
            "c2b_ray.audit(config, classifier=model, labels=[...])"
        )
    return classifier


def describe(spec: Spec) -> Description:
    return description_of(load(spec))


def _preparing(module: nn.Module, preprocess: Preprocess | Transform | None) -> tuple[Preparation, str | None]:
    """Returns the preprocessing of pictures for a module, and its description; None where no description
    identifies it."""
    if isinstance(preprocess, Preprocess):
        return preprocess.on_arrays(), repr(preprocess)
    if preprocess is None:
        preprocess = _of_timm(module)
    described = repr(preprocess)
    return batched(preprocess), None if ADDRESS.search(described) else described


def _of_timm(module: nn.Module) -> Transform:
    """Returns the preprocessing that comes with a timm model."""
    if not hasattr(module, "pretrained_cfg"):
        raise ConfigError(
            "preprocess",
            f"{type(module).__name__} does not say how pictures become its input; write classifier=c2b_ray.InMemory("
            "model, labels, preprocess=...) with c2b_ray.Preprocess(size=224), which normalises as for ImageNet unless "
            "it has mean and std, or with the transform that the model was evaluated with",
        )
    from timm.data.config import resolve_model_data_config
    from timm.data.transforms_factory import create_transform

    transform: Transform = create_transform(**resolve_model_data_config(module), is_training=False)  # type: ignore[no-untyped-call]
    return transform


def _of_module(module: nn.Module, prepare: Preparation) -> Answering:
    parameter = next(iter(module.parameters()), torch.zeros(0))
    dtype = parameter.dtype if parameter.is_floating_point() else torch.float32

    def answer(images: list[Pixels]) -> Floats:
        with evaluating(module):
            return run(module, images, prepare, Runtime(parameter.device, len(images), dtype))

    return answer


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Runs the block with every part of the module in evaluation mode, then restores the former modes."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True
