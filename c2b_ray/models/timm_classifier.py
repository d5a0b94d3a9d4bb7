"""Classifiers from timm, with timm's own preprocessing, pixel for pixel.

    timm:resnet50.a1_in1k                       weights from the model hub
    timm:resnet50?weights=PATH.safetensors      weights of one's own, named as timm names them
    timm:PATH, timm:local-dir:PATH              a directory with config.json and model.safetensors, as timm saves it
    timm:hf-hub:org/name                        the same two files from a hub repository

Options: weights, labels (file of names), device, batch, precision (fp32, tf32, bf16, fp16), compile (true,
false), tensors and unused (`tensor_names`), and overrides of the preprocessing:

    mean, std       one number or three: normalisation, after pixels were divided by 255
    size            the side of the square that the model sees
    crop_pct, crop_mode, interpolation   as timm means them
    use_train_size  true for the size of training; by default the test size, as timm's validate.py has it

Without them it is that of the config.json or of the named tag (`timm:resnet50.a1_in1k?weights=…`). Label names come
from `labels`, else from config.json (`label_names`), else from ImageNet's lemmas where the number of outputs is one of
ImageNet's, else they are label_0, label_1, …. Only safetensors are read: where timm would fall back to a pickle, this
refuses.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

import torch
from timm.data.config import resolve_model_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from timm.data.transforms_factory import create_transform
from timm.models import save_for_hf

from c2b_ray.errors import SpecError
from c2b_ray.models import building, weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.model_facts import label_fact, normalisation
from c2b_ray.models.pixels.preprocess import shape_of
from c2b_ray.models.spec_options import label_names, numbers, positive, truth
from c2b_ray.models.spec_tables import options_of
from c2b_ray.models.tensor_names import selection_of
from c2b_ray.models.timm_modules import CONFIG, FILE, Built, build, is_directory
from c2b_ray.models.torch_runtime import TorchClassifier, as_computed, runtime_of
from c2b_ray.models.trainable import Trainable
from c2b_ray.roles import Description, ModelFact
from c2b_ray.schemas import content_id

_PREPROCESSING = ("mean", "std", "size", "crop_pct", "crop_mode", "interpolation", "use_train_size")
_OPTIONS = options_of("classifier", "timm")
_CROPS = ("center", "squash", "border")
_INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "lanczos", "box", "hamming")


def load(spec: Spec) -> TorchClassifier:
    """Loads the classifier of a `timm:` spec. Raises SpecError for wrong names, WeightsError for weights that cannot be
    used."""
    spec.options_among(_OPTIONS)
    runtime = runtime_of(spec)
    built = building.built(partial(build, spec, loaded=True))
    known, data = _known(spec, built)
    transform = create_transform(**data, is_training=False)
    return TorchClassifier(built.module, transform, known.labels, known.revision, runtime, known.facts)


def describe(spec: Spec) -> Description:
    """Returns the description from a module without memory for its weights; of the weights only the file's hash and
    header are needed."""
    spec.options_among(_OPTIONS)
    with torch.device("meta"):
        return _known(spec, build(spec, loaded=False))[0]


def trainable(spec: Spec) -> Trainable:
    """Returns the module of a `timm:` spec for training; it is saved as a directory in timm's format."""
    spec.options_among(_OPTIONS)
    with torch.device("meta"):
        built = build(spec, loaded=False)
    known, data = _known(spec, built)
    config = built.file.parent / CONFIG
    local = config.read_bytes() if is_directory(spec) else None
    options = {name: value for name, value in spec.options.items() if name in _PREPROCESSING}
    query = f"?{urlencode(options, safe=',')}" if options else ""
    transform = create_transform(**data, is_training=False)

    def module(loaded: bool) -> Any:
        return build(spec, loaded).module

    return Trainable(
        spec.text,
        known,
        transform,
        module,
        partial(_saved, local, known.labels),
        lambda folder: f"timm:{folder}{query}",
    )


def _saved(config: bytes | None, labels: tuple[str, ...], module: Any) -> dict[str, bytes]:
    """Returns the files of a saved module. `config`: the config of the directory from which the module was loaded."""
    with TemporaryDirectory() as folder:
        save_for_hf(module.to(memory_format=torch.contiguous_format), folder, safe_serialization=True)
        files = {name: (Path(folder) / name).read_bytes() for name in (CONFIG, FILE)}
    about = json.loads(config or files[CONFIG])
    about = {**about, "label_names": list(labels), "num_classes": len(labels)}
    return files | {CONFIG: json.dumps(about, indent=2).encode() + b"\n"}


def _known(spec: Spec, built: Built) -> tuple[Description, dict[str, Any]]:
    """Returns the description of a module, and timm's settings of its preprocessing."""
    module = built.module
    data = _preprocessing(spec, module)
    usual = _labels_of_module(module)
    labels = label_names(spec, module.num_classes, usual)
    identity = content_id("timm", weights.file_revision(built.file), data, labels, *selection_of(spec).identity)
    facts = (*built.names.facts(built.file), *_facts(spec, built, data, labels))
    with torch.device("cpu"):  # also where the module is described without memory
        shape = shape_of(create_transform(**data, is_training=False))
    return as_computed(Description(identity, labels, shape=shape, facts=facts), spec), data


def _preprocessing(spec: Spec, module: Any) -> dict[str, Any]:
    """Returns timm's settings of the preprocessing, with the spec's overrides."""
    arguments: dict[str, Any] = {name: numbers(spec, name) for name in ("mean", "std")}
    if "size" in spec.options:
        arguments["img_size"] = positive(spec, "size", 1)
    for name, known in (("crop_mode", _CROPS), ("interpolation", _INTERPOLATIONS)):
        arguments[name] = spec.options.get(name)
        if arguments[name] not in (None, *known):
            raise SpecError(f"{spec.text}: {name}={arguments[name]!r} is none of {', '.join(known)}")
    if (share := numbers(spec, "crop_pct")) is not None:
        arguments["crop_pct"] = share[0]
        if not 0 < share[0] <= 1:
            raise SpecError(f"{spec.text}: crop_pct={share[0]} is no share of the picture: above 0, at most 1")
    data: dict[str, Any] = resolve_model_data_config(  # type: ignore[no-untyped-call]
        module, arguments, use_test_size=not truth(spec, "use_train_size", False)
    )
    if data["input_size"][0] != 3:
        raise SpecError(f"{spec.text}: takes {data['input_size'][0]} channels, not red, green and blue")
    config = module.pretrained_cfg
    if config.get("fixed_input_size") and tuple(data["input_size"]) != tuple(config["input_size"]):
        if "size" in spec.options:
            raise SpecError(f"{spec.text}: the model takes pictures of {_size(config)} alone, not of {_size(data)}")
        data["input_size"] = config["input_size"]
    return data


def _size(data: dict[str, Any]) -> str:
    return "×".join(str(side) for side in data["input_size"][1:])


def _facts(spec: Spec, built: Built, data: dict[str, Any], labels: tuple[str, ...]) -> tuple[ModelFact, ...]:
    def fact(name: str, value: str, *options: str) -> ModelFact:
        return _fact(spec, built, name, value, options)

    architecture = str(built.module.pretrained_cfg.get("architecture") or spec.name)
    source = CONFIG if built.config is not None else spec.text.partition("?")[0]
    return (
        ModelFact("architecture", architecture, source),
        _label_fact(spec, built, labels),
        fact("input size", _size(data), "size"),
        fact("crop", f"{data['crop_mode']}, {data['crop_pct']:g} of the picture", "crop_pct", "crop_mode"),
        fact("interpolation", str(data["interpolation"]), "interpolation"),
        fact("normalisation", normalisation(data["mean"], data["std"]), "mean", "std"),
    )


def _fact(spec: Spec, built: Built, name: str, value: str, options: tuple[str, ...]) -> ModelFact:
    """Returns a fact of the preprocessing. It is assumed where weights of one's own are prepared like timm's default
    tag, or where a config.json states no such key."""
    if all(option in spec.options for option in options):
        return ModelFact(name, value, " ".join(f"?{option}={spec.options[option]}" for option in options))
    option = next(option for option in options if option not in spec.options)
    if built.config is not None:
        keys = [{"size": "input_size"}.get(o, o) for o in options if o not in spec.options]
        if all(key in built.config or f"test_{key}" in built.config for key in keys):
            return ModelFact(name, value, CONFIG, option=option)
        return ModelFact(name, value, f"timm's default: {CONFIG} states none", True, option)
    config = built.module.pretrained_cfg
    tag = f"{config.get('architecture') or spec.name}.{config.get('tag')}" if config.get("tag") else spec.name
    own = "weights" in spec.options and "." not in spec.name
    return ModelFact(name, value, f"timm's settings of {tag}", own, option)


def _label_fact(spec: Spec, built: Built, labels: tuple[str, ...]) -> ModelFact:
    if built.module.pretrained_cfg.get("label_names"):
        return label_fact(spec, labels, CONFIG if built.config is not None else "timm's settings")
    subset = infer_imagenet_subset(built.module)
    if not subset:
        return label_fact(spec, labels, None)
    own = "weights" in spec.options or built.config is not None
    return label_fact(spec, labels, f"timm's names of {subset}, for its number of outputs", assumed=own)


def _labels_of_module(module: Any) -> tuple[str, ...] | None:
    names = module.pretrained_cfg.get("label_names")
    if names:
        return tuple(str(name) for name in names)
    subset = infer_imagenet_subset(module)
    return tuple(ImageNetInfo(subset).label_descriptions()) if subset else None
