"""By how much what images show changes accuracy, estimated from stand-ins for what they show.

Knows stand-ins (`indicators`) and whether a classifier was right. The model is additive: an image that shows value x_b
of attribute b is answered right with probability m + sum over b of e_b[x_b]. As stand-ins and their products have the
right expectations, the normal equations hold however often the verifier errs, as far as it is known how it errs.
Effects are drawn to 0 by a normal prior: what images cannot tell apart stays in doubt instead of being 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.metrics.indicators import Shown
from c2b_ray.metrics.scores import Floats

__all__ = ["FLAT", "RIDGE", "Effects", "effects", "residuals"]

WIDTH = 0.25
"""The standard deviation of effects before anything is seen."""

FLAT = 100.0
"""That of the accuracy's mean part."""

RIDGE = 0.02
"""Added to the noise of equations, which answers that are all right have none of: that share of their squares."""

ROUNDS = 12
CLOSE = 1e-4


@dataclass(frozen=True)
class Effects:
    """What is estimated of the accuracy's mean part and of every value's effect, `mean` (1 + all values).

    Its doubt comes in three parts. `influence` (N, 1 + all values): what each image changes in `mean`. `prior`: the
    covariance of what the prior holds back. `slopes`: for each attribute (1 + all values, values, answers), what the
    entries of its confusion matrix change in `mean`.
    """

    mean: Floats
    influence: Floats
    prior: Floats
    slopes: tuple[Floats, ...]


def effects(images: Shown, right: ArrayLike) -> Effects:
    """Every value's effect on accuracy, all others held fixed.

    The corrected normal equations v = M e, whose noise is seen from image to image, with a normal prior on effects:
    mean = (M' W M + P)^-1 M' W v, W the inverse covariance of v - M e, P the prior's precision.

    Args: right: booleans (N,).
    Returns: `Effects`; without images the effects are 0, with the prior's width.
    Raises: ValueError where the length is wrong.
    """
    y = np.asarray(right, np.float64)
    u = images.columns
    if y.shape != (len(u),):
        raise ValueError(f"right must be ({len(u)},), got {y.shape}")
    n, size = u.shape
    variances = np.full(size, WIDTH**2)
    variances[0] = FLAT**2
    mean = np.zeros(size)
    moments, sums = _moments(images), u.T @ y / max(n, 1)
    for _ in range(ROUNDS):
        left = residuals(images, y, mean)
        noise = left.T @ left + np.diag(RIDGE * (u**2).sum(axis=0) + 1e-9)
        weighted = np.linalg.solve(noise, n * moments).T  # (effects, equations)
        solver = np.linalg.solve(n * weighted @ moments + np.diag(1 / variances), weighted) * n
        before, mean = mean, solver @ sums
        if np.abs(mean - before).max(initial=0.0) < CLOSE:
            break
    missed = np.eye(size) - solver @ moments
    prior = (missed * variances) @ missed.T
    slopes = tuple(np.einsum("ex,xkw->ekw", solver, at) for at in _equation_slopes(images, mean))
    return Effects(mean, residuals(images, y, mean) @ solver.T / max(n, 1), prior, slopes)


def _moments(images: Shown) -> Floats:
    """Mean products of indicators: within an attribute an image shows one value, so that the products are shares."""
    u = images.columns
    result: Floats = u.T @ u / max(len(u), 1)
    for block in images.blocks:
        result[block, block] = np.diag(np.maximum(u[:, block].sum(axis=0) / max(len(u), 1), 1e-6))
    return result


def residuals(images: Shown, y: Floats, mean: Floats, centred: bool = True) -> Floats:
    """What every image leaves of each normal equation; `centred`: less the mean."""
    u = images.columns
    left = u * (y - u @ mean)[:, None]
    for block in images.blocks:
        in_block = u[:, block]
        left[:, block] += in_block * ((in_block @ mean[block])[:, None] - mean[block])
    result: Floats = left - (left.mean(axis=0) if centred and len(u) else 0.0)
    return result


def _equation_slopes(images: Shown, mean: Floats) -> list[Floats]:
    """Of each attribute, what the entries (k, w) of its confusion matrix change in every equation."""
    u = images.columns
    result = []
    for b, block in enumerate(images.blocks):
        inverse, in_block = images.inverses[b], np.where(images.by_answer[:, b, None], u[:, block], 0.0)
        shares, cross = in_block.sum(axis=0) / max(len(u), 1), u.T @ in_block / max(len(u), 1)
        cross[block] = 0.0
        slopes = np.einsum("xk,w->xkw", cross, inverse @ mean[block])
        within = shares[:, None, None] * (mean[block][None, None, :] - mean[block][:, None, None]) * inverse[None]
        slopes[block] += np.moveaxis(within, 2, 0)
        result.append(slopes)
    return result
