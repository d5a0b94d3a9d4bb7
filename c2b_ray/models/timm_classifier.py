"""Classifiers from timm, with timm's own preprocessing, pixel for pixel.

    timm:resnet50.a1_in1k                       weights from the model hub
    timm:resnet50?weights=PATH.safetensors      weights of one's own, named as timm names them
    timm:PATH, timm:local-dir:PATH              a directory with config.json and model.safetensors, as timm saves it
    timm:hf-hub:org/name                        the same two files from a hub repository

Options: weights, labels (file of names), head (`models.heads`), device, batch, precision (fp32, tf32, bf16, fp16),
compile (true, false), tensors and unused (`tensor_names`), and overrides of the preprocessing:

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
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, urlencode

import timm
import torch
from timm.data.config import resolve_model_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from timm.data.transforms_factory import create_transform
from timm.models import get_pretrained_cfg, save_for_hf

from c2b_ray.errors import InputError, SpecError, WeightsError, nearest
from c2b_ray.models import weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.heads import outputs_of, refuse_other_heads
from c2b_ray.models.pixels.preprocess import shape_of
from c2b_ray.models.spec_options import by_number, label_fact, normalisation_words, numbers, options_of, positive, truth
from c2b_ray.models.tensor_names import OWN_MODULE, TensorNames, check_fit, kinds_of, last_layers, naming, selection_of
from c2b_ray.models.torch_runtime import TorchClassifier, as_computed, runtime_of, with_complement
from c2b_ray.models.training import Trainable
from c2b_ray.roles import Description, ModelFact
from c2b_ray.storage.manifest import read_json
from c2b_ray.tables import content_id

# Modules of timm with their weights: where a spec's files lie, and a loading that leaves no tensor to chance.


FILE, CONFIG = "model.safetensors", "config.json"
_CONVERSIONS = ("checkpoint_filter_fn", "_filter_fn")
"""Names by which timm's files call the conversion of their models' published weights."""


@dataclass(frozen=True)
class BuiltModule:
    """A module, the `file` of its weights and how the tensors are named there.

    `config`: the settings of preprocessing and labels that the directory's config states; None where timm's registered
    settings hold.
    """

    module: Any
    file: Path
    names: TensorNames
    config: Mapping[str, Any] | None = None


def build(spec: Spec, loaded: bool) -> BuiltModule:
    """Returns the module of a `timm:` spec, with its weights if `loaded`; without, the names and shapes in the file's
    header are checked alone.

    Raises SpecError for wrong names, WeightsError for weights that do not fit.
    """
    name = spec.name
    if name.startswith("hf-hub:"):
        repository, _, revision = name.removeprefix("hf-hub:").partition("@")
        for file in (FILE, CONFIG):
            config = weights.from_hub(repository, file, spec.text, revision or None)
        return _of_directory(spec, config.parent, loaded)
    if is_directory(spec):
        return _of_directory(spec, Path(name.removeprefix("local-dir:")), loaded)
    if not _is_registered(name):
        names = set(timm.list_models()) | set(timm.list_pretrained())
        raise SpecError(f"{spec.text}: timm has no model {name!r}; {nearest(name, names)}")
    if "weights" in spec.options:
        return _with_file(spec, weights.whole(spec.options["weights"]), loaded)
    return _published(spec, loaded)


def _is_registered(name: str) -> bool:
    return bool("/" not in name and "\\" not in name and timm.is_model(name))


def is_directory(spec: Spec) -> bool:
    return spec.name.startswith("local-dir:") or (not _is_registered(spec.name) and Path(spec.name).is_dir())


def _of_directory(spec: Spec, directory: Path, loaded: bool) -> BuiltModule:
    if "weights" in spec.options:
        raise SpecError(f"{spec.text}: a directory brings its own weights, weights= does not go with it")
    if not (directory / CONFIG).is_file():
        raise SpecError(
            f"{spec.text}: {directory} holds no config.json; expected a directory that timm saved (save_for_hf)"
        )
    file = weights.whole(directory / FILE)
    config, outputs = _stated(spec, directory / CONFIG)
    name = f"local-dir:{directory}"
    module = _created(spec, name)
    if not outputs and module.num_classes:
        module = _created(spec, name, num_classes=_outputs(spec, module, file))
    if module.num_classes <= 0:
        raise SpecError(_no_head(spec, module, file))
    return BuiltModule(module, file, _filled(spec, module, file, loaded), config)


def _stated(spec: Spec, path: Path) -> tuple[dict[str, Any], bool]:
    """Returns what a config.json says of preprocessing and labels, and whether it states the number of classes."""
    try:
        document = read_json(path)
        pretrained = document.get("pretrained_cfg", document)
        parts = [pretrained, {k: document[k] for k in ("label_names", "num_classes") if k in document}]
        arguments = document.get("model_args") or {}
    except (OSError, ValueError, InputError, AttributeError) as error:
        raise WeightsError(f"{spec.text}: timm cannot build it from its config and weights: {path}: {error}") from error
    values = {key: value for part in parts for key, value in part.items() if value is not None}
    if {"img_size", "in_chans"} & set(arguments):
        values.setdefault("input_size", arguments.get("img_size"))
    return values, "num_classes" in values or "num_classes" in arguments


def _no_head(spec: Spec, module: Any, file: Path) -> str:
    kinds = weights.read_kinds(file)
    heads = [f"{layer}.weight" for layer in heads_of(module) if f"{layer}.weight" in kinds]
    if not heads:
        return f"{spec.text}: has no classification layer, it only gives features"
    outputs = kinds[heads[0]].shape[0]
    return (
        f"{spec.text}: its config says num_classes: 0, so it only gives features; the file has {heads[0]} of {outputs} "
        f"outputs: write num_classes: {outputs} into config.json"
    )


def _published(spec: Spec, loaded: bool) -> BuiltModule:
    config = registered_config(spec)
    if not config.hf_hub_id:
        raise SpecError(f"{spec.text}: timm publishes no safetensors for it; give ?weights=PATH.safetensors")
    name = config.hf_hub_filename or FILE
    if name.endswith((".bin", ".pth", ".pt")):
        name = name.rpartition(".")[0].replace("pytorch_model", "model") + ".safetensors"
    file = weights.checked(weights.from_hub(config.hf_hub_id, name, spec.text))
    module = _created(spec, spec.name)
    if module.num_classes <= 0:
        raise SpecError(f"{spec.text}: has no classification layer, it only gives features")
    return BuiltModule(module, file, _filled(spec, module, file, loaded, resized=True))


def _with_file(spec: Spec, file: Path, loaded: bool) -> BuiltModule:
    arguments: dict[str, Any] = {}
    if "size" in spec.options and registered_config(spec).fixed_input_size:
        arguments["img_size"] = positive(spec, "size", 1)
    with torch.device("meta"):
        plan = _created(spec, spec.name, **arguments)
    module = _created(spec, spec.name, num_classes=_outputs(spec, plan, file), **arguments)
    return BuiltModule(module, file, _filled(spec, module, file, loaded))


def registered_config(spec: Spec) -> Any:
    """Returns timm's registered settings of a model, such as the location of its weights and its layers' names."""
    try:
        return get_pretrained_cfg(spec.name, allow_unregistered=False)
    except RuntimeError as error:
        tagged = timm.list_pretrained(spec.name.partition(".")[0] + "*")
        raise SpecError(f"{spec.text}: {error} {nearest(spec.name, tagged or timm.list_pretrained())}") from error


def heads_of(module: Any) -> tuple[str, ...]:
    """Returns the names of a module's classification layers."""
    layer = module.pretrained_cfg.get("classifier")
    return tuple(layer) if isinstance(layer, (tuple, list)) else (layer,) if layer else ()


def _outputs(spec: Spec, module: Any, file: Path) -> int:
    """Returns the number of classes of the head in a file."""
    kinds = weights.read_kinds(file)
    head_kinds = naming(module.state_dict(), kinds, file, selection_of(spec)).of(kinds)
    head = f"{next(iter(heads_of(module)), None)}.weight"
    if head not in head_kinds or not head_kinds[head].shape:
        layers = last_layers({name: kind.shape for name, kind in kinds.items()})
        raise WeightsError(
            f"{file}: no tensor {head!r}, the classification layer of {spec.name}, but {layers}: a backbone without "
            f"its head, or weights of another architecture; give those of the whole classifier. {OWN_MODULE}"
        )
    return head_kinds[head].shape[0]


def _filled(spec: Spec, module: Any, file: Path, loaded: bool, resized: bool = False) -> TensorNames:
    """Fills a module with a file's tensors if `loaded`; else checks that it could. `resized`: timm's conversion may
    also resize tensors, such as those of positions."""
    tensors = weights.read_safetensors(file) if loaded else weights.read_outlines(file)
    expected = kinds_of(module.state_dict())
    names = naming(expected, tensors, file, selection_of(spec))
    selected = {name: tensors[source] for name, source in names.names.items()}
    try:
        check_fit(expected, kinds_of(selected), file, type(module).__name__, heads_of(module), names.rest)
    except WeightsError:
        converted = None if names.rest else _converted(module, selected, resized)
        if converted is None:
            raise
        selected = converted
    if loaded:
        weights.load_into(module, selected, file, heads_of(module))
    return names


def _converted(module: Any, tensors: dict[str, Any], resized: bool) -> dict[str, Any] | None:
    """Returns the tensors as timm's conversion names them, where these fit the module; else None."""
    home = sys.modules[type(module).__module__]
    conversion = next((getattr(home, name) for name in _CONVERSIONS if hasattr(home, name)), None)
    if conversion is None:
        return None
    try:
        converted: dict[str, Any] = dict(conversion(dict(tensors), module))
        check_fit(kinds_of(module.state_dict()), kinds_of(converted), "", "")
    except (
        WeightsError,
        AttributeError,
        IndexError,
        KeyError,
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
    ):
        return None
    shared = [name for name in converted if name in tensors]
    if not resized and any(converted[name].shape != tensors[name].shape for name in shared):
        return None
    return converted


def _created(spec: Spec, name: str, **arguments: Any) -> Any:
    try:
        return timm.create_model(name, pretrained=False, **arguments)
    except (json.JSONDecodeError, KeyError, TypeError, AssertionError, OSError, ValueError, RuntimeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(f"{spec.text}: timm cannot build it from its config and weights: {lines[:500]}") from error


_PREPROCESSING = ("mean", "std", "size", "crop_pct", "crop_mode", "interpolation", "use_train_size")
_OPTIONS = options_of("classifier", "timm")
_CROPS = ("center", "squash", "border")
_INTERPOLATIONS = ("bilinear", "bicubic", "nearest", "lanczos", "box", "hamming")


def load(spec: Spec) -> TorchClassifier:
    """Loads the classifier of a `timm:` spec. Raises SpecError for wrong names, WeightsError for weights that cannot be
    used."""
    spec.options_among(_OPTIONS)
    runtime = runtime_of(spec)
    built = weights.built(partial(build, spec, loaded=True))
    description, data = _known(spec, built)
    transform = create_transform(**data, is_training=False)
    module = with_complement(built.module, built.module.num_classes)
    return TorchClassifier(
        module, transform, description.labels, description.revision, runtime, description.facts, description.head
    )


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
    description, data = _known(spec, built)
    refuse_other_heads(spec, description, built.module.num_classes)
    config = built.file.parent / CONFIG
    local = config.read_bytes() if is_directory(spec) else None
    options = {name: value for name, value in spec.options.items() if name in _PREPROCESSING}
    query = f"?{urlencode(options, safe=',', quote_via=quote)}" if options else ""
    transform = create_transform(**data, is_training=False)

    return Trainable(
        spec.text,
        description,
        transform,
        lambda loaded: build(spec, loaded).module,
        partial(_saved, local, description.labels),
        lambda folder: f"timm:{folder}{query}",
    )


def _saved(config: bytes | None, labels: tuple[str, ...], module: Any) -> dict[str, bytes]:
    """Returns the files of a saved module. `config`: the config of the directory from which the module was loaded."""
    with TemporaryDirectory() as folder:
        save_for_hf(module.to(memory_format=torch.contiguous_format), folder, safe_serialization=True)
        files = {name: (Path(folder) / name).read_bytes() for name in (CONFIG, FILE)}
    document = json.loads(config or files[CONFIG])
    document = {**document, "label_names": list(labels), "num_classes": len(labels)}
    return files | {CONFIG: json.dumps(document, indent=2).encode() + b"\n"}


def _known(spec: Spec, built: BuiltModule) -> tuple[Description, dict[str, Any]]:
    """Returns the description of a module, and timm's settings of its preprocessing."""
    module = built.module
    data = _preprocessing(spec, module)
    usual_labels = None if "labels" in spec.options else _labels_of_module(module, built)
    outputs = outputs_of(spec, module.num_classes, usual_labels)
    labels, also = outputs.labels, [*selection_of(spec).identity, *outputs.identity]
    identity = content_id("timm", weights.file_revision(built.file), data, labels, *also)
    facts = (*built.names.facts(built.file), *_facts(spec, built, data, labels), *outputs.facts)
    with torch.device("cpu"):  # also where the module is described without memory
        shape = shape_of(create_transform(**data, is_training=False))
    return as_computed(Description(identity, labels, shape=shape, head=outputs.head, facts=facts), spec), data


def _preprocessing(spec: Spec, module: Any) -> dict[str, Any]:
    """Returns timm's settings of the preprocessing, with the spec's overrides."""
    arguments: dict[str, Any] = {name: numbers(spec, name) for name in ("mean", "std")}
    if "size" in spec.options:
        arguments["img_size"] = positive(spec, "size", 1)
    for name, choices in (("crop_mode", _CROPS), ("interpolation", _INTERPOLATIONS)):
        arguments[name] = spec.options.get(name)
        if arguments[name] not in (None, *choices):
            raise SpecError(f"{spec.text}: {name}={arguments[name]!r} is none of {', '.join(choices)}")
    if (share := numbers(spec, "crop_pct")) is not None:
        arguments["crop_pct"] = share[0]
        if not 0 < share[0] <= 1:
            raise SpecError(f"{spec.text}: crop_pct={share[0]} is no share of the picture: above 0, at most 1")
    data: dict[str, Any] = resolve_model_data_config(  # type: ignore[no-untyped-call]
        module, arguments, use_test_size=not truth(spec, "use_train_size", False)
    )
    if data["interpolation"] not in _INTERPOLATIONS:  # "random" would answer otherwise each time
        raise SpecError(
            f"{spec.text}: its settings say interpolation {data['interpolation']!r}; state one with ?interpolation=: "
            f"{', '.join(_INTERPOLATIONS)}"
        )
    if data["input_size"][0] != 3:
        raise SpecError(f"{spec.text}: takes {data['input_size'][0]} channels, not red, green and blue")
    config = module.pretrained_cfg
    own_size = {"size", "weights"} <= spec.options.keys()  # the module was built for it
    if config.get("fixed_input_size") and not own_size and tuple(data["input_size"]) != tuple(config["input_size"]):
        if "size" in spec.options:
            raise SpecError(f"{spec.text}: the model takes pictures of {_size(config)} alone, not of {_size(data)}")
        data["input_size"] = config["input_size"]
    return data


def _size(data: dict[str, Any]) -> str:
    return "×".join(str(side) for side in data["input_size"][1:])


def _facts(spec: Spec, built: BuiltModule, data: dict[str, Any], labels: tuple[str, ...]) -> tuple[ModelFact, ...]:
    fact = partial(_fact, spec, built)
    architecture = str(built.module.pretrained_cfg.get("architecture") or spec.name)
    source = CONFIG if built.config is not None else spec.text.partition("?")[0]
    return (
        ModelFact("architecture", architecture, source),
        _label_fact(spec, built, labels),
        fact("input size", _size(data), "size"),
        fact("crop", f"{data['crop_mode']}, {data['crop_pct']:g} of the picture", "crop_pct", "crop_mode"),
        fact("interpolation", str(data["interpolation"]), "interpolation"),
        fact("normalisation", normalisation_words(data["mean"], data["std"]), "mean", "std"),
    )


def _fact(spec: Spec, built: BuiltModule, name: str, value: str, *options: str) -> ModelFact:
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
    is_own = "weights" in spec.options and "." not in spec.name
    return ModelFact(name, value, f"timm's settings of {tag}", is_own, option)


def _label_fact(spec: Spec, built: BuiltModule, labels: tuple[str, ...]) -> ModelFact:
    if built.module.pretrained_cfg.get("label_names"):
        return label_fact(spec, labels, CONFIG if built.config is not None else "timm's settings")
    subset = infer_imagenet_subset(built.module)
    if not subset:
        return label_fact(spec, labels, None)
    is_own = "weights" in spec.options or built.config is not None
    return label_fact(spec, labels, f"timm's names of {subset}, for its number of outputs", assumed=is_own)


def _labels_of_module(module: Any, built: BuiltModule) -> tuple[str, ...] | None:
    names = module.pretrained_cfg.get("label_names")
    if isinstance(names, Mapping):  # timm takes a list, or names by number
        return tuple(by_number(names, f"{built.file.parent / CONFIG}: label_names"))
    if names:
        return tuple(str(name) for name in names)
    subset = infer_imagenet_subset(module)
    return tuple(ImageNetInfo(subset).label_descriptions()) if subset else None
