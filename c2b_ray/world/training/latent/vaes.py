"""Trains variational autoencoders of five kinds on the pictures of a world, as `models.latent_generators` reads them.

    vae        Kingma & Welling 2014
    beta       Higgins et al. 2017: β times the divergence
    beta-tc    Chen et al. 2018: β times the total correlation alone, by minibatch-weighted sampling
    dip-i      Kumar et al. 2018: the covariance of the means is drawn towards the identity
    dip-ii     the same of the samples

Losses as in disentanglement_lib (Locatello et al. 2019). It knows pictures and losses; not what the pictures show, nor
who searches the latent space.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from c2b_ray.models.latent_generators import LatentNetwork, NetworkConfig, network
from c2b_ray.world.training.checkpoints import pace, set_rate

KINDS = ("vae", "beta", "beta-tc", "dip-i", "dip-ii")


@dataclass(frozen=True)
class Recipe:
    """`pixels`: the weight of a picture's mean squared error, and of the errors of its means over squares of 8 pixels
    and over the whole picture: without the last two a short training learns positions and shades late. The weight of
    the latents' terms rises over the first `slowly` of the steps. `beta`: of β-VAE and β-TCVAE; `off_diagonal`,
    `diagonal`: of DIP."""

    pictures: int = 10_000
    steps: int = 2_000
    batch: int = 64
    rate: float = 2e-3
    dimension: int = 10
    width: int = 8
    hidden: int = 128
    pixels: float = 10_000.0
    slowly: float = 0.3
    beta: float = 4.0
    off_diagonal: float = 10.0
    diagonal: float = 10.0


def train(images: NDArray[np.uint8], kind: str, seed: int, recipe: Recipe) -> tuple[LatentNetwork, NetworkConfig]:
    """Trains on images, uint8 (rows, side, side, 3). ValueError for a kind outside KINDS."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    torch.manual_seed(seed)
    about: dict[str, Any] = {"family": kind, "seed": seed, "recipe": asdict(recipe)}
    config = NetworkConfig(
        kind="vae",
        dimension=recipe.dimension,
        size=images.shape[1],
        width=recipe.width,
        hidden=recipe.hidden,
        encoder=True,
        about=about,
    )
    model = network(config)
    initialise(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate)
    generator = np.random.default_rng(seed)
    started = time.time()
    for step in range(recipe.steps):
        set_rate(optimizer, pace(step, recipe.steps, recipe.rate))
        batch = as_tensor(images[generator.integers(0, len(images), recipe.batch)])
        reconstruction, regularizer = _losses(model, batch, kind, recipe)
        optimizer.zero_grad()
        (reconstruction + min(1.0, step / (recipe.slowly * recipe.steps)) * regularizer).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % 500 == 499:
            losses = f"{reconstruction:.1f} + {regularizer:.1f}"
            print(f"  {kind} {step + 1}/{recipe.steps} {time.time() - started:.0f}s {losses}", flush=True)
    return model.eval(), config


def as_tensor(images: NDArray[np.uint8]) -> Tensor:
    """Returns (rows, 3, side, side) in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float().div_(255).contiguous()


def _losses(model: LatentNetwork, images: Tensor, kind: str, recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Returns the loss of the reconstruction, and the loss of the latents."""
    mean, log_variance = model.encode(images)
    latents = mean + torch.randn_like(mean) * (log_variance / 2).exp()
    reconstruction = recipe.pixels * multiscale_error(model.decode(latents), images)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1).mean()
    if kind == "beta":
        return reconstruction, recipe.beta * divergence
    if kind == "beta-tc":
        return reconstruction, divergence + (recipe.beta - 1) * total_correlation(latents, mean, log_variance)
    if kind in ("dip-i", "dip-ii"):
        covariance = torch.cov(mean.T)
        if kind == "dip-ii":
            covariance = covariance + torch.diag(log_variance.exp().mean(dim=0))
        return reconstruction, divergence + covariance_penalty(covariance, recipe.off_diagonal, recipe.diagonal)
    return reconstruction, divergence


def multiscale_error(decoded: Tensor, images: Tensor) -> Tensor:
    """Sums the mean squared errors of pictures, of their means over squares of 8 pixels, and of their means over the
    whole."""
    result = F.mse_loss(decoded, images)
    for square in (8, images.shape[-1]):
        result = result + F.mse_loss(F.avg_pool2d(decoded, square), F.avg_pool2d(images, square))
    return result


@torch.no_grad()
def initialise(model: LatentNetwork) -> None:
    """Sets weights at which signals keep their size from layer to layer (He et al. 2015); torch's defaults let them
    shrink."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.ConvTranspose2d):
            nn.init.normal_(module.weight, std=(2 / (module.in_channels * 4)) ** 0.5)
    for last in (model.encoder, model.decoder):
        if isinstance(last, nn.Sequential):
            cast(nn.Linear, last[-1]).weight.mul_(0.3)


def total_correlation(latents: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Computes E[log q(z) − Σ log q(z_j)] of a batch, by minibatch-weighted sampling (Chen et al. 2018, Eq. S4).

    Latents, mean and log variance: (rows, d). It omits, as disentanglement_lib does, the constant that depends only on
    the numbers of rows and pictures: it has no gradient.
    """
    each = latents[:, None] - mean[None]
    log_density = -0.5 * (each.square() / log_variance.exp()[None] + log_variance[None] + math.log(2 * math.pi))
    joint = torch.logsumexp(log_density.sum(dim=2), dim=1)
    marginal = torch.logsumexp(log_density, dim=1).sum(dim=1)
    return (joint - marginal).mean()


def covariance_penalty(covariance: Tensor, off_diagonal: float, diagonal: float) -> Tensor:
    """Computes λ_od Σ_{i≠j} C_ij² + λ_d Σ_i (C_ii − 1)² (Kumar et al. 2018, Eqs. 6 and 7)."""
    along = torch.diagonal(covariance)
    off_diagonals = covariance - torch.diag(along)
    return off_diagonal * off_diagonals.square().sum() + diagonal * (along - 1).square().sum()
