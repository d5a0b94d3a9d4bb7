"""Image classifiers of transformers, with the model's own image processor.

    hf:org/name        from the Hugging Face hub
    hf:PATH            a directory with config.json, model.safetensors and preprocessor_config.json

Options: revision (of the repository), labels (file of names), head (`models.heads`; else by config.json's
`problem_type`), device, batch, precision (fp32, tf32, bf16, fp16), compile (true, false), tensors and unused
(`tensor_names`). Label names come from `labels`, else from config.json (`id2label`). Weights are read from safetensors
only, each tensor of the model from the file (`transformers_weights`), and no code from a repository is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import nn
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification

from c2b_ray.errors import InputError, SpecError, WeightsError
from c2b_ray.models import weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.heads import outputs_of, stated_head
from c2b_ray.models.spec_options import by_number, label_fact, normalisation_words, options_of
from c2b_ray.models.tensor_names import selection_of
from c2b_ray.models.torch_runtime import TorchClassifier, as_computed, runtime_of, with_complement
from c2b_ray.models.transformers_weights import check_header, load_strictly
from c2b_ray.roles import Description, Head, ModelFact
from c2b_ray.storage.manifest import read_json
from c2b_ray.tables import content_id

_OPTIONS = options_of("classifier", "hf")
_CONFIG, _PROCESSOR = "config.json", "preprocessor_config.json"
_ADAPTER = "adapter_config.json"
_TRIED_SIZES = ((96, 64), (64, 96), (80, 80), (31, 47), (517, 375), (375, 517), (2051, 1031))
"""Widths and heights on both sides of what processors resize from, pad to or divide by."""
_ERRORS = (OSError, ValueError, LookupError, ArithmeticError, RuntimeError, TypeError, AttributeError, ImportError)
"""What transformers raises where files or settings do not suit it."""
_UNIT = "pixels from 0 to 1"


def load(spec: Spec) -> TorchClassifier:
    """Loads the classifier of an `hf:` spec. Raises SpecError where there are no files and WeightsError where there are
    no usable safetensors, or where they lack a tensor."""
    runtime = runtime_of(spec)
    directory = _directory(spec)
    with _refused(spec, directory):
        loaded = load_strictly(AutoModelForImageClassification, directory, selection_of(spec), **_LOCAL)
        processor = cast(Any, AutoImageProcessor).from_pretrained(directory, **_LOCAL)
        if not _is_of_one_size(processor):
            runtime = replace(runtime, batch=1)
    description = _known(spec, directory, loaded.model.config, processor, loaded.facts)
    module = with_complement(_Logits(loaded.model), loaded.model.config.num_labels)
    return TorchClassifier(
        module,
        _Processed(processor),
        description.labels,
        description.revision,
        runtime,
        description.facts,
        description.head,
    )


def describe(spec: Spec) -> Description:
    """Returns the description from the configs of the model and of its processor, and the weights' hash and header."""
    directory = _directory(spec)
    with _refused(spec, directory):
        config, processor = (kind.from_pretrained(directory, **_LOCAL) for kind in (AutoConfig, AutoImageProcessor))
        facts = check_header(AutoModelForImageClassification, directory, selection_of(spec), **_LOCAL)
        _is_of_one_size(processor)  # or what keeps it from preparing any picture
    return _known(spec, directory, config, processor, facts)


_LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}


def _directory(spec: Spec) -> Path:
    options = spec.options_among(_OPTIONS)
    directory = weights.directory(spec.name, spec.text, options.get("revision"), ["*.json"])
    if (directory / _ADAPTER).is_file():
        # transformers would take the other weights from wherever this file says, and a revision would not know them.
        raise WeightsError(
            f"{spec.text}: {directory} holds a PEFT adapter ({_ADAPTER}), whose other weights lie elsewhere; merge it "
            "into its model with `merge_and_unload()`, and give the folder to which `save_pretrained` then writes"
        )
    return directory


@contextmanager
def _refused(spec: Spec, directory: Path) -> Iterator[None]:
    """Turns what transformers raises into WeightsError."""
    try:
        yield
    except _ERRORS as error:
        lines = " ".join(str(error).split())
        hint = f". Its {_CONFIG} is timm's: write timm:{spec.name}" if _is_of_timm(directory) else ""
        raise WeightsError(f"{spec.text}: transformers makes no image classifier of it: {lines[:500]}{hint}") from error


def _is_of_timm(directory: Path) -> bool:
    try:
        config = read_json(directory / _CONFIG)
    except (OSError, ValueError, InputError):
        return False
    return isinstance(config, dict) and "architecture" in config and "pretrained_cfg" in config


def _known(spec: Spec, directory: Path, config: Any, processor: Any, facts: tuple[ModelFact, ...]) -> Description:
    default_names = None if "labels" in spec.options else by_number(config.id2label, f"{directory}/{_CONFIG}: id2label")
    if default_names is not None:
        _check_numbers(spec, default_names, config.label2id or {})
    outputs = outputs_of(spec, config.num_labels, default_names, *_head(spec, config))
    labels = outputs.labels
    files = sorted(directory.glob("*.safetensors"))
    identity = weights.file_revision(*files)
    revision = content_id("hf", identity, processor.to_dict(), labels, *selection_of(spec).identity, *outputs.identity)
    unnamed = default_names is None or all(name == f"LABEL_{i}" for i, name in enumerate(default_names))
    labels_fact = label_fact(spec, labels, None if unnamed else f"{_CONFIG} (id2label)")
    architecture = ", ".join(config.architectures or [config.model_type])
    all_facts = (
        *facts,
        ModelFact("architecture", architecture, _CONFIG),
        labels_fact,
        *outputs.facts,
        *_processing(processor),
    )
    return as_computed(Description(revision, labels, head=outputs.head, facts=all_facts), spec)


def _check_numbers(spec: Spec, names: list[str], number_of: Mapping[str, Any]) -> None:
    """Raises SpecError where label2id gives one of the names another number than id2label, so that one is wrong."""
    for name, number in number_of.items():
        if name in names and str(number).isdecimal() and names[int(number) : int(number) + 1] != [name]:
            raise SpecError(
                f"{spec.text}: its {_CONFIG} numbers the labels in two ways: {name!r} is {names.index(name)} by "
                f"id2label and {number} by label2id; give the names with ?labels=PATH, one a line, in the order of the "
                "outputs"
            )


def _head(spec: Spec, config: Any) -> tuple[Head | None, str]:
    """Returns the head that config.json tells, and where. Raises SpecError for a regression, which scores no label."""
    problem = getattr(config, "problem_type", None)
    if problem == "regression" and stated_head(spec) is None:
        raise SpecError(
            f"{spec.text}: its {_CONFIG} says problem_type: regression, a number that is no label's score; if it "
            "is one, add ?head=sigmoid"
        )
    return ("sigmoid", f"{_CONFIG} (problem_type)") if problem == "multi_label_classification" else (None, "")


def _is_of_one_size(processor: Any) -> bool:
    """Tells whether pictures of every shape are prepared as tensors of one, so that several make a batch. Raises what
    the processor raises where it prepares none of them."""
    prepare, shapes, failure = _Processed(processor), set[torch.Size](), None
    for size in _TRIED_SIZES:
        try:
            shapes.add(prepare(Image.new("RGB", size)).shape)
        except _ERRORS as error:  # some pad small pictures with what these do not have
            failure = error
    if failure is not None and not shapes:
        raise failure
    return len(shapes) == 1


def _processing(processor: Any) -> Iterator[ModelFact]:
    """Yields what the image processor does."""
    settings = processor.to_dict()
    if settings.get("do_resize", True) and settings.get("size"):
        value = " × ".join(f"{name} {side}" for name, side in settings["size"].items() if side)
        if settings.get("do_center_crop") and settings.get("crop_size"):
            value += f", crop {' × '.join(str(side) for side in settings['crop_size'].values() if side)}"
        yield ModelFact("input size", value, _PROCESSOR)
    scaled = _scaled(settings)
    # Where a processor states none, its attribute says whether it does: MobileViT's has a mean that it does not use.
    is_normalised = settings.get("do_normalize", getattr(processor, "do_normalize", True))
    if is_normalised and settings.get("image_mean") and settings.get("image_std"):
        mean, std = (np.atleast_1d(settings[name]).tolist() for name in ("image_mean", "image_std"))
        scale = "" if scaled == _UNIT else f" of {scaled}"
        yield ModelFact("normalisation", normalisation_words(mean, std) + scale, _PROCESSOR)
    else:
        yield ModelFact("normalisation", scaled if settings.get("do_rescale", True) else "none", _PROCESSOR)


def _scaled(settings: Mapping[str, Any]) -> str:
    """Returns the range of the pixels before they are normalised."""
    factor = settings.get("rescale_factor") if settings.get("do_rescale", True) else 1
    offset = 1 if settings.get("rescale_offset") else 0
    return f"pixels from {-offset} to {255 * (1 / 255 if factor is None else factor) - offset:.4g}"


class _Logits(nn.Module):
    """A module that returns only the logits of a model's output record."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(pixel_values=pixels).logits
        return logits


class _Processed:
    """Prepares a picture with the model's image processor."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, image: Image.Image) -> torch.Tensor:
        prepared = self.processor(images=image, return_tensors="pt")
        if "pixel_values" not in prepared:  # such as ImageGPT's, which makes words of pictures
            raise ValueError(f"its image processor gives {', '.join(prepared)}, and no pixel_values")
        pixels: torch.Tensor = prepared["pixel_values"][0]
        return pixels
