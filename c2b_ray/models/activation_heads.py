"""Linear heads on a generator's activations: trained, measured on held-out prompts, kept as safetensors.

The nearest published recipe is DiffLens's: the mid-block of the UNet, one head for each denoising step, Adam at 1e-3
for 30 epochs. Here the same linear head is trained to its optimum by L-BFGS, features standardised, every value
counting alike however rare, and weights decaying: hundreds of examples are too few for 30 epochs of small steps.
It knows torch and files, and does not know what the heads guide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from c2b_ray.errors import WeightsError
from c2b_ray.roles import Floats

DECAY = 0.1
"""The weight of the squared weights in the loss: our choice, not tuned; the notes on the paper name none."""
MOST_ITERATIONS = 200


@dataclass(frozen=True)
class LinearHead:
    """A linear head with the fields of `steps.prompts.guide.Head`: `weight` (dimension, values), `bias` (values,),
    `mean`, `scale` (dimension,), all float32."""

    weight: Floats
    bias: Floats
    mean: Floats
    scale: Floats

    def logits(self, activations: Floats) -> Floats:
        """Returns logits (rows, values) of activations (rows, dimension)."""
        features = (activations - self.mean) / self.scale
        return np.asarray(features @ self.weight + self.bias, np.float32)


def train_head(activations: Floats, labels: NDArray[np.int64], values: int) -> LinearHead:
    """Trains a head that predicts the value of each row. activations: (rows, dimension); labels: (rows,), below
    `values`.

    Every value counts alike, so that the head's probabilities are those under equal shares of values.
    """
    mean = activations.mean(axis=0)
    scale = activations.std(axis=0) + 1e-3 * max(float(activations.std()), 1e-6)
    features = torch.from_numpy((activations - mean) / scale)
    targets = torch.from_numpy(labels)
    counts = torch.bincount(targets, minlength=values).clamp(min=1)
    class_weights = len(labels) / (values * counts.float())
    gain = features.shape[1] ** -0.5  # so that one decay serves layers of any width
    features = gain * features
    weight = torch.zeros(activations.shape[1], values, requires_grad=True)
    bias = torch.zeros(values, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=MOST_ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        result = F.cross_entropy(features @ weight + bias, targets, class_weights)
        result = result + DECAY / (2 * len(targets)) * (weight**2).sum()
        result.backward()  # type: ignore[no-untyped-call]
        return result

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    trained = (gain * weight.detach()).numpy().astype(np.float32)
    return LinearHead(trained, bias.detach().numpy(), mean.astype(np.float32), scale.astype(np.float32))


def encoded(heads: Mapping[int, LinearHead], about: Mapping[str, Any]) -> bytes:
    """Encodes heads by denoising step as safetensors, with `about` (JSON values) in their metadata."""
    tensors = {
        f"{step}.{name}": np.ascontiguousarray(getattr(head, name))
        for step, head in heads.items()
        for name in ("weight", "bias", "mean", "scale")
    }
    return save(tensors, {name: json.dumps(value) for name, value in about.items()})


def decoded(data: bytes, name: str) -> tuple[dict[int, LinearHead], dict[str, Any]]:
    """Decodes heads by denoising step and the metadata stored with them. Raises WeightsError where the bytes of file
    `name` are something else."""
    try:
        tensors = load(data)
        length = int.from_bytes(data[:8], "little")
        noted = json.loads(data[8 : 8 + length]).get("__metadata__", {})
        about = {key: json.loads(value) for key, value in noted.items()}
        heads = {
            step: LinearHead(*(tensors[f"{step}.{part}"] for part in ("weight", "bias", "mean", "scale")))
            for step in sorted({int(key.split(".")[0]) for key in tensors})
        }
        if missing := {"attribute", "values", "activation", "step"} - set(about):
            raise KeyError(*missing)
    except (KeyError, ValueError, SafetensorError) as error:
        raise WeightsError(f"{name} holds no heads as c2b prompts heads writes them ({error})") from error
    return heads, about
