"""Baselines of the search: axes of the latent space, directions of the Hessian penalty, a random direction.

Axes and Hessian directions know nothing of the classifier; in each family the direction along which its answers vary
most is picked (both papers leave this open), after leaving out the one nearest to the target's normal: that direction
moves the target and would be a straw man as a bias. It knows nothing of verdicts.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from c2b_ray.config.latent import Search
from c2b_ray.models.latent import space as objective
from c2b_ray.models.latent.search import FAR, Constraints, Direction, Vectors
from c2b_ray.models.latent.space import Space
from c2b_ray.tables import seed_of

_MOST = 32
"""The most directions of the Hessian penalty; for a pipeline's noise not all can be learned."""


def axes(space: Space, search: Search, constraints: Constraints, seed: int) -> Direction:
    """Finds the axis of the latent space along which the answers' total variation is largest (Li & Xu 2021, section
    5.1)."""
    return _picked(space, search, np.eye(space.dimension), constraints, seed, "axis")


def hessian(space: Space, search: Search, constraints: Constraints, seed: int) -> Direction:
    """Finds, among directions learned by the Hessian penalty alone (Peebles et al. 2020: orthonormal, k = 2, e = 0.1),
    the one along which the answers' total variation is largest."""
    count = min(space.dimension - len(constraints.kept), _MOST)
    orthogonal_to = torch.from_numpy(constraints.kept).float()
    random = torch.Generator("cpu").manual_seed(seed_of("hessian", seed))
    matrix = torch.randn((space.dimension, count), generator=random).requires_grad_()
    optimizer = torch.optim.Adam([matrix], lr=search.rate)
    for step in range(search.iterations):
        latents = torch.from_numpy(space.sample(search.batch, seed_of("hessian", seed, step)))
        directions = _orthonormal(matrix, orthogonal_to)
        signs = torch.randint(0, 2, (objective.SIGNS, len(latents), count), generator=random) * 2.0 - 1
        loss = objective.hessian_penalty(space.images, latents, directions, signs)
        (matrix.grad,) = torch.autograd.grad(loss, [matrix])
        optimizer.step()
    with torch.no_grad():
        candidates = _orthonormal(matrix, orthogonal_to).T.double().numpy()
    return _picked(space, search, candidates, constraints, seed, "direction")


def random(space: Space, orthogonal_to: Vectors, seed: int) -> Direction:
    """Draws a direction uniformly from the sphere."""
    vector = np.random.default_rng(seed_of("random", seed)).standard_normal(space.dimension)
    vector -= orthogonal_to.T @ (orthogonal_to @ vector)
    return Direction(vector / np.linalg.norm(vector), 0.0, float("nan"), "drawn at random")


def total_variation(space: Space, latents: NDArray[np.float32], normal: Vectors, search: Search) -> float:
    """Computes the mean change of P(label) from step to step of the walks along a unit normal, about the
    prior's mean."""
    on_it = latents - ((latents - space.centre) @ normal)[:, None] * normal
    distance = search.reach or FAR
    steps = np.linspace(-distance, distance, search.walk) * space.scale
    walk = on_it[:, None, :] + steps[:, None] * normal
    answers = space.probabilities(walk.reshape(-1, space.dimension)).reshape(len(latents), search.walk)
    return float(np.abs(np.diff(answers, axis=1)).mean())


def _orthonormal(matrix: torch.Tensor, orthogonal_to: torch.Tensor) -> torch.Tensor:
    """Returns orthonormal columns (d, m), orthogonal to the kept rows."""
    result: torch.Tensor = torch.linalg.qr(matrix - orthogonal_to.T @ (orthogonal_to @ matrix))[0]
    return result


def _picked(
    space: Space, search: Search, normals: Vectors, constraints: Constraints, seed: int, kind: str
) -> Direction:
    latents = space.sample(search.batch, seed_of("pick", seed))
    orthogonal_to, target = constraints.kept, constraints.target
    free = [
        row
        for row in range(len(normals))
        if not len(orthogonal_to) or np.abs(orthogonal_to @ normals[row]).max() < 1e-4
    ]
    note = "" if target is None else ", the target's own left out"
    if target is not None and len(free) > 1:
        free.remove(max(free, key=lambda row: abs(float(normals[row] @ target))))
    if not free:
        raise ValueError(f"all {len(normals)} have been taken")
    variations = {row: total_variation(space, latents, normals[row], search) for row in free}
    chosen_row = max(variations, key=lambda row: variations[row])
    reason = f"the largest total variation of the answers, {variations[chosen_row]:.4f}{note}"
    return Direction(normals[chosen_row], 0.0, float("nan"), f"{kind} {chosen_row} of {len(normals)}: {reason}")
