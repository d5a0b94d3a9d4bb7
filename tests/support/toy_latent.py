"""A latent space whose pictures are almost affine in the latents, with labels, and classifiers of known response."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from c2b_ray.models import catalog
from c2b_ray.models.latent_generators import NetworkConfig, network, write
from c2b_ray.models.memory_classifier import InMemory, Preprocess

DIMENSION = 6
ATTRIBUTES = ("target", "first", "second", "third")


def toy_generator(folder: Path, seed: int = 1) -> str:
    config = NetworkConfig(kind="vae", dimension=DIMENSION, size=16, width=8, hidden=32)
    torch.manual_seed(seed)
    write(network(config), config, folder, half=False)
    return f"vae:local-dir:{folder}"


def toy_labels(generator: str, path: Path, count: int = 1500) -> str:
    """Writes labels; attribute number k is the sign of latent coordinate k."""
    latents = catalog.latent_generator(generator).sample(count, 77)
    columns = {name: latents[:, number] > 0 for number, name in enumerate(ATTRIBUTES)}
    pq.write_table(pa.table({"latent": pa.array(list(latents), pa.list_(pa.float32())), **columns}), path)
    return str(path)


def toy_classifier(generator: str, response: Sequence[float]) -> InMemory:
    """Returns a classifier that is linear in the pixels, fitted so that its log odds are `response` times the
    latents."""
    loaded = catalog.latent_generator(generator)
    latents = loaded.sample(1500, 5)
    with torch.no_grad():
        pixels = loaded.images(torch.from_numpy(latents)).flatten(1).double()
    wanted = torch.from_numpy(latents @ np.asarray(response, np.float32)).double()
    ones = torch.cat([pixels, torch.ones(len(pixels), 1, dtype=torch.float64)], dim=1)
    gram = ones.T @ ones + 1e-7 * torch.eye(ones.shape[1], dtype=torch.float64)
    solution = torch.linalg.solve(gram, ones.T @ wanted)
    layer = nn.Linear(pixels.shape[1], 2)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([torch.zeros_like(solution[:-1]), solution[:-1]]).float())
        layer.bias.copy_(torch.stack([torch.zeros_like(solution[-1]), solution[-1]]).float())
    module = nn.Sequential(nn.Flatten(), layer)
    return InMemory(module, ["no", "yes"], Preprocess(16, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))
