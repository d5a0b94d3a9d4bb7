"""Debiasing of a diffusers pipeline by a fine-tuned adapter (LoRA) or at test time, as in DiffLens.

    lora=FOLDER                  an adapter as peft saves it, merged into the denoiser
    debias=HEADS.safetensors     heads of `c2b prompts heads`: each image is drawn towards a value that its seed chooses

At test time the activations that the heads read are moved, at each step, by the least amount that makes the head
predict the chosen value; values are chosen with equal probability. (DiffLens steers features of a sparse autoencoder in
the same place; here the directions are the heads' own.) It knows torch, peft and heads, and not what is generated.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict
from torch import Tensor

from c2b_ray.errors import SpecError, WeightsError
from c2b_ray.models import activation_heads, weights
from c2b_ray.models import activation_heads as diffusion_activations
from c2b_ray.models.catalog import Spec
from c2b_ray.models.tensor_names import check_fit, kinds_of
from c2b_ray.tables import seed_of

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
    name = diffusion_activations.denoiser_name(pipeline)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Found missing adapter keys")  # an error here, by the next line
            adapted: Any = PeftModel.from_pretrained(getattr(pipeline, name), folder)
        _check_adapter(adapted, Path(folder) / ADAPTER)
        setattr(pipeline, name, adapted.merge_and_unload())
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        lines = " ".join(str(error).split())
        raise WeightsError(f"{spec.text}: the adapter does not fit the {name}: {lines[:300]}") from error


def _check_adapter(adapted: Any, file: Path) -> None:
    """Raises WeightsError where peft made up tensors of an adapter, or left some unread."""
    expected = kinds_of(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    check_fit(expected, weights.read_kinds(file), file, "its adapter_config.json")


@dataclass(frozen=True)
class Steering:
    """Heads of an attribute by denoising step, as tensors on the denoiser's device: weight / scale (dimension, values),
    and the bias for unstandardised activations."""

    activation: str
    heads: dict[int, tuple[Tensor, Tensor]]

    def steered(self, step: int, output: Tensor, seeds: Sequence[int]) -> Tensor:
        """Returns the output with the rows of the prompts moved; each row depends on its own seed only."""
        weight, bias = self.heads[min(self.heads, key=lambda head_step: abs(head_step - step))]
        rows = diffusion_activations.conditional(output, len(seeds))
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


def steering(pipeline: Any, spec: Spec) -> Steering | None:
    """Loads the steering of a spec's `debias`; None without it. Raises SpecError for heads of an activation that the
    pipeline does not have."""
    path = spec.options.get("debias")
    if path is None:
        return None
    heads, metadata = activation_heads.decoded(weights.checked(path).read_bytes(), path)
    name = str(metadata["activation"])
    diffusion_activations.module_of(pipeline, name)
    device = getattr(pipeline, diffusion_activations.denoiser_name(pipeline)).device
    tensors = {}
    for step, head in heads.items():
        weight = torch.from_numpy(head.weight / head.scale[:, None])
        tensors[step] = (
            weight.to(device),
            (torch.from_numpy(head.bias) - torch.from_numpy(head.mean) @ weight).to(device),
        )
    return Steering(name, tensors)
