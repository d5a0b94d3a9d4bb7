"""Trains a decoder whose latent space is known: each attribute lies along one direction of a random rotation.

A latent z ~ N(0, I) is rotated; the normal distribution function of each of the first coordinates is an attribute's
share of its range, and the decoder learns the picture. So the hyperplane of every attribute is known exactly, and no
axis is an attribute: the truth itself judges a search, and not labels. It knows worlds; no searches.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from c2b_ray.models.latent_generators import LatentNetwork, NetworkConfig, network
from c2b_ray.world.training.checkpoints import pace, set_rate
from c2b_ray.world.training.latent.vaes import as_tensor, initialise, multiscale_error
from c2b_ray.world.training.latent.worlds import AttributeWorld

KINDS = ("known", "known-2", "known-3")
"""Decoders that differ only in the rotation."""


@dataclass(frozen=True)
class Recipe:
    pictures: int = 10_000
    steps: int = 2_000
    batch: int = 64
    rate: float = 3e-3
    dimension: int = 10
    width: int = 8
    hidden: int = 128


def normals(dimension: int, attributes: int, seed: int) -> NDArray[np.float64]:
    """Returns the unit normal of each attribute's hyperplane through the origin, towards side 1; (attributes,
    dimension)."""
    rotation, _ = np.linalg.qr(np.random.default_rng([seed, 11]).standard_normal((dimension, dimension)))
    return np.ascontiguousarray(rotation[:, :attributes].T)


def train(attribute_world: AttributeWorld, kind: str, seed: int, recipe: Recipe) -> tuple[LatentNetwork, NetworkConfig]:
    """Trains a decoder of the world's pictures. ValueError for a kind outside KINDS."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    seed = seed + 1000 * KINDS.index(kind)
    torch.manual_seed(seed)
    directions = normals(recipe.dimension, len(attribute_world.attributes), seed)
    latents = np.random.default_rng(seed).standard_normal((recipe.pictures, recipe.dimension)).astype(np.float32)
    images = attribute_world.images(attribute_world.rows_at(norm.cdf(latents @ directions.T)))
    truth = dict(zip(attribute_world.attributes, directions.tolist(), strict=True))
    about: dict[str, Any] = {"family": "known", "seed": seed, "recipe": asdict(recipe), "normals": truth}
    config = NetworkConfig(
        kind="vae",
        dimension=recipe.dimension,
        size=images.shape[1],
        width=recipe.width,
        hidden=recipe.hidden,
        about=about,
    )
    model = network(config)
    initialise(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate)
    generator = np.random.default_rng(seed)
    started = time.time()
    for step in range(recipe.steps):
        set_rate(optimizer, pace(step, recipe.steps, recipe.rate))
        rows = generator.integers(0, len(images), recipe.batch)
        loss = multiscale_error(model.decode(torch.from_numpy(latents[rows])), as_tensor(images[rows]))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % 500 == 499:
            print(f"  {kind} {step + 1}/{recipe.steps} {time.time() - started:.0f}s {loss:.4f}", flush=True)
    return model.eval(), config
