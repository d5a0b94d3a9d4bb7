"""Images from texts, by any text-to-image pipeline of diffusers.

    diffusers:org/name              from the model hub, also org/name@revision
    diffusers:local-dir:PATH        a directory as diffusers saves it: model_index.json and a folder per component

Options: steps, guidance, size (HEIGHTxWIDTH), batch, device, dtype (fp32, fp16, bf16), scheduler (a class of diffusers
that fits the pipeline's own), compile (true, false), and two that debias it, as in DiffLens:

    lora=FOLDER                  an adapter as peft saves it, merged into the denoiser
    debias=HEADS.safetensors     heads of `c2b prompts heads`: each image is drawn towards a value that its seed chooses

An option that is left out has the pipeline's default; few-step models need explicit settings:
`diffusers:stabilityai/sd-turbo?steps=1&guidance=0`. Only safetensors are read, and no code from a repository is run.
diffusers fills what a component's file lacks with random numbers and only logs it, so components are loaded one by one,
and the pipeline is built around them. Noise comes from a generator per row on the CPU, so a row's noise depends neither
on the device nor on the batch. It knows nothing of captions or of the use of its images.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
from diffusers import DiffusionPipeline, ModelMixin
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from peft import PeftModel, get_peft_model_state_dict
from torch import Tensor
from transformers import PreTrainedModel

from c2b_ray.config.placement import Precision
from c2b_ray.errors import InputError, ServiceError, SpecError, WeightsError, nearest
from c2b_ray.image_check import checked_image
from c2b_ray.models import activation_heads, devices, weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import batches, positive, truth
from c2b_ray.models.tensor_names import Selection, check_fit, kinds_of
from c2b_ray.models.torch_runtime import DTYPES, device_of
from c2b_ray.models.transformers_weights import load_strictly, refuse_made_up
from c2b_ray.roles import Description, Floats, GeneratedImage, GenerationRequest
from c2b_ray.storage.manifest import read_json
from c2b_ray.tables import content_id, seed_of

# The networks of a diffusers pipeline, each tensor of them from its file.


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


# Debiasing by an adapter (LoRA), or at test time: the activations that the heads read are moved, at each step, by the
# least amount that makes the head predict the chosen value; values are chosen with equal probability. (DiffLens steers
# features of a sparse autoencoder in the same place; here the directions are the heads' own.)


ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
MARGIN = 2.0
"""The margin by which the logit of the chosen value must exceed all others together."""


def adapter_files(spec: Spec) -> list[Path]:
    """Returns the files of the adapter and of the heads that a spec names. Raises SpecError where one is absent,
    WeightsError where it has another content."""
    files = []
    if folder := spec.options.get("lora"):
        for name in (ADAPTER, ADAPTER_CONFIG):
            if not (Path(folder) / name).is_file():
                raise SpecError(f"{spec.text}: {folder} holds no {name}; expected an adapter as peft saves it")
        files += [weights.checked(Path(folder) / ADAPTER), Path(folder) / ADAPTER_CONFIG]
    if heads := spec.options.get("debias"):
        files.append(weights.checked(heads))
    return files


def merge_adapter(pipeline: Any, spec: Spec) -> None:
    """Merges the adapter into the denoiser, whose modules keep their names."""
    folder = spec.options.get("lora")
    if folder is None:
        return
    config = json.loads((Path(folder) / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    kind = config.get("peft_type")
    if config.get("megatron_config"):
        raise WeightsError(f"{spec.text}: {folder} names megatron_config, of which peft imports whatever it calls so")
    if kind != "LORA":
        raise WeightsError(f"{spec.text}: {folder} holds an adapter of the kind {kind}, expected LORA")
    name = activation_heads.denoiser_name(pipeline)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found missing adapter keys")  # an error here, by the next line
            adapted: Any = PeftModel.from_pretrained(getattr(pipeline, name), folder)
        # Raises where peft made up tensors of the adapter, or left some unread.
        expected = kinds_of(get_peft_model_state_dict(adapted, save_embedding_layers=False))
        file = Path(folder) / ADAPTER
        check_fit(expected, weights.read_kinds(file), file, "its adapter_config.json")
        setattr(pipeline, name, adapted.merge_and_unload())
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(f"{spec.text}: the adapter does not fit the {name}: {lines[:300]}") from error


@dataclass(frozen=True)
class Steering:
    """Heads of an attribute by denoising step, as tensors on the denoiser's device: weight / scale (dimension, values),
    and the bias for unstandardised activations."""

    activation: str
    heads: dict[int, tuple[Tensor, Tensor]]

    def steered(self, seeds: Sequence[int], step: int, output: Tensor) -> Tensor:
        """Returns the output with the rows of the prompts moved; each row depends on its own seed only."""
        weight, bias = self.heads[min(self.heads, key=lambda head_step: abs(head_step - step))]
        rows = activation_heads.conditional(output, len(seeds))
        flat = rows.flatten(1).float()
        logits = flat @ weight + bias
        target = torch.tensor([seed_of("debias", seed) % weight.shape[1] for seed in seeds], device=flat.device)
        is_target = torch.nn.functional.one_hot(target, weight.shape[1]).bool()
        other_logits = logits.masked_fill(is_target, -torch.inf)
        deficit = (MARGIN + other_logits.logsumexp(1) - logits[is_target]).clamp(min=0)
        direction = weight.T[target] - other_logits.softmax(1) @ weight.T
        shifted = flat + (deficit / direction.square().sum(1).clamp(min=1e-12))[:, None] * direction
        unconditional = output[: output.shape[0] - len(seeds)]
        return torch.cat([unconditional, shifted.reshape(rows.shape).to(output.dtype)])


def load_steering(pipeline: Any, spec: Spec) -> Steering | None:
    """Loads the steering of a spec's `debias`; None without it. Raises SpecError for heads of an activation that the
    pipeline does not have."""
    path = spec.options.get("debias")
    if path is None:
        return None
    heads, metadata = activation_heads.decoded(weights.checked(path).read_bytes(), path)
    name = str(metadata["activation"])
    activation_heads.module_of(pipeline, name)
    device = getattr(pipeline, activation_heads.denoiser_name(pipeline)).device
    tensors = {}
    for step, head in heads.items():
        weight = torch.from_numpy(head.weight / head.scale[:, None])
        tensors[step] = (
            weight.to(device),
            (torch.from_numpy(head.bias) - torch.from_numpy(head.mean) @ weight).to(device),
        )
    return Steering(name, tensors)


_OPTIONS = ("steps", "guidance", "size", "batch", "device", "dtype", "scheduler", "compile", "lora", "debias")
_BATCH = 8
_INDEX = "model_index.json"


class DiffusersGenerator:
    """A text-to-image pipeline with its settings; implements `roles.ImageGenerator` and `roles.ActivationReader`."""

    def __init__(
        self,
        pipeline: Any,
        settings: dict[str, Any],
        size: tuple[int, int] | None,
        revision: str,
        batch: int,
        steering: Steering | None = None,
    ) -> None:
        self._pipeline = self.pipeline = pipeline
        self._settings = self.settings = settings
        self._size = size
        self.revision = revision
        self._batch = batch
        self._steering = steering

    def generate(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        """Returns one image per request; NaN, blank images and wrong sizes are errors of their rows."""
        return [image for part in batches(requests, self._batch) for image in self._batch_of(part)]

    @property
    def activation_names(self) -> tuple[str, ...]:
        return activation_heads.names_of(self._pipeline)

    @property
    def denoising_steps(self) -> int:
        default = inspect.signature(type(self._pipeline).__call__).parameters["num_inference_steps"].default
        return activation_heads.step_count(self._pipeline, self._settings.get("num_inference_steps", default))

    def activations(self, requests: Sequence[GenerationRequest], name: str, steps: Sequence[int]) -> Floats:
        """Reads activations as described in `roles.ActivationReader`, by a forward hook; the image is never decoded."""
        activation_heads.checked_steps(steps, self.denoising_steps)
        activation_heads.module_of(self._pipeline, name)
        parts = [
            activation_heads.read(
                self._pipeline, name, steps, len(part), partial(self._denoised, part, output_type="latent")
            )
            for part in batches(requests, self._batch)
        ]
        return np.concatenate(parts) if parts else np.empty((0, len(steps), 0), np.float32)

    def _batch_of(self, requests: Sequence[GenerationRequest]) -> list[GeneratedImage]:
        result = self._denoised(requests, output_type="np")
        if len(result.images) != len(requests):
            raise ServiceError(f"a pipeline answered {len(requests)} prompts with {len(result.images)} images")
        censored = _censored(result, len(requests))
        return [checked_image(image, self._size, blank) for image, blank in zip(result.images, censored, strict=True)]

    def _denoised(self, requests: Sequence[GenerationRequest], output_type: str) -> Any:
        """Returns the pipeline's images for the requests, each from its own noise."""
        noise = [torch.Generator("cpu").manual_seed(request.seed) for request in requests]
        prompts = [request.prompt for request in requests]
        try:
            with torch.inference_mode(), self._steered([request.seed for request in requests]):
                return self._pipeline(prompt=prompts, generator=noise, output_type=output_type, **self._settings)
        except torch.OutOfMemoryError as error:
            raise ServiceError(f"{len(requests)} images at once are too many for the device; give batch=") from error

    def _steered(self, seeds: Sequence[int]) -> AbstractContextManager[None]:
        if self._steering is None:
            return nullcontext()
        observe = partial(self._steering.steered, seeds)
        return activation_heads.watched(self._pipeline, self._steering.activation, observe, first=True)


def load(spec: Spec) -> DiffusersGenerator:
    """Loads the generator of a `diffusers:` spec. Raises SpecError for wrong names and WeightsError for weights that
    cannot be used."""
    spec.options_among(_OPTIONS)
    device, batch, size = device_of(spec), positive(spec, "batch", _BATCH), _size(spec)
    dtype = _dtype(spec)
    compiled = truth(spec, "compile", False)
    directory = _directory(spec)
    files = _checked_files(spec, directory)
    pipeline = _pipeline(spec, directory, DTYPES[dtype])
    settings = _settings(spec, size)
    _check_settings(spec, pipeline, settings)
    scheduler = _set_scheduler(spec, pipeline)
    pipeline.set_progress_bar_config(disable=True)
    merge_adapter(pipeline, spec)
    pipeline.to(device)
    steering = load_steering(pipeline, spec)
    _quicken(pipeline, device, compiled)
    return DiffusersGenerator(pipeline, settings, size, _revision(files, settings, dtype, scheduler), batch, steering)


def describe(spec: Spec) -> Description:
    """Returns the description of a spec from the hashes of its files and the name of its scheduler."""
    options = spec.options_among(_OPTIONS)
    directory = _directory(spec)
    files = _checked_files(spec, directory)
    try:
        entry = json.loads((directory / _INDEX).read_text(encoding="utf-8")).get("scheduler") or [None, None]
        scheduler = options.get("scheduler") or entry[1] or ""
    except (ValueError, AttributeError, TypeError, IndexError) as error:
        raise WeightsError(f"{spec.text}: diffusers cannot build its pipeline: {_INDEX}: {error}") from error
    return Description(_revision(files, _settings(spec, _size(spec)), _dtype(spec), scheduler))


def _revision(files: Sequence[Path], settings: dict[str, Any], dtype: str, scheduler: str) -> str:
    return content_id("diffusers", weights.file_revision(*files), settings, dtype, scheduler)


def _dtype(spec: Spec) -> Precision:
    return devices.precision(spec.options.get("dtype"), spec.text) or "fp32"


def _directory(spec: Spec) -> Path:
    local = spec.name.startswith("local-dir:")
    return Path(spec.name.removeprefix("local-dir:")) if local else _downloaded(spec)


def _downloaded(spec: Spec) -> Path:
    repository, _, revision = spec.name.partition("@")
    try:
        return Path(DiffusionPipeline.download(repository, revision=revision or None, use_safetensors=True))
    except (HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SpecError(
            f"{spec.text}: {repository} cannot be fetched from the model hub ({reason}); a directory of your own is "
            "diffusers:local-dir:PATH"
        ) from error


def _checked_files(spec: Spec, directory: Path) -> list[Path]:
    """Returns all files that a revision depends on. Refuses code, and pickles without safetensors beside them."""
    if not (directory / _INDEX).is_file():
        raise SpecError(f"{spec.text}: {directory} holds no {_INDEX}; expected a directory that diffusers saved")
    code = next(directory.rglob("*.py"), None)
    if code is not None:
        raise WeightsError(f"{spec.text}: brings code of its own ({code.name}), which is not run")
    tensors = sorted(directory.glob("*/*.safetensors"))
    for file in tensors:
        weights.checked(file)
    safe = {file.parent for file in tensors}
    for file in sorted(directory.glob("*/*")):
        if file.suffix in (".bin", ".pt", ".pth", ".ckpt") and file.parent not in safe:
            weights.checked(file)  # which refuses it, and says what to do
    if not tensors:
        raise WeightsError(f"{spec.text}: {directory} holds no safetensors")
    texts = [file for pattern in ("*.json", "*/*.json", "*/*.txt", "*/*.model") for file in directory.glob(pattern)]
    return [*tensors, *sorted(texts), *adapter_files(spec)]


def _pipeline(spec: Spec, directory: Path, dtype: torch.dtype) -> Any:
    try:
        pipeline: Any = DiffusionPipeline.from_pretrained(
            directory,
            use_safetensors=True,
            local_files_only=True,
            dtype=dtype,
            low_cpu_mem_usage=False,  # else it wants the package accelerate
            **networks(directory, dtype),
        )
    except (json.JSONDecodeError, AttributeError, KeyError, TypeError, OSError, ValueError, RuntimeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(f"{spec.text}: diffusers cannot build its pipeline: {lines[:500]}") from error
    missing = {"prompt", "generator", "output_type"} - set(parameters(pipeline))
    if missing:
        raise SpecError(f"{spec.text}: {type(pipeline).__name__} makes no images from texts: it takes no {missing}")
    return pipeline


def _settings(spec: Spec, size: tuple[int, int] | None) -> dict[str, Any]:
    """Returns the arguments of every call of the pipeline."""
    result: dict[str, Any] = {}
    if "steps" in spec.options:
        result["num_inference_steps"] = positive(spec, "steps", 1)
    if "guidance" in spec.options:
        result["guidance_scale"] = _guidance(spec)
    if size is not None:
        result["height"], result["width"] = size
    return result


def _check_settings(spec: Spec, pipeline: Any, settings: dict[str, Any]) -> None:
    """Raises SpecError for options that this pipeline does not have."""
    for name in settings:
        if name not in parameters(pipeline):
            raise SpecError(f"{spec.text}: {type(pipeline).__name__} has no {name}")


def parameters(pipeline: Any) -> list[str]:
    return list(inspect.signature(type(pipeline).__call__).parameters)


def _guidance(spec: Spec) -> float:
    try:
        value = float(spec.options["guidance"])
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise SpecError(f"{spec.text}: guidance={spec.options['guidance']!r} is not a number of 0 or above")
    return value


def _size(spec: Spec) -> tuple[int, int] | None:
    if "size" not in spec.options:
        return None
    height, _, width = spec.options["size"].partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise SpecError(f"{spec.text}: size={spec.options['size']!r} is not HEIGHTxWIDTH, such as 512x512")
    return int(height), int(width)


def _set_scheduler(spec: Spec, pipeline: Any) -> str:
    """Sets the scheduler that the options name, and returns the name of the scheduler's class."""
    name = spec.options.get("scheduler")
    if getattr(pipeline, "scheduler", None) is None:
        if name is not None:
            raise SpecError(f"{spec.text}: {type(pipeline).__name__} has no scheduler to replace")
        return ""
    if name is not None:
        compatible = {kind.__name__ for kind in pipeline.scheduler.compatibles}
        if name not in compatible:
            raise SpecError(f"{spec.text}: no scheduler {name!r} for this pipeline; {nearest(name, compatible)}")
        pipeline.scheduler = getattr(diffusers, name).from_config(pipeline.scheduler.config)
    if hasattr(pipeline.scheduler, "noise_sampler"):
        kind = type(pipeline.scheduler).__name__
        raise SpecError(f"{spec.text}: {kind} draws one noise for a whole batch, so rows would depend on neighbours")
    return type(pipeline.scheduler).__name__


def _quicken(pipeline: Any, device: torch.device, compiled: bool) -> None:
    denoiser = next(
        (getattr(pipeline, name) for name in activation_heads.DENOISERS if getattr(pipeline, name, None)), None
    )
    if device.type == "cuda":
        for module in (denoiser, getattr(pipeline, "vae", None)):
            if module is not None:
                module.to(memory_format=torch.channels_last)
    if compiled and denoiser is not None:
        denoiser.compile()


def _censored(result: Any, count: int) -> list[bool]:
    """Tells which rows a safety checker has blanked; pipelines without one return nothing or None."""
    flags = getattr(result, "nsfw_content_detected", None) or getattr(result, "nsfw_detected", None)
    return [bool(flag) for flag in flags] if flags is not None else [False] * count
