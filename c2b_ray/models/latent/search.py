"""The search for the normal of one hyperplane: by gradient descent through generator and classifier (Li & Xu 2021).

    latents → onto the hyperplane → a walk along its normal → images → answers → loss

RECIPES names what differs between methods. `total-variation` is the paper's loss with its code's penalty; `paper` has
the code's other settings too; `consistent`, ours, requires a change that all walks share, keeps the normal orthogonal
to the target and to known attributes, and starts in the direction of the answers' mean gradient. It knows nothing of
verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from c2b_ray.config.latent import Search
from c2b_ray.models.latent import space as objective
from c2b_ray.models.latent.space import Space
from c2b_ray.tables import seed_of

Vectors = NDArray[np.float64]
_LOOK = 10
_HESSIAN_WEIGHT = 0.1
_GRADIENTS = 256
_CLIPPED = 8.0
FAR = 2.0
"""The reach of a walk to either side, in standard deviations of the prior, unless config or method name another."""


@dataclass(frozen=True)
class Recipe:
    """The settings of a method. `hard`: the normal is projected out of the others' span instead of being penalised for
    it."""

    loss: Literal["total-variation", "consistent"] = "total-variation"
    penalty: Literal["hard", "squared", "signed", "none"] = "squared"
    hessian: bool = False
    log_odds: bool = False
    begins: Literal["gradient", "random"] = "random"
    reach: float = FAR
    as_published: bool = False


RECIPES: dict[str, Recipe] = {
    "consistent": Recipe("consistent", "hard", log_odds=True, begins="gradient", reach=0.5),
    "total-variation": Recipe(),
    "paper": Recipe(as_published=True),
    "signed-penalty": Recipe(penalty="signed"),
    "no-penalty": Recipe(penalty="none"),
    "hessian-penalty": Recipe(hessian=True),
    "no-penalty+hessian": Recipe(penalty="none", hessian=True),
}
_PUBLISHED = {"iterations": 1000, "batch": 64, "walk": 20, "starts": 1, "rate": 1e-3, "penalty": 10.0}


@dataclass(frozen=True)
class Direction:
    """`normal`: unit length, (d,). `offset`: of w.x + o = 0 with |w| = 1. `loss`: on latents held out to compare
    starts."""

    normal: Vectors
    offset: float
    loss: float
    picked: str = ""


@dataclass(frozen=True)
class Constraints:
    """`others`: normals (K, d) of the target, first, and of known attributes; `kept`: normals of the directions found
    so far, (m, d), to which a new one is always orthogonal. `target`: the target's normal; None where every image shows
    the target."""

    others: Vectors
    kept: Vectors
    target: Vectors | None = None


def find(space: Space, name: str, search: Search, constraints: Constraints, seed: int) -> Direction:
    """Finds the direction of the method's best start."""
    recipe = RECIPES[name]
    if recipe.as_published:
        changes = {key: value for key, value in _PUBLISHED.items() if key not in search.model_fields_set}
        search = search.model_copy(update={**changes, "patience": search.iterations + 1000})
    results = []
    for number in range(search.starts):
        descent = _Descent(space, recipe, search, constraints, seed_of("start", seed, number))
        results.append(descent.run(number))
    return min(results, key=lambda result: result.loss)


class _Descent:
    """One start of a search."""

    def __init__(self, space: Space, recipe: Recipe, search: Search, constraints: Constraints, seed: int) -> None:
        others, orthogonal_to = constraints.others, constraints.kept
        self._space, self._recipe, self._search, self._seed = space, recipe, search, seed
        unit = others / np.linalg.norm(others, axis=1, keepdims=True) if len(others) else others
        self._others = torch.from_numpy(unit).float().reshape(len(unit), space.dimension)
        hard = np.concatenate([unit, orthogonal_to]) if recipe.penalty == "hard" else orthogonal_to
        self._forbidden = objective.spanned(torch.from_numpy(hard).float().reshape(len(hard), space.dimension))
        self._basis = objective.spanned(self._others)
        self._random = torch.Generator("cpu").manual_seed(seed)
        distance = search.reach or recipe.reach
        self._alpha = torch.linspace(-distance, distance, search.walk) * space.scale
        if recipe.as_published:
            self._alpha = torch.arange(search.walk) * 0.2 - 2.0

    def run(self, number: int) -> Direction:
        begins = self._recipe.begins if number == 0 else "random"
        normal = self._gradient() if begins == "gradient" else self._normal_noise()
        offset = self._through_the_centre(normal)
        if self._recipe.as_published:
            offset = torch.randn((), generator=self._random)
        normal, offset = normal.requires_grad_(), offset.requires_grad_()
        optimizer = torch.optim.Adam([normal, offset], lr=self._search.rate)
        check_latents = self._latents("look", self._search.batch * 2)
        best, n_without_gain = self._seen(normal, offset, check_latents), 0
        for step in range(self._search.iterations):
            loss = self._loss(normal, offset, self._latents(step, self._search.batch))
            normal.grad, offset.grad = torch.autograd.grad(loss, [normal, offset], allow_unused=True)
            optimizer.step()
            if (step + 1) % _LOOK == 0 or step + 1 == self._search.iterations:
                result = self._seen(normal, offset, check_latents)
                best, n_without_gain = (result, 0) if result.loss < best.loss else (best, n_without_gain + 1)
                if self._recipe.as_published:
                    best = result
                if n_without_gain >= self._search.patience:
                    break
        return best

    def _loss(self, normal: Tensor, offset: Tensor, latents: Tensor) -> Tensor:
        w = self._allowed(normal)
        loss = self._variation(w, offset, latents)
        if self._recipe.penalty == "squared":
            loss = loss + self._search.penalty * objective.orthogonality_penalty(w, self._basis)
        if self._recipe.penalty == "signed":
            loss = loss + self._search.penalty * objective.signed_orthogonality(w, self._others)
        if self._recipe.hessian:
            signs = self._signs(len(latents))
            directions = objective.beginning_with(w)
            loss = loss + _HESSIAN_WEIGHT * objective.hessian_penalty(self._space.images, latents, directions, signs)
        return loss

    def _variation(self, w: Tensor, offset: Tensor, latents: Tensor) -> Tensor:
        on_it = objective.project_to_hyperplane(latents, w, offset)
        walk = on_it[:, None, :] + self._alpha[:, None] * (w / w.norm())
        log_odds = self._space.log_odds(walk.reshape(-1, self._space.dimension)).cpu().reshape(walk.shape[:2])
        # Far from the boundary a network's log odds grow without meaning anything.
        soft = _CLIPPED * torch.tanh(log_odds / _CLIPPED)
        answers = soft if self._recipe.log_odds else torch.sigmoid(log_odds)
        if self._recipe.loss == "consistent":
            return objective.consistent_change_loss(answers)
        return objective.total_variation_loss(answers)

    def _seen(self, normal: Tensor, offset: Tensor, latents: Tensor) -> Direction:
        with torch.no_grad():
            w = self._allowed(normal)
            parts = [self._variation(w, offset, part) for part in latents.split(self._search.batch)]  # type: ignore[no-untyped-call]
            loss = float(torch.stack(parts).mean())
            if self._recipe.penalty == "squared":
                loss += self._search.penalty * float(objective.orthogonality_penalty(w, self._basis))
            length = float(w.norm())
            return Direction((w / length).double().numpy(), float(offset) / length, loss)

    def _allowed(self, normal: Tensor) -> Tensor:
        allowed: Tensor = normal - self._forbidden @ (self._forbidden.T @ normal)
        return allowed

    def _gradient(self) -> Tensor:
        """Computes the mean gradient of the answers over latents of the prior: the direction in which they rise most on
        average."""
        total = torch.zeros(self._space.dimension)
        # As many at once as a step of the search has: gradients keep every layer's output.
        rows = min(self._space.rows, self._search.batch * self._search.walk)
        for part in self._latents("gradient", _GRADIENTS).split(rows):  # type: ignore[no-untyped-call]
            latents = part.requires_grad_()
            answers = _CLIPPED * torch.tanh(self._space.log_odds(latents) / _CLIPPED)
            total += torch.autograd.grad(answers.sum(), latents)[0].sum(dim=0)
        allowed = self._allowed(total)
        if not torch.isfinite(allowed).all() or allowed.norm() == 0:
            return self._normal_noise()
        scaled: Tensor = allowed / allowed.norm() * self._space.dimension**0.5
        return scaled

    def _through_the_centre(self, normal: Tensor) -> Tensor:
        """Returns the offset of the hyperplane through the prior's mean."""
        return -(self._allowed(normal) @ torch.from_numpy(self._space.centre).float())

    def _normal_noise(self) -> Tensor:
        return torch.randn(self._space.dimension, generator=self._random)

    def _signs(self, rows: int) -> Tensor:
        return torch.randint(0, 2, (objective.SIGNS, rows, self._space.dimension), generator=self._random) * 2.0 - 1

    def _latents(self, name: str | int, count: int) -> Tensor:
        if self._recipe.as_published:  # the code draws them uniformly from [0, 1), not from the prior
            return torch.rand((count, self._space.dimension), generator=self._random)
        return torch.from_numpy(self._space.sample(count, seed_of("latents", self._seed, name)))
