"""The differentiable objective of a search: `metrics.latent` has the same formulas for NumPy, with their sources.

It knows tensors, and nothing of models.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

FLOOR = 1e-10
EPSILON, SIGNS = 0.1, 2  # of the Hessian penalty, as its authors' code has them


def total_variation_loss(answers: Tensor) -> Tensor:
    """Computes the total-variation loss of answers (walks, steps)."""
    return -torch.log(FLOOR + answers.diff(dim=-1).abs().mean())


def consistent_change_loss(answers: Tensor) -> Tensor:
    """Computes the consistent-change loss of answers (walks, steps)."""
    change = (answers[:, -1] - answers[:, 0]).mean() / (answers.shape[-1] - 1)
    return -torch.log(FLOOR + change.abs())


def orthogonality_penalty(normal: Tensor, basis: Tensor) -> Tensor:
    """Computes the penalty. `basis`: orthonormal columns (d, rank) that span the other normals."""
    if basis.shape[1] == 0:
        return normal.new_zeros(())
    cosines: Tensor = basis.T @ (normal / normal.norm())
    return cosines.square().mean()


def signed_orthogonality(normal: Tensor, others: Tensor) -> Tensor:
    """Computes the signed penalty. `others`: (K, d)."""
    products: Tensor = others @ normal
    return products.sum()


def project_to_hyperplane(points: Tensor, normal: Tensor, offset: Tensor) -> Tensor:
    """Projects points (..., d) onto the hyperplane."""
    return points - ((points @ normal + offset) / (normal @ normal))[..., None] * normal


def spanned(others: Tensor) -> Tensor:
    """Returns orthonormal columns (d, rank) that span the others, (K, d)."""
    if others.numel() == 0:
        return others.new_zeros((others.shape[-1], 0))
    left, sizes, _ = torch.linalg.svd(others.T, full_matrices=False)
    kept: Tensor = left[:, sizes > 1e-6 * sizes[0]]
    return kept


def hessian_penalty(images: Callable[[Tensor], Tensor], latents: Tensor, directions: Tensor, signs: Tensor) -> Tensor:
    """Measures how much the images' second derivatives mix directions, (d, m) with orthonormal columns.

    variance over k of [G(z + e A x) - 2 G(z) + G(z - e A x)] / e^2,  x = random signs, the largest of any value of the
    image, mean over latents. Peebles et al. 2020, Eqs. 3 to 5, e = 0.1. `signs`: (k, latents, m) of -1 and 1.
    """
    middle = images(latents)
    seconds = []
    for each in signs:
        step = EPSILON * each @ directions.T
        seconds.append((images(latents + step) - 2 * middle + images(latents - step)) / EPSILON**2)
    penalty: Tensor = torch.stack(seconds).var(dim=0).flatten(1).amax(dim=1).mean()
    return penalty


def beginning_with(normal: Tensor) -> Tensor:
    """Returns an orthonormal basis, (d, d), whose first column is the normal's direction (a Householder reflection)."""
    unit = normal / normal.norm()
    first = torch.zeros_like(unit)
    first[0] = 1.0
    mirror = unit + torch.where(unit[0] >= 0, 1.0, -1.0) * first
    reflection = torch.eye(len(unit), dtype=unit.dtype) - 2 * torch.outer(mirror, mirror) / (mirror @ mirror)
    signs = torch.cat([-torch.sign(unit[:1] + 1e-30), torch.ones_like(unit[1:])])
    basis: Tensor = reflection * signs
    return basis
