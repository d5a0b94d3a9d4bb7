"""Trains generators against a critic: a GAN with the Hessian penalty, and a style-based one with its W space.

The Hessian penalty (Peebles et al. 2020, Eq. 5; k = 2 directions of random signs, ε = 0.1) disentangles the GAN's
latents. The style-based generator's W is whitened after training: its mean and covariance over the prior become 0 and
1, folded into the layers before and after, so that a step has one meaning in every direction. Both also learn to let
the critic recover the latents from the picture (Chen et al. 2016, InfoGAN): small networks otherwise leave most latents
unused. It knows pictures; not what they show.
"""

from __future__ import annotations

import copy
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from c2b_ray.models.latent_generators import LatentNetwork, NetworkConfig, StyledConvolution, network
from c2b_ray.world.training.checkpoints import follow, weights
from c2b_ray.world.training.latent.vaes import as_tensor

KINDS = ("gan-hessian", "style")
_SAMPLES = 10_000  # latents to estimate the style space's mean and covariance from


@dataclass(frozen=True)
class Recipe:
    """`hessian`: weight of the Hessian penalty from step `hessian_from` on; `read`: weight of recovering the latents
    from the picture; `gradient`: weight of the critic's gradients at real pictures (R1, every 8th step)."""

    pictures: int = 10_000
    steps: int = 2_000
    batch: int = 32
    rate: float = 1.5e-3
    dimension: int = 10
    width: int = 8
    hidden: int = 128
    mapping_layers: int = 2
    hessian: float = 0.1
    hessian_from: int = 600
    read: float = 0.5
    gradient: float = 1.0
    keep: float = 0.998


class Critic(nn.Module):
    """Scores whether a picture is real, and estimates the latents that made it."""

    def __init__(self, size: int, width: int, dimension: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before, side = 3, size
        while side > 4:
            after = min(4 * width, width * size // side)
            layers += [nn.Conv2d(before, after, 4, 2, 1), nn.LeakyReLU(0.2)]
            before, side = after, side // 2
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * 16, 8 * width), nn.LeakyReLU(0.2))
        self.real = nn.Linear(8 * width, 1)
        self.latents = nn.Linear(8 * width, dimension)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Returns scores (rows,) and latents (rows, dimension)."""
        features = self.body(images * 2 - 1)
        return self.real(features)[:, 0], self.latents(features)


def train(images: NDArray[np.uint8], kind: str, seed: int, recipe: Recipe) -> tuple[LatentNetwork, NetworkConfig]:
    """Trains on images, uint8 (rows, side, side, 3). ValueError for a kind outside KINDS."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    torch.manual_seed(seed)
    config = _config(images.shape[1], kind, seed, recipe)
    model, critic = network(config), Critic(config.size, recipe.width, recipe.dimension)
    average = {name: value.clone() for name, value in weights(model).items()}
    makes = torch.optim.Adam(model.parameters(), lr=recipe.rate, betas=(0.0, 0.99))
    judges = torch.optim.Adam(critic.parameters(), lr=recipe.rate, betas=(0.0, 0.99))
    generator = np.random.default_rng(seed)
    started = time.time()
    for step in range(recipe.steps):
        real = as_tensor(images[generator.integers(0, len(images), recipe.batch)])
        against = _judge(model, critic, judges, real, recipe.gradient * 8 if step % 8 == 0 else 0.0, recipe.read)
        smooth = recipe.hessian if kind == "gan-hessian" and step >= recipe.hessian_from else 0.0
        fooled = _make(model, critic, makes, recipe, smooth)
        follow(average, model, min(recipe.keep, (1 + step) / (10 + step)))
        if step % 500 == 499:
            print(
                f"  {kind} {step + 1}/{recipe.steps} {time.time() - started:.0f}s {against:.3f} {fooled:.3f}",
                flush=True,
            )
    model.load_state_dict(average)
    if kind == "style":
        whiten(model)
    return model.eval(), config


def _config(size: int, kind: str, seed: int, recipe: Recipe) -> NetworkConfig:
    about: dict[str, Any] = {"family": kind, "seed": seed, "recipe": asdict(recipe)}
    return NetworkConfig(
        kind="style" if kind == "style" else "gan",
        dimension=recipe.dimension,
        size=size,
        width=recipe.width,
        hidden=recipe.hidden,
        norm="none" if kind == "style" else "batch",
        mapping_layers=recipe.mapping_layers,
        about=about,
    )


def _judge(
    model: LatentNetwork, critic: Critic, optimizer: torch.optim.Optimizer, real: Tensor, gradient: float, read: float
) -> float:
    noise = torch.randn(len(real), model.noise)
    with torch.no_grad():
        made = model.decode(model.latent(noise))
    real.requires_grad_(gradient > 0)
    yes, _ = critic(real)
    no, latents = critic(made)
    loss = F.softplus(-yes).mean() + F.softplus(no).mean() + read * F.mse_loss(latents, noise)
    if gradient > 0:
        (slope,) = torch.autograd.grad(yes.sum(), real, create_graph=True)
        loss = loss + gradient / 2 * slope.square().sum(dim=(1, 2, 3)).mean()
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(loss.detach())


def _make(
    model: LatentNetwork, critic: Critic, optimizer: torch.optim.Optimizer, recipe: Recipe, smooth: float
) -> float:
    noise = torch.randn(recipe.batch, model.noise)
    yes, latents = critic(model.decode(model.latent(noise)))
    loss = F.softplus(-yes).mean() + recipe.read * F.mse_loss(latents, noise)
    if smooth:
        loss = loss + smooth * hessian_penalty(model, noise[:16])
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return float(loss.detach())


def hessian_penalty(model: LatentNetwork, latents: Tensor, directions: int = 2, epsilon: float = 0.1) -> Tensor:
    """Computes the variance, over directions of random signs, of the picture's second difference along them; the
    largest over the picture's values (Peebles et al. 2020, Eqs. 3 to 5): 0 where every latent acts alone."""
    middle = model.decode(latents)
    seconds = []
    for _ in range(directions):
        step = epsilon * (torch.randint(0, 2, latents.shape) * 2 - 1)
        there, back = model.decode(latents + step), model.decode(latents - step)
        seconds.append((there - 2 * middle + back) / epsilon**2)
    return torch.stack(seconds).var(dim=0).amax(dim=(1, 2, 3)).mean()


@torch.no_grad()
def whiten(model: LatentNetwork) -> None:
    """Replaces W by W' = A (W − m), of mean 0 and covariance 1 over the prior; the pictures stay the same."""
    mapping: Any = model.mapping
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        latents = model.latent(torch.randn(_SAMPLES, model.noise)).double()
    mean, covariance = latents.mean(dim=0), torch.cov(latents.T)
    values, vectors = torch.linalg.eigh(covariance)
    values = values.clamp_min(values.max() * 1e-6)
    forth, back = vectors / values.sqrt() @ vectors.T, vectors * values.sqrt() @ vectors.T
    last: Any = copy.deepcopy(mapping.layers[-1])
    last.weight.copy_(forth.float() @ last.weight)
    last.bias.copy_((forth @ (last.bias.double() - mean)).float())
    for module in model.modules():
        if isinstance(module, StyledConvolution):
            bias = module.style.bias + module.style.weight @ mean.float()
            module.style.weight.copy_(module.style.weight @ back.float())
            module.style.bias.copy_(bias)
    mapping.layers[-1].load_state_dict(last.state_dict())
