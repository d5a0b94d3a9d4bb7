"""How much each value that images show changes accuracy, estimated from stand-ins for what they show.

Knows stand-ins (`indicators`) and whether a classifier was right. The model is additive: an image that shows value x_b
of attribute b is answered right with probability m + sum over b of e_b[x_b]. As stand-ins and their products have the
right expectations, the normal equations hold however often the verifier errs, provided that its error rates are known.
A normal prior shrinks effects towards 0: effects that the images cannot tell apart keep a wide uncertainty.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.metrics.indicators import Shown
from c2b_ray.metrics.scores import Floats

__all__ = ["FLAT", "RIDGE", "Effects", "effects", "residuals"]

WIDTH = 0.25
"""The prior standard deviation of effects."""

FLAT = 100.0
"""The prior standard deviation of the mean accuracy."""

RIDGE = 0.02
"""The share of the equations' squares that is added to their noise, which would be 0 where all answers are right."""

ROUNDS = 12
CLOSE = 1e-4


@dataclass(frozen=True)
class Effects:
    """Estimates of the mean accuracy and of every value's effect, `mean` (1 + all values).

    Their uncertainty comes in three parts. `influence` (N, 1 + all values): how much each image changes `mean`.
    `prior`: the covariance that comes from the prior. `slopes`: for each attribute (1 + all values, values, answers),
    how much the entries of its confusion matrix change `mean`.
    """

    mean: Floats
    influence: Floats
    prior: Floats
    slopes: tuple[Floats, ...]


def effects(images: Shown, right: ArrayLike) -> Effects:
    """Estimates every value's effect on accuracy, all others held fixed.

    Solves the corrected normal equations v = M e, whose noise is estimated from the scatter between images, with a
    normal prior on effects: mean = (M' W M + P)^-1 M' W v, W the inverse covariance of v - M e, P the prior's
    precision.

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
    """Computes mean products of indicators. Within an attribute an image shows one value, so these products are
    shares."""
    u = images.columns
    result: Floats = u.T @ u / max(len(u), 1)
    for block in images.blocks:
        result[block, block] = np.diag(np.maximum(u[:, block].sum(axis=0) / max(len(u), 1), 1e-6))
    return result


def residuals(images: Shown, y: Floats, mean: Floats, centred: bool = True) -> Floats:
    """Computes every image's residual of each normal equation; `centred`: with their mean subtracted."""
    u = images.columns
    left = u * (y - u @ mean)[:, None]
    for block in images.blocks:
        in_block = u[:, block]
        left[:, block] += in_block * ((in_block @ mean[block])[:, None] - mean[block])
    result: Floats = left - (left.mean(axis=0) if centred and len(u) else 0.0)
    return result


def _equation_slopes(images: Shown, mean: Floats) -> list[Floats]:
    """Returns for each attribute how much the entries (k, w) of its confusion matrix change every equation."""
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
