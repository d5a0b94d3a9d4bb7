"""Searches a generator's latent space for directions that move a classifier's answer, and the baselines of that search.

    latents → images → P(label)                                                      `Space`
    latents → onto the hyperplane → a walk along its normal → answers → loss         `descend`

The normal of a hyperplane is found by gradient descent through generator and classifier (Li & Xu 2021). RECIPES names
what differs between methods. `total-variation` is the paper's loss with its code's penalty; `paper` has the code's
other settings too; `consistent`, ours, requires a change that all walks share, keeps the normal orthogonal to the
target and to known attributes, and starts in the direction of the answers' mean gradient.

Baselines are axes of the latent space, directions of the Hessian penalty and a random direction. They know nothing of
the classifier; of axes and of Hessian directions the one along which its answers vary most is picked (both papers leave
this open), after leaving out the one nearest to the target's normal: that direction moves the target and would be a
straw man as a bias. This module knows the roles of generator and classifier, and nothing of verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from c2b_ray.config.latent import Search
from c2b_ray.errors import SpecError
from c2b_ray.models.heads import chosen_label
from c2b_ray.roles import Floats, GradientClassifier, LatentGenerator, Pixels
from c2b_ray.tables import seed_of

_ROWS, _ROWS_OF_LARGE = 128, 8
_MOMENTS = 1000  # latents of the prior whose mean and standard deviation are taken
_LARGE = 256  # dimensions: the noise of a pipeline, each of whose images is many passes of a network


class Space:
    """`label`: the name of the classifier's output to watch. `centre`, `scale`: mean and standard deviation of the
    prior, the latter over all coordinates. `on_images` is called with the number of images of each batch. Raises
    SpecError where the classifier has no such label."""

    def __init__(
        self,
        generator: LatentGenerator,
        classifier: GradientClassifier,
        label: str | None,
        references: Sequence[GradientClassifier] = (),
    ) -> None:
        self.generator, self.dimension = generator, generator.dimension
        self._classifier, self._references = classifier, list(references)
        self.label = chosen_label(classifier.labels, label)
        self._index = classifier.labels.index(self.label)
        self._of_references = [_index_in(reference, self.label) for reference in references]
        self.images_used = 0
        self.on_images: Callable[[int], None] = lambda count: None
        sample = generator.sample(_MOMENTS, 0).astype(np.float64)
        self.centre = sample.mean(axis=0)
        self.scale = float(np.sqrt(sample.var(axis=0).mean()))
        self.rows = _ROWS_OF_LARGE if self.dimension > _LARGE else _ROWS

    def sample(self, count: int, seed: int) -> Floats:
        return self.generator.sample(count, seed)

    def log_odds(self, latents: torch.Tensor) -> torch.Tensor:
        """Returns the log odds of the label against all others, float (rows,), differentiable."""
        self._count(len(latents))
        logits = self._classifier.logits_of(self.generator.images(latents))
        other_logits = torch.cat([logits[:, : self._index], logits[:, self._index + 1 :]], dim=1)
        result: torch.Tensor = logits[:, self._index] - torch.logsumexp(other_logits, dim=1)
        return result

    def images(self, latents: torch.Tensor) -> torch.Tensor:
        """Returns the images of latents, (rows, 3, height, width), differentiable."""
        self._count(len(latents))
        images: torch.Tensor = self.generator.images(latents)
        return images

    def _count(self, images: int) -> None:
        self.images_used += images
        self.on_images(images)

    def probabilities(self, latents: NDArray[Any]) -> NDArray[np.float64]:
        """Returns P(label) of the image of each latent, (rows,)."""
        return self.answers(latents)[:, 0]

    def answers(self, latents: NDArray[Any]) -> NDArray[np.float64]:
        """Returns P(label) by the classifier and by each of its references; (rows, 1 + references)."""
        rows = []
        with torch.no_grad():
            for part in self._parts(latents):
                images = self.images(part)
                answers = [self._classifier.probabilities(images)[:, self._index]]
                for reference, index in zip(self._references, self._of_references, strict=True):
                    answers.append(reference.probabilities(images)[:, index])
                rows.append(torch.stack([answer.double().cpu() for answer in answers], dim=1).numpy())
        width = 1 + len(self._references)
        return np.concatenate(rows) if rows else np.zeros((0, width))

    def pixels(self, latents: NDArray[Any]) -> list[Pixels]:
        """Returns the images as uint8 (height, width, 3)."""
        result: list[Pixels] = []
        with torch.no_grad():
            for part in self._parts(latents):
                images = (self.images(part).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1)
                result.extend(images.cpu().numpy())
        return result

    def _parts(self, latents: NDArray[Any]) -> Sequence[torch.Tensor]:
        tensor = torch.from_numpy(np.ascontiguousarray(latents, dtype=np.float32))
        return [tensor[start : start + self.rows] for start in range(0, len(tensor), self.rows)]


def _index_in(classifier: GradientClassifier, label: str) -> int:
    if label not in classifier.labels:
        raise SpecError(f"a reference has no label {label!r}; it has {', '.join(classifier.labels[:8])}")
    return classifier.labels.index(label)


# The differentiable objective of a search: `stats.latent` has the same formulas for NumPy, with their sources.


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
    vectors, sizes, _ = torch.linalg.svd(others.T, full_matrices=False)
    basis: Tensor = vectors[:, sizes > 1e-6 * sizes[0]]
    return basis


def hessian_penalty(images: Callable[[Tensor], Tensor], latents: Tensor, directions: Tensor, signs: Tensor) -> Tensor:
    """Measures how much the images' second derivatives mix directions, (d, m) with orthonormal columns.

    variance over k of [G(z + e A x) - 2 G(z) + G(z - e A x)] / e^2,  x = random signs, the largest of any value of the
    image, mean over latents. Peebles et al. 2020, Eqs. 3 to 5, e = 0.1. `signs`: (k, latents, m) of -1 and 1.
    """
    middle = images(latents)
    seconds = []
    for sign in signs:
        step = EPSILON * sign @ directions.T
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


# The search for the normal of one hyperplane.


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


def descend(space: Space, name: str, search: Search, constraints: Constraints, seed: int) -> Direction:
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
        self._forbidden = spanned(torch.from_numpy(hard).float().reshape(len(hard), space.dimension))
        self._basis = spanned(self._others)
        self._random = torch.Generator("cpu").manual_seed(seed)
        distance = search.reach or recipe.reach
        self._alpha = torch.linspace(-distance, distance, search.walk) * space.scale
        if recipe.as_published:
            self._alpha = torch.arange(search.walk) * 0.2 - 2.0

    def run(self, number: int) -> Direction:
        begins = self._recipe.begins if number == 0 else "random"
        normal = self._gradient() if begins == "gradient" else self._normal_noise()
        # The hyperplane goes through the prior's mean.
        offset = -(self._allowed(normal) @ torch.from_numpy(self._space.centre).float())
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
            loss = loss + self._search.penalty * orthogonality_penalty(w, self._basis)
        if self._recipe.penalty == "signed":
            loss = loss + self._search.penalty * signed_orthogonality(w, self._others)
        if self._recipe.hessian:
            signs = torch.randint(0, 2, (SIGNS, *latents.shape), generator=self._random) * 2.0 - 1
            directions = beginning_with(w)
            loss = loss + _HESSIAN_WEIGHT * hessian_penalty(self._space.images, latents, directions, signs)
        return loss

    def _variation(self, w: Tensor, offset: Tensor, latents: Tensor) -> Tensor:
        on_it = project_to_hyperplane(latents, w, offset)
        walk = on_it[:, None, :] + self._alpha[:, None] * (w / w.norm())
        log_odds = self._space.log_odds(walk.reshape(-1, self._space.dimension)).cpu().reshape(walk.shape[:2])
        # Far from the boundary a network's log odds grow without meaning anything.
        soft = _CLIPPED * torch.tanh(log_odds / _CLIPPED)
        answers = soft if self._recipe.log_odds else torch.sigmoid(log_odds)
        if self._recipe.loss == "consistent":
            return consistent_change_loss(answers)
        return total_variation_loss(answers)

    def _seen(self, normal: Tensor, offset: Tensor, latents: Tensor) -> Direction:
        with torch.no_grad():
            w = self._allowed(normal)
            parts = [self._variation(w, offset, part) for part in latents.split(self._search.batch)]  # type: ignore[no-untyped-call]
            loss = float(torch.stack(parts).mean())
            if self._recipe.penalty == "squared":
                loss += self._search.penalty * float(orthogonality_penalty(w, self._basis))
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

    def _normal_noise(self) -> Tensor:
        return torch.randn(self._space.dimension, generator=self._random)

    def _latents(self, name: str | int, count: int) -> Tensor:
        if self._recipe.as_published:  # the code draws them uniformly from [0, 1), not from the prior
            return torch.rand((count, self._space.dimension), generator=self._random)
        return torch.from_numpy(self._space.sample(count, seed_of("latents", self._seed, name)))


# Baselines of the search.


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
        signs = torch.randint(0, 2, (SIGNS, len(latents), count), generator=random) * 2.0 - 1
        loss = hessian_penalty(space.images, latents, directions, signs)
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


def find_direction(space: Space, method: str, settings: Search, constraints: Constraints, seed: int) -> Direction:
    """Finds a direction by the method. Baselines know no attribute; the direction nearest to the target's is left out
    of them."""
    if method == "axes":
        return axes(space, settings, constraints, seed)
    if method == "hessian":
        return hessian(space, settings, constraints, seed)
    if method == "random":
        return random(space, constraints.kept, seed)
    return descend(space, method, settings, constraints, seed)
