"""A latent space as a classifier sees it: latents → images → P(label), with gradients or without.

It knows the roles of generator and classifier, and not the aim of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from c2b_ray.errors import SpecError
from c2b_ray.models.gradient_schemes import chosen_label
from c2b_ray.roles import Floats, GradientClassifier, LatentGenerator, Pixels

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
