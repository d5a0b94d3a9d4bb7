"""Image classifiers of transformers, with the model's own image processor.

    hf:org/name        from the Hugging Face hub
    hf:PATH            a directory with config.json, model.safetensors and preprocessor_config.json

Options: revision (of the repository), labels (file of names), device, batch. Label names come from `labels`, else from
config.json (`id2label`). Weights are read from safetensors alone, and no code of a repository is run.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from PIL import Image
from torch import nn
from transformers import AutoImageProcessor, AutoModelForImageClassification

from c2b_ray.errors import WeightsError
from c2b_ray.models import weights
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import label_names
from c2b_ray.models.torch_runtime import TorchClassifier, batch_of, device_of
from c2b_ray.schemas import content_id

_OPTIONS = ("revision", "labels", "device", "batch")


def load(spec: Spec) -> TorchClassifier:
    """The classifier of an `hf:` spec. SpecError: nothing there to read. WeightsError: no safetensors, or of no use."""
    options = spec.options_among(_OPTIONS)
    device = device_of(spec)
    batch = batch_of(spec, device)
    directory = weights.directory(spec.name, spec.text, options.get("revision"), ["*.json"])
    files = sorted(directory.glob("*.safetensors"))
    try:
        model = cast(Any, AutoModelForImageClassification).from_pretrained(
            directory, use_safetensors=True, trust_remote_code=False, local_files_only=True
        )
        processor = cast(Any, AutoImageProcessor).from_pretrained(
            directory, trust_remote_code=False, local_files_only=True
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(f"{spec.text}: transformers makes no image classifier of it: {lines[:500]}") from error
    own = tuple(str(model.config.id2label[i]) for i in range(model.config.num_labels))
    labels = label_names(spec, model.config.num_labels, own)
    revision = content_id("hf", weights.file_revision(*files), processor.to_dict(), labels)
    return TorchClassifier(_Logits(model), _Processed(processor), labels, revision, device, batch)


class _Logits(nn.Module):
    """The logits of a model that answers with a record."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(pixel_values=pixels).logits
        return logits


class _Processed:
    """A picture as its processor gives it to the model."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def __call__(self, image: Image.Image) -> torch.Tensor:
        pixels: torch.Tensor = self._processor(images=image, return_tensors="pt")["pixel_values"][0]
        return pixels
