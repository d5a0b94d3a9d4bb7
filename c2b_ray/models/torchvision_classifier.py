"""Classifiers from torchvision, with torchvision's own preprocessing, pixel for pixel.

    torchvision:resnet50                                its DEFAULT weights, from the model hub
    torchvision:resnet50?weights=IMAGENET1K_V1          others of its published weights
    torchvision:mobilenet_v2?weights=PATH.safetensors   weights of one's own, named as torchvision names them

Options: labels (file of names), head (`models.heads`), device, batch, precision (fp32, tf32, bf16, fp16), compile
(true, false), tensors and unused (`tensor_names`), and overrides of the preprocessing. Without them it is that of the
named weights; for weights of one's own, that of the architecture's DEFAULT weights, which is an assumption and is named
as one.

    mean, std       one number or three: normalisation, after pixels were divided by 255
    size            the centre crop's side; the shorter side before it is resized in the default's proportion to it
    resize, crop    each of the two alone

Published weights are pickles with a checksum: they are read by torch's restricted unpickler, which builds tensors and
nothing else. Pickles of one's own are refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote, urlencode

import torch
import torchvision
from safetensors.torch import save
from torch import nn

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models import tensor_names, weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.heads import outputs_of, refuse_other_heads
from c2b_ray.models.pixels.preprocess import shape_of
from c2b_ray.models.spec_options import label_fact, normalisation_words, numbers, options_of, positive
from c2b_ray.models.tensor_names import TensorKind, TensorNames, check_fit, kinds_of, naming, selection_of
from c2b_ray.models.torch_runtime import TorchClassifier, as_computed, runtime_of, with_complement
from c2b_ray.models.training import Trainable
from c2b_ray.models.weights import built
from c2b_ray.roles import Description, ModelFact
from c2b_ray.tables import content_id

_PREPROCESSING = ("mean", "std", "size", "resize", "crop")
_OPTIONS = options_of("classifier", "torchvision")
_AUXILIARY = ("googlenet", "inception_v3")
"""Architectures with auxiliary heads, which serve training alone and exist where a file has them."""
_IMAGENET = 1000
_FILE, _LABELS = "model.safetensors", "labels.json"
_HEAD = re.compile(r"(fc|head|heads\.head|classifier\.?(\d*))\.weight")
"""The last layer's weight by its name; of a numbered sequence, the one with the highest number."""


def load(spec: Spec) -> TorchClassifier:
    """Loads the classifier of a `torchvision:` spec. Raises SpecError for wrong names, WeightsError for weights that
    cannot be used."""
    spec.options_among(_OPTIONS)
    runtime = runtime_of(spec)
    weights_choice = _chosen(spec)
    module = with_complement(_loaded(spec, weights_choice), _count(weights_choice))
    description = _known(spec, weights_choice)
    return TorchClassifier(
        module,
        weights_choice.transform,
        description.labels,
        description.revision,
        runtime,
        description.facts,
        description.head,
    )


def describe(spec: Spec) -> Description:
    """Returns the description; published weights are identified by their names, others by their file's hash and
    header."""
    spec.options_among(_OPTIONS)
    return _known(spec, _chosen(spec))


def trainable(spec: Spec) -> Trainable:
    """Returns the module of a `torchvision:` spec for training; its weights and label names are saved."""
    spec.options_among(_OPTIONS)
    weights_choice = _chosen(spec)
    description = _known(spec, weights_choice)
    refuse_other_heads(spec, description, _count(weights_choice))

    def build(loaded: bool) -> nn.Module:
        if loaded:
            return _loaded(spec, weights_choice)
        return _empty(spec, len(description.labels), auxiliary=False, random_weights=True)

    def reload(folder: str) -> str:
        rewritten = ("weights", "labels", *tensor_names.OPTIONS)
        options = {name: value for name, value in spec.options.items() if name not in rewritten}
        options = {"weights": f"{folder}/{_FILE}", "labels": f"{folder}/{_LABELS}", **options}
        return f"torchvision:{spec.name}?{urlencode(options, safe='/', quote_via=quote)}"

    labels = json.dumps(list(description.labels), indent=1).encode() + b"\n"
    return Trainable(
        spec.text,
        description,
        weights_choice.transform,
        build,
        lambda module: {_FILE: save({k: v.contiguous() for k, v in module.state_dict().items()}), _LABELS: labels},
        reload,
    )


@dataclass(frozen=True)
class _Own:
    """A file of weights, how its tensors are named, its number of outputs and whether it has auxiliary heads."""

    file: Path
    names: TensorNames
    outputs: int
    auxiliary: bool


@dataclass(frozen=True)
class _Chosen:
    """The weights of a spec: published weights with their preprocessing, or weights of one's own."""

    published: Any
    transform: Any
    own: _Own | None


def _chosen(spec: Spec) -> _Chosen:
    names = torchvision.models.list_models(module=torchvision.models)
    if spec.name not in names:
        raise SpecError(f"{spec.text}: torchvision has no classifier {spec.name!r}; {nearest(spec.name, names)}")
    enum = torchvision.models.get_model_weights(spec.name)
    name = spec.options.get("weights", "DEFAULT")
    is_named = name in enum.__members__
    if not is_named and not Path(name).suffix and not Path(name).exists():
        raise SpecError(f"{spec.text}: no weights {name!r}; {nearest(name, enum.__members__)} or PATH.safetensors")
    published = enum[name] if is_named else enum.DEFAULT
    return _Chosen(published, _preprocessing(spec, published), None if is_named else _own(spec, weights.whole(name)))


def _own(spec: Spec, file: Path) -> _Own:
    """Reads a file's header, and checks that its names and shapes are those of the architecture."""
    kinds = weights.read_kinds(file)
    names = naming(_outline(spec, _IMAGENET, True), kinds, file, selection_of(spec))
    kinds_of_module = names.of(kinds)
    outputs = _classes({name: kind.shape for name, kind in kinds_of_module.items()}, file)
    auxiliary = any(name.startswith(("aux", "AuxLogits")) for name in kinds_of_module)
    check_fit(_outline(spec, outputs, auxiliary), kinds_of_module, file, spec.name, rest=names.rest)
    return _Own(file, names, outputs, auxiliary)


def _outline(spec: Spec, outputs: int, auxiliary: bool) -> dict[str, TensorKind]:
    try:
        with torch.device("meta"):
            module = _empty(spec, outputs, auxiliary)
    except RuntimeError:  # RegNets compute their widths with tensors, which needs memory
        module = _empty(spec, outputs, auxiliary)
    return kinds_of(module.state_dict())


def _empty(spec: Spec, outputs: int, auxiliary: bool, random_weights: bool = False) -> nn.Module:
    """Returns the module without a file's weights. `random_weights`: whether its random ones are meant to be used."""
    # Left to themselves, the architectures with auxiliary heads warn.
    arguments = {"init_weights": random_weights, "aux_logits": auxiliary} if spec.name in _AUXILIARY else {}
    module: nn.Module = torchvision.models.get_model(spec.name, weights=None, num_classes=outputs, **arguments)
    return module


def _known(spec: Spec, weights_choice: _Chosen) -> Description:
    published, own_weights = weights_choice.published, weights_choice.own
    count = _count(weights_choice)
    # The last digits of a published file's address are its checksum.
    identity = published.url if own_weights is None else weights.file_revision(own_weights.file)
    outputs = outputs_of(spec, count, published.meta["categories"] if count == _IMAGENET else None)
    labels, selected = outputs.labels, [*selection_of(spec).identity, *outputs.identity]
    revision = content_id("torchvision", spec.name, identity, repr(weights_choice.transform), labels, *selected)
    facts = (*_facts(spec, weights_choice, labels), *outputs.facts)
    shape = shape_of(weights_choice.transform)
    return as_computed(Description(revision, labels, shape=shape, head=outputs.head, facts=facts), spec)


def _count(chosen: _Chosen) -> int:
    """Returns the number of outputs."""
    return len(chosen.published.meta["categories"]) if chosen.own is None else chosen.own.outputs


def _facts(spec: Spec, weights_choice: _Chosen, labels: tuple[str, ...]) -> tuple[ModelFact, ...]:
    transform, own_weights = weights_choice.transform, weights_choice.own
    weights_name = f"torchvision's {weights_choice.published}"
    sizes = "size" in spec.options or {"resize", "crop"} <= set(spec.options)
    scaled = f"{transform.crop_size[0]} of {transform.resize_size[0]}, {transform.interpolation.value}"

    def fact(name: str, value: str, is_stated: bool, option: str) -> ModelFact:
        if is_stated:
            options = [f"?{o}={spec.options[o]}" for o in _PREPROCESSING if o in spec.options]
            return ModelFact(name, value, " ".join(options))
        return ModelFact(name, value, weights_name, own_weights is not None, option)

    source = f"{weights_name}, for the number of outputs" if len(labels) == _IMAGENET else None
    return (
        *(own_weights.names.facts(own_weights.file) if own_weights is not None else ()),
        ModelFact("architecture", spec.name, spec.text.partition("?")[0]),
        label_fact(spec, labels, source if own_weights is not None else weights_name, assumed=own_weights is not None),
        fact("input size", scaled, sizes, "size"),
        fact(
            "normalisation",
            normalisation_words(transform.mean, transform.std),
            {"mean", "std"} <= set(spec.options),
            "mean",
        ),
    )


def _preprocessing(spec: Spec, published: Any) -> Any:
    """Returns torchvision's transform from a picture to a tensor, with the spec's overrides."""
    transform = published.transforms()
    if "size" in spec.options:
        crop = positive(spec, "size", 1)
        transform.resize_size = [round(crop * transform.resize_size[0] / transform.crop_size[0])]
        transform.crop_size = [crop]
    transform.resize_size = [positive(spec, "resize", transform.resize_size[0])]
    transform.crop_size = [positive(spec, "crop", transform.crop_size[0])]
    transform.mean = numbers(spec, "mean") or transform.mean
    transform.std = numbers(spec, "std") or transform.std
    return transform


def _loaded(spec: Spec, weights_choice: _Chosen) -> nn.Module:
    """Returns the module with the weights of the choice."""
    own_weights = weights_choice.own
    if own_weights is None:
        return _published(spec, weights_choice.published)
    tensors = weights.read_safetensors(own_weights.file)
    module: nn.Module = built(partial(_empty, spec, own_weights.outputs, own_weights.auxiliary))
    named = {name: tensors[source] for name, source in own_weights.names.names.items()}
    weights.load_into(module, named, own_weights.file)
    return module


def _published(spec: Spec, published: Any) -> nn.Module:
    try:
        with _restricted_unpickling():
            module: nn.Module = torchvision.models.get_model(spec.name, weights=published, progress=False)
        return module
    except (URLError, TimeoutError, ConnectionError) as error:
        raise SpecError(
            f"{spec.text}: {published.url} cannot be downloaded ({error}); put it in torch's cache beforehand, or give "
            "weights of your own with ?weights=PATH.safetensors"
        ) from error
    except Exception as error:  # a damaged pickle is answered with whatever exception the damage causes
        lines = " ".join(str(error).split())
        raise WeightsError(f"{spec.text}: {published.url} as downloaded cannot be used: {lines[:300]}") from error


@contextmanager
def _restricted_unpickling() -> Iterator[None]:
    """Restricts torch.load within torchvision's builders to tensors, which the builders do not do themselves."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    previous = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if previous is None:
            del os.environ[name]
        else:
            os.environ[name] = previous


def _classes(shapes: Mapping[str, tuple[int, ...]], file: Path) -> int:
    """Returns the number of classes of the last layer in a file."""
    layers = sorted((int(match[2] or 0), name) for name in shapes if (match := _HEAD.fullmatch(name)))
    if not layers or not shapes[layers[-1][1]]:
        raise WeightsError(
            f"{file}: no tensor named as torchvision names the last layer (fc.weight, classifier.1.weight), but "
            f"{tensor_names.last_layers(shapes)}: a backbone without its head, or weights of another library; give "
            f"those of the whole classifier. {tensor_names.OWN_MODULE}"
        )
    return shapes[layers[-1][1]][0]
