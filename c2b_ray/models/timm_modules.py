"""Modules of timm with their weights: where a spec's files lie, and a loading that leaves no tensor to chance.

timm itself drops a head that its config contradicts and starts a random one, so it only builds modules here; their
tensors come from the file, by name. Where the names are those of another release, timm's own conversion is asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from timm.models import get_pretrained_cfg

from c2b_ray.errors import InputError, SpecError, WeightsError, nearest
from c2b_ray.filesystems.documents import read_json
from c2b_ray.models import weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.tensor_names import Naming, check_fit, kinds_of, naming, selection_of

FILE, CONFIG = "model.safetensors", "config.json"
_CONVERSIONS = ("checkpoint_filter_fn", "_filter_fn")
"""Names by which timm's files call the conversion of their models' published weights."""


@dataclass(frozen=True)
class Built:
    """A module, the `file` of its weights and how the tensors are named there.

    `config`: the settings of preprocessing and labels that the directory's config states; None where timm's registered
    settings hold.
    """

    module: Any
    file: Path
    names: Naming
    config: Mapping[str, Any] | None = None


def build(spec: Spec, loaded: bool) -> Built:
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
        known = set(timm.list_models()) | set(timm.list_pretrained())
        raise SpecError(f"{spec.text}: timm has no model {name!r}; {nearest(name, known)}")
    if "weights" in spec.options:
        return _with_file(spec, weights.checked(spec.options["weights"]), loaded)
    return _published(spec, loaded)


def _is_registered(name: str) -> bool:
    return bool("/" not in name and "\\" not in name and timm.is_model(name))


def is_directory(spec: Spec) -> bool:
    return spec.name.startswith("local-dir:") or (not _is_registered(spec.name) and Path(spec.name).is_dir())


def _of_directory(spec: Spec, directory: Path, loaded: bool) -> Built:
    if "weights" in spec.options:
        raise SpecError(f"{spec.text}: a directory brings its own weights, weights= does not go with it")
    if not (directory / CONFIG).is_file():
        raise SpecError(f"{spec.text}: {directory} holds no config.json; expected a directory that timm saved")
    file = weights.checked(directory / FILE)
    config, outputs = _stated(spec, directory / CONFIG)
    name = f"local-dir:{directory}"
    module = _created(spec, name)
    if not outputs and module.num_classes:
        module = _created(spec, name, num_classes=_outputs(spec, module, file))
    if module.num_classes <= 0:
        raise SpecError(_no_head(spec, module, file))
    return Built(module, file, _filled(spec, module, file, loaded), config)


def _stated(spec: Spec, path: Path) -> tuple[dict[str, Any], bool]:
    """Returns what a config.json says of preprocessing and labels, and whether it states the number of classes."""
    try:
        about = read_json(path)
        own = about.get("pretrained_cfg", about)
        parts = [own, {k: about[k] for k in ("label_names", "num_classes") if k in about}]
        arguments = about.get("model_args") or {}
    except (OSError, ValueError, InputError, AttributeError) as error:
        raise WeightsError(f"{spec.text}: timm cannot build it from its config and weights: {path}: {error}") from error
    stated = {key: value for part in parts for key, value in part.items() if value is not None}
    if {"img_size", "in_chans"} & set(arguments):
        stated.setdefault("input_size", arguments.get("img_size"))
    return stated, "num_classes" in stated or "num_classes" in arguments


def _no_head(spec: Spec, module: Any, file: Path) -> str:
    kinds = weights.read_kinds(file)
    found = [f"{layer}.weight" for layer in heads_of(module) if f"{layer}.weight" in kinds]
    if not found:
        return f"{spec.text}: has no classification layer, it only gives features"
    outputs = kinds[found[0]].shape[0]
    return (
        f"{spec.text}: its config says num_classes: 0, so it only gives features; the file has {found[0]} of {outputs} "
        f"outputs: write num_classes: {outputs} into config.json"
    )


def _published(spec: Spec, loaded: bool) -> Built:
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
    return Built(module, file, _filled(spec, module, file, loaded, resized=True))


def _with_file(spec: Spec, file: Path, loaded: bool) -> Built:
    registered_config(spec)
    with torch.device("meta"):
        plan = _created(spec, spec.name)
    module = _created(spec, spec.name, num_classes=_outputs(spec, plan, file))
    return Built(module, file, _filled(spec, module, file, loaded))


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
    found = naming(module.state_dict(), kinds, file, selection_of(spec)).of(kinds)
    head = f"{next(iter(heads_of(module)), None)}.weight"
    if head not in found or not found[head].shape:
        raise WeightsError(
            f"{file}: no tensor {head!r}, the classification layer of {spec.name}: a backbone without its head, or "
            "weights of another architecture; give those of the whole classifier"
        )
    return found[head].shape[0]


def _filled(spec: Spec, module: Any, file: Path, loaded: bool, resized: bool = False) -> Naming:
    """Fills a module with a file's tensors if `loaded`; else checks that it could. `resized`: timm's conversion may
    also resize tensors, such as those of positions."""
    tensors = weights.read_safetensors(file) if loaded else weights.read_outlines(file)
    wanted = kinds_of(module.state_dict())
    names = naming(wanted, tensors, file, selection_of(spec))
    chosen = {name: tensors[source] for name, source in names.names.items()}
    try:
        check_fit(wanted, kinds_of(chosen), file, type(module).__name__, heads_of(module), names.rest)
    except WeightsError:
        converted = None if names.rest else _converted(module, chosen, resized)
        if converted is None:
            raise
        chosen = converted
    if loaded:
        weights.load_into(module, chosen, file, heads_of(module))
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
    same = [name for name in converted if name in tensors]
    if not resized and any(converted[name].shape != tensors[name].shape for name in same):
        return None
    return converted


def _created(spec: Spec, name: str, **arguments: Any) -> Any:
    try:
        return timm.create_model(name, pretrained=False, **arguments)
    except (json.JSONDecodeError, KeyError, TypeError, AssertionError, OSError, ValueError, RuntimeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(f"{spec.text}: timm cannot build it from its config and weights: {lines[:500]}") from error
