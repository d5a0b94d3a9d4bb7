"""Classifiers from timm, with timm's own preprocessing, pixel for pixel.

    timm:resnet50.a1_in1k                       weights from the model hub
    timm:resnet50?weights=PATH.safetensors      weights of one's own, named as timm names them
    timm:PATH, timm:local-dir:PATH              a directory with config.json and model.safetensors, as timm saves it
    timm:hf-hub:org/name                        the same two files from a hub repository

Options: weights, labels (file of names), device, batch, precision (fp32, bf16, fp16). Label names come from `labels`,
else from config.json (`label_names`), else from ImageNet's lemmas where the number of outputs is one of ImageNet's,
else they are label_0, label_1, …. Only safetensors are read: where timm would fall back to a pickle, this refuses.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import timm
import torch
from timm.data.config import resolve_model_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from timm.data.transforms_factory import create_transform
from timm.models import get_pretrained_cfg, save_for_hf

from c2b_ray.errors import SpecError, WeightsError, nearest
from c2b_ray.models import weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.pixels.preprocess import shape_of
from c2b_ray.models.spec_options import label_names
from c2b_ray.models.torch_runtime import TorchClassifier, revised, runtime_of
from c2b_ray.models.trainable import Trainable
from c2b_ray.roles import Description
from c2b_ray.schemas import content_id

_OPTIONS = ("weights", "labels", "device", "batch", "precision")
_FILE = "model.safetensors"


def load(spec: Spec) -> TorchClassifier:
    """Loads the classifier of a `timm:` spec. Raises SpecError for wrong names, WeightsError for weights that cannot be
    used."""
    spec.options_among(_OPTIONS)
    runtime = runtime_of(spec)
    module, file = _module(spec, loaded=True)
    known, data = _known(spec, module, file)
    transform = create_transform(**data, is_training=False)
    return TorchClassifier(module, transform, known.labels, known.revision, runtime)


def describe(spec: Spec) -> Description:
    """Returns the description from a module without memory for its weights; of the weights only the file's hash is
    needed."""
    spec.options_among(_OPTIONS)
    with torch.device("meta"):
        return _known(spec, *_module(spec, loaded=False))[0]


def trainable(spec: Spec) -> Trainable:
    """Returns the module of a `timm:` spec for training; it is saved as a directory in timm's format."""
    spec.options_among(_OPTIONS)
    with torch.device("meta"):
        module, file = _module(spec, loaded=False)
    known, data = _known(spec, module, file)
    config = file.parent / "config.json"
    local = config.read_bytes() if _is_directory(spec) else None
    save = partial(_saved, local, known.labels)
    transform = create_transform(**data, is_training=False)
    return Trainable(
        spec.text, known, transform, lambda loaded: _module(spec, loaded)[0], save, lambda folder: f"timm:{folder}"
    )


def _saved(config: bytes | None, labels: tuple[str, ...], module: Any) -> dict[str, bytes]:
    """Returns the files of a saved module. `config`: the config of the directory from which the module was loaded."""
    with TemporaryDirectory() as folder:
        save_for_hf(module.to(memory_format=torch.contiguous_format), folder, safe_serialization=True)
        files = {name: (Path(folder) / name).read_bytes() for name in ("config.json", _FILE)}
    about = json.loads(config or files["config.json"])
    about = {**about, "label_names": list(labels), "num_classes": len(labels)}
    return files | {"config.json": json.dumps(about, indent=2).encode() + b"\n"}


def _known(spec: Spec, module: Any, file: Path) -> tuple[Description, dict[str, Any]]:
    """Returns the description of a module, and timm's settings of its preprocessing."""
    if module.num_classes <= 0:
        raise SpecError(f"{spec.text}: has no classification layer, it only gives features")
    data: dict[str, Any] = resolve_model_data_config(module)  # type: ignore[no-untyped-call]
    if data["input_size"][0] != 3:
        raise SpecError(f"{spec.text}: takes {data['input_size'][0]} channels, not red, green and blue")
    labels = label_names(spec, module.num_classes, _labels_of_module(module))
    revision = revised(content_id("timm", weights.file_revision(file), data, labels), spec)
    with torch.device("cpu"):  # also where the module is described without memory
        shape = shape_of(create_transform(**data, is_training=False))
    return Description(revision, labels, shape=shape), data


def _module(spec: Spec, loaded: bool) -> tuple[Any, Path]:
    """Returns the module, with its weights if `loaded`, and the file of the weights."""
    name = spec.name
    if name.startswith("hf-hub:"):
        repository, _, revision = name.removeprefix("hf-hub:").partition("@")
        for file in (_FILE, "config.json"):
            config = weights.from_hub(repository, file, spec.text, revision or None)
        return _from_directory(spec, config.parent, loaded)
    registered = _is_registered(name)
    if _is_directory(spec):
        return _from_directory(spec, Path(name.removeprefix("local-dir:")), loaded)
    if not registered:
        known = set(timm.list_models()) | set(timm.list_pretrained())
        raise SpecError(f"{spec.text}: timm has no model {name!r}; {nearest(name, known)}")
    if "weights" in spec.options:
        return _with_weights_of(spec, weights.checked(spec.options["weights"]), loaded)
    return _from_hub(spec, loaded)


def _is_registered(name: str) -> bool:
    return bool("/" not in name and "\\" not in name and timm.is_model(name))


def _is_directory(spec: Spec) -> bool:
    return spec.name.startswith("local-dir:") or (not _is_registered(spec.name) and Path(spec.name).is_dir())


def _from_directory(spec: Spec, directory: Path, loaded: bool) -> tuple[Any, Path]:
    if "weights" in spec.options:
        raise SpecError(f"{spec.text}: a directory brings its own weights, weights= does not go with it")
    if not (directory / "config.json").is_file():
        raise SpecError(f"{spec.text}: {directory} holds no config.json; expected a directory that timm saved")
    # Under any other name timm would read a pickle first, were one beside it.
    file = weights.checked(directory / _FILE)
    return _created(spec, f"local-dir:{directory}", pretrained=loaded), file


def _from_hub(spec: Spec, loaded: bool) -> tuple[Any, Path]:
    config = _config(spec)
    if not config.hf_hub_id:
        raise SpecError(f"{spec.text}: timm publishes no safetensors for it; give ?weights=PATH.safetensors")
    name = config.hf_hub_filename or _FILE
    if name.endswith((".bin", ".pth", ".pt")):
        name = name.rpartition(".")[0].replace("pytorch_model", "model") + ".safetensors"
    file = weights.checked(weights.from_hub(config.hf_hub_id, name, spec.text))
    # custom_load is for weights in another framework's format; what lies on the hub as safetensors is timm's own.
    overlay = {"file": str(file), "custom_load": False}
    return _created(spec, spec.name, pretrained=loaded, pretrained_cfg_overlay=overlay), file


def _with_weights_of(spec: Spec, file: Path, loaded: bool) -> tuple[Any, Path]:
    shapes = weights.read_shapes(file)
    layer = _config(spec).classifier
    head = f"{layer[0] if isinstance(layer, (tuple, list)) else layer}.weight"
    if not shapes.get(head):
        raise WeightsError(f"{file}: no tensor {head!r}, the classification layer of {spec.name}")
    module = _created(spec, spec.name, num_classes=shapes[head][0])
    if loaded:
        weights.load_into(module, weights.read_safetensors(file), file)
    return module, file


def _config(spec: Spec) -> Any:
    """Returns timm's registered settings of a model, such as the location of its weights and its layers' names."""
    try:
        return get_pretrained_cfg(spec.name, allow_unregistered=False)
    except RuntimeError as error:
        tagged = timm.list_pretrained(spec.name.partition(".")[0] + "*")
        raise SpecError(f"{spec.text}: {error} {nearest(spec.name, tagged or timm.list_pretrained())}") from error


def _created(spec: Spec, name: str, **arguments: Any) -> Any:
    try:
        return timm.create_model(name, **arguments)
    except (json.JSONDecodeError, KeyError, TypeError, AssertionError, OSError, ValueError, RuntimeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(f"{spec.text}: timm cannot build it from its config and weights: {lines[:500]}") from error


def _labels_of_module(module: Any) -> tuple[str, ...] | None:
    names = module.pretrained_cfg.get("label_names")
    if names:
        return tuple(str(name) for name in names)
    subset = infer_imagenet_subset(module)
    return tuple(ImageNetInfo(subset).label_descriptions()) if subset else None
