"""Image classifiers of transformers, with the model's own image processor.

    hf:org/name        from the Hugging Face hub
    hf:PATH            a directory with config.json, model.safetensors and preprocessor_config.json

Options: revision (of the repository), labels (file of names), device, batch, precision (fp32, bf16, fp16). Label names
come from `labels`, else from config.json (`id2label`). Weights are read from safetensors only, and no code from a
repository is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from transformers import AutoConfig, AutoImageProcessor, AutoModelForImageClassification

from c2b_ray.errors import WeightsError
from c2b_ray.models import weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import label_names
from c2b_ray.models.torch_runtime import TorchClassifier, revised, runtime_of
from c2b_ray.models.written_names import by_number
from c2b_ray.roles import Description
from c2b_ray.schemas import content_id

_OPTIONS = ("revision", "labels", "device", "batch", "precision")


def load(spec: Spec) -> TorchClassifier:
    """Loads the classifier of an `hf:` spec. Raises SpecError where there are no files and WeightsError where there are
    no usable safetensors."""
    runtime = runtime_of(spec)
    directory = _directory(spec)
    model = _from(directory, spec, AutoModelForImageClassification, use_safetensors=True)
    processor = _from(directory, spec, AutoImageProcessor)
    known = _known(spec, directory, model.config, processor)
    return TorchClassifier(_Logits(model), _Processed(processor), known.labels, known.revision, runtime)


def describe(spec: Spec) -> Description:
    """Returns the description from the configs of the model and of its processor, and the weights' hash."""
    directory = _directory(spec)
    config, processor = (_from(directory, spec, kind) for kind in (AutoConfig, AutoImageProcessor))
    return _known(spec, directory, config, processor)


def _directory(spec: Spec) -> Path:
    options = spec.options_among(_OPTIONS)
    return weights.directory(spec.name, spec.text, options.get("revision"), ["*.json"])


def _from(directory: Path, spec: Spec, kind: Any, **options: Any) -> Any:
    try:
        return kind.from_pretrained(directory, trust_remote_code=False, local_files_only=True, **options)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(f"{spec.text}: transformers makes no image classifier of it: {lines[:500]}") from error


def _known(spec: Spec, directory: Path, config: Any, processor: Any) -> Description:
    usual = by_number(config.id2label, f"{directory}/config.json: id2label") if "labels" not in spec.options else None
    labels = label_names(spec, config.num_labels, usual)
    files = sorted(directory.glob("*.safetensors"))
    revision = content_id("hf", weights.file_revision(*files), processor.to_dict(), labels)
    return Description(revised(revision, spec), labels)


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
        pixels: torch.Tensor = self.processor(images=image, return_tensors="pt")["pixel_values"][0]
        return pixels
