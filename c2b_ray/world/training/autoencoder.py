"""Trains the world's variational autoencoder: from 64-pixel pictures to 8 by 8 latents of eight channels, and back.

Knows diffusers' AutoencoderKL and rendered scenes; does not know texts, nor where shipped weights lie. The loss
compares pixels, and features of the vision tower of the world's open_clip model: a loss on pixels alone would blur rain
and snow, whose positions no latent can store. The object weighs more than its area: a small object covers three
hundredths of the pixels, yet shows the class, colour and pattern that prompts name.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL
from numpy.typing import NDArray
from torch import Tensor, nn

from c2b_ray.world.scenes import Scene, sample
from c2b_ray.world.training import checkpoints
from c2b_ray.world.training.classifiers import MEAN, STD
from c2b_ray.world.truth import render_all

CHANNELS = (16, 32, 64, 64)
LATENTS = 8
_CHECKPOINT = "checkpoint.safetensors"
_PICTURES_FOR_SCALE = 512


@dataclass(frozen=True)
class Recipe:
    """`scenes`: the number of scenes to draw from, rendered in every step. `seen`: the weight of the vision tower's
    features, that of pixels is 1. `object_weight`: the weight of the object, whatever its area, that of the whole
    picture is 1. From step `decoder_from` on the encoder is frozen, so that a diffusion model can learn its latents
    while the decoder still improves."""

    scenes: int = 40_000
    steps: int = 10_000
    batch: int = 16
    rate: float = 1.2e-3
    seen: float = 0.3
    object_weight: float = 0.5
    decoder_from: int = 6_000
    divergence: float = 1e-6
    save_every: int = 100


def create() -> Any:
    """Builds a network of about a million parameters, most of them at the lowest resolutions, where they cost least."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * len(CHANNELS),
        up_block_types=("UpDecoderBlock2D",) * len(CHANNELS),
        block_out_channels=CHANNELS,
        layers_per_block=1,
        latent_channels=LATENTS,
        norm_num_groups=8,
        sample_size=64,
    ).to(memory_format=torch.channels_last)


def train(
    out: Path, seed: int, encoder: Path, recipe: Recipe | None = None, work: Path | None = None
) -> dict[str, Any]:
    """Trains from the start, or from the checkpoint in `work`, and writes a diffusers directory; returns the training's
    record.

    encoder: the directory of the world's open_clip model. work: the directory of the checkpoint, by default `out`.work.
    """
    recipe = recipe or Recipe()
    checkpoint = (work or out.with_name(f"{out.name}.work")) / _CHECKPOINT
    torch.manual_seed(seed)
    model, features = create(), PerceptualFeatures(encoder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, betas=(0.9, 0.98), weight_decay=0.0)
    first = checkpoints.restore(checkpoint, model, optimizer)
    scenes = sample(recipe.scenes, seed)
    started = time.time()
    for step in range(first, recipe.steps):
        checkpoints.set_rate(optimizer, checkpoints.pace(step, recipe.steps, recipe.rate))
        images, weights = _batch(scenes, recipe, seed, step)
        trains_encoder = step < recipe.decoder_from
        losses = _step(model, features, optimizer, (images, weights), recipe, trains_encoder)
        if step % 25 == 24:
            each = " ".join(f"{name} {value:.4f}" for name, value in losses.items())
            print(f"vae {step + 1}/{recipe.steps} {time.time() - started:.0f}s {each}", flush=True)
        if (step + 1) % recipe.save_every == 0:
            checkpoints.save(checkpoint, step + 1, model, optimizer)
    _set_scale(model, scenes)
    save(model, out)
    how = {"seed": seed, "recipe": vars(recipe), "seconds": round(time.time() - started)}
    return {"training": how, "parameters": sum(p.numel() for p in model.parameters())}


class PerceptualFeatures:
    """Computes features of pictures by the layers of the open_clip model's frozen vision tower."""

    def __init__(self, directory: Path) -> None:
        model: Any = open_clip.create_model(f"local-dir:{directory}")
        self._tower = model.visual.eval().requires_grad_(False).to(memory_format=torch.channels_last)
        self._mean = torch.tensor(MEAN)[:, None, None]
        self._std = torch.tensor(STD)[:, None, None]

    def __call__(self, images: Tensor) -> list[Tensor]:
        """Returns unit-norm features of every layer for pictures in [−1, 1]: the first ones show texture, the last ones
        the object."""
        tower = self._tower
        layers = [tower.stem(((images + 1) / 2 - self._mean) / self._std)]
        for layer in (tower.layer1, tower.layer2, tower.layer3, tower.layer4):
            layers.append(layer(layers[-1]))
        return [F.normalize(result, dim=1) for result in layers]


def pixels(images: NDArray[np.uint8]) -> Tensor:
    """Scales pictures to [−1, 1], as diffusers expects them."""
    batch = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 127.5 - 1
    return batch.contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def decode(model: Any, latents: Tensor) -> NDArray[np.uint8]:
    """Decodes scaled latents to pictures, uint8 (rows, 64, 64, 3)."""
    result = model.decode(latents / model.config.scaling_factor).sample
    images: NDArray[np.uint8] = ((result.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy()
    return images


@torch.no_grad()
def encode(model: Any, images: NDArray[np.uint8]) -> tuple[Tensor, Tensor]:
    """Returns mean and standard deviation of the pictures' scaled latents."""
    result = model.encode(pixels(images)).latent_dist
    return result.mean * model.config.scaling_factor, result.std * model.config.scaling_factor


def save(model: Any, out: Path) -> None:
    """Writes a directory that diffusers' loader reads: weights in half precision, config.json."""
    half: Any = create()
    half.load_state_dict(model.state_dict())
    half.register_to_config(scaling_factor=model.config.scaling_factor)
    half.half().save_pretrained(out, safe_serialization=True)


def _batch(scenes: Sequence[Scene], recipe: Recipe, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Returns the step's pictures, and the weight of each pixel, float (rows, 1, 64, 64), of mean 1."""
    generator = np.random.default_rng([seed, step])
    torch.manual_seed(int(generator.integers(2**62)))  # seeds the latents' noise of this step
    batch = [scenes[row] for row in generator.integers(0, len(scenes), recipe.batch)]
    images = render_all(batch)
    weights = 1 + recipe.object_weight * _object_shares(batch, images)
    return pixels(images), torch.from_numpy(weights / weights.mean())[:, None]


def _object_shares(scenes: Sequence[Scene], images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Computes each pixel's weight for the object: 0 outside the object; mean 1 over a picture that shows one.

    A pixel belongs to the object if it changes when only the object's colour does.
    """
    recoloured = render_all([replace(scene, colour="blue" if scene.colour != "blue" else "yellow") for scene in scenes])
    inside = (recoloured != images).any(axis=3)
    area = inside.mean(axis=(1, 2), keepdims=True)
    shares: NDArray[np.float32] = np.divide(inside, area, out=np.zeros(inside.shape, np.float32), where=area > 0)
    return shares


def _step(
    model: Any,
    features: PerceptualFeatures,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    recipe: Recipe,
    trains_encoder: bool,
) -> dict[str, float]:
    """Trains one step. `batch`: pictures and their weights; `trains_encoder`: train encoder and decoder, else the
    decoder alone."""
    images, weights = batch
    with checkpoints.half_where_faster():
        with torch.set_grad_enabled(trains_encoder):
            distribution = model.encode(images).latent_dist
        result = model.decode(distribution.sample()).sample.float()
        pairs = zip(features(result), _fixed_features(features, images), strict=True)
        perceptual = torch.stack([_distance(a.float(), b.float(), weights) for a, b in pairs]).mean()
    reconstruction = ((result - images).abs() * weights).mean()
    divergence = distribution.kl().mean()
    optimizer.zero_grad()
    (reconstruction + recipe.seen * perceptual + recipe.divergence * divergence).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return {"pixels": reconstruction.item(), "seen": perceptual.item(), "divergence": divergence.item()}


def _distance(decoded: Tensor, original: Tensor, weights: Tensor) -> Tensor:
    """Computes the mean squared distance of feature maps; a position weighs as much as the pixels that it covers."""
    local = F.adaptive_avg_pool2d(weights, (decoded.shape[2], decoded.shape[3]))[:, 0]
    return ((decoded - original).square().sum(dim=1) * local).mean()


@torch.no_grad()
def _fixed_features(features: PerceptualFeatures, images: Tensor) -> list[Tensor]:
    return features(images)


@torch.no_grad()
def _set_scale(model: Any, scenes: Iterable[Scene]) -> None:
    """Sets the factor that scales latents to a standard deviation of 1, that of the noise in diffusion."""
    model.eval()
    result = model.encode(pixels(render_all(list(scenes)[:_PICTURES_FOR_SCALE]))).latent_dist
    variance = float(result.mean.var() + result.var.mean())
    model.register_to_config(scaling_factor=round(variance**-0.5, 4))
