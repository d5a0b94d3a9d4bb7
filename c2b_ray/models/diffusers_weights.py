"""The networks of a diffusers pipeline, each tensor of them from its file.

diffusers fills what a component's file lacks with random numbers and only logs it, so the components are loaded one by
one, and the pipeline is built around them.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import diffusers
import torch
from diffusers import ModelMixin
from transformers import PreTrainedModel

from c2b_ray.errors import InputError, WeightsError
from c2b_ray.models.tensor_names import Selection
from c2b_ray.models.transformers_weights import load_strictly, refuse_made_up
from c2b_ray.storage.manifest import read_json

INDEX = "model_index.json"
_LIBRARIES = ("diffusers", "transformers")


def networks(directory: Path, dtype: torch.dtype) -> dict[str, Any]:
    """Returns the networks that a pipeline's index lists, by the name of the component.

    Other components, and networks of other libraries, are left to diffusers. Raises WeightsError that names the tensors
    that a file lacks, exceeds or has in another size; the libraries' errors are passed on.
    """
    result = {}
    for name, kind in _classes(directory).items():
        folder = directory / name
        if issubclass(kind, ModelMixin):
            result[name] = _of_diffusers(kind, folder, dtype)
        elif issubclass(kind, PreTrainedModel):
            result[name] = load_strictly(kind, folder, Selection(), dtype=dtype, local_files_only=True).model
    return result


def _classes(directory: Path) -> dict[str, type]:
    """Returns the class of each component that has a folder of weights."""
    try:
        components = dict(read_json(directory / INDEX))
    except (OSError, ValueError, InputError, TypeError) as error:
        raise WeightsError(f"{directory / INDEX}: {error}") from error
    result = {}
    for name, entry in components.items():
        library, kind = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        if library not in _LIBRARIES or not any((directory / name).glob("*.safetensors")):
            continue
        component_class = getattr(importlib.import_module(library), str(kind), None)
        if inspect.isclass(component_class):
            result[name] = component_class
    return result


def _of_diffusers(kind: Any, folder: Path, dtype: torch.dtype) -> Any:
    with _quiet():
        model, info = kind.from_pretrained(
            folder,
            torch_dtype=dtype,
            use_safetensors=True,
            local_files_only=True,
            low_cpu_mem_usage=False,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    refuse_made_up(folder, kind.__name__, info, len(model.state_dict()))
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences diffusers' warning about tensors that are missing, which are an error here."""
    verbosity = diffusers.logging.get_verbosity()
    diffusers.logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        diffusers.logging.set_verbosity(verbosity)
