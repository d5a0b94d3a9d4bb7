"""Clusters of vectors whose members a classifier gets right, or wrong, alike.

Knows vectors and right or wrong; knows nothing of what the vectors embed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from c2b_ray.stats.clustering import kmeans
from c2b_ray.stats.scores import Floats, Ints

__all__ = ["ErrorMixture", "error_mixture"]

ROUNDS, CLOSE = 100, 1e-4
LEAST_VARIANCE = 0.05
"""The least variance of a component along an axis, as a share of the variance of all vectors along it."""


@dataclass(frozen=True)
class ErrorMixture:
    """A fitted mixture of k components over vectors that were projected to p axes.

    `origin` (dimension,), `axes` (p, dimension): a vector x has the coordinates axes (x - origin). `shares` (k,): of
    the components; `means`, `variances` (k, p); `wrong` (k,): the share of wrong answers of each.
    """

    origin: Floats
    axes: Floats
    shares: Floats
    means: Floats
    variances: Floats
    wrong: Floats

    def assigned(self, vectors: ArrayLike) -> Ints:
        """Returns the likeliest component of each vector (items, dimension) by the vector alone; int64 (items,)."""
        x = np.asarray(vectors, np.float64)
        joint = _densities((x - self.origin) @ self.axes.T, self.shares, self.means, self.variances)
        return np.asarray(joint.argmax(axis=1), np.int64)


def error_mixture(
    vectors: ArrayLike, wrong: ArrayLike, k: int, weight: float = 10.0, axes: int = 16, seed: int = 0
) -> ErrorMixture:
    """Fits an error-aware mixture (Domino: Eyuboglu et al. 2022, Eq. 4) by EM from k-means clusters:

    sum over images of log sum over s of P(s) N(x | m_s, diag v_s) P(wrong | s)^weight

    on the first principal axes. Domino models the label and the predicted label; within one class the label is
    constant, and the prediction enters as right or wrong.

    Args: vectors: (items, dimension), finite. wrong: booleans (items,). k: 1 to items. weight: 0 or more, of right and
    wrong beside the vector; 0 is a Gaussian mixture. axes: 1 or more; fewer where there are fewer.
    Returns: `ErrorMixture`; the same input gives the same result. A component may be empty of images that are assigned.
    Raises: ValueError for shapes that do not agree, values that are not finite, or k, weight or axes out of range.
    """
    x, y = np.asarray(vectors, np.float64), np.asarray(wrong, np.float64)
    if x.ndim != 2 or y.shape != x.shape[:1] or not np.isfinite(x).all():
        raise ValueError(f"vectors must be finite (items, dimension), and wrong (items,), got {x.shape} and {y.shape}")
    if not 1 <= k <= len(x) or weight < 0 or axes < 1:
        raise ValueError(f"k = {k} must be 1 to {len(x)}, weight = {weight} 0 or more, axes = {axes} 1 or more")
    origin = x.mean(axis=0)
    projection = np.linalg.svd(x - origin, full_matrices=False)[2][:axes]
    z = (x - origin) @ projection.T
    floor = LEAST_VARIANCE * z.var(axis=0) + 1e-12
    resp = np.eye(k)[kmeans(z, k, seed)]
    previous = -np.inf
    for _ in range(ROUNDS):
        mass = resp.sum(axis=0) + 1e-9
        shares, means = mass / mass.sum(), resp.T @ z / mass[:, None]
        variances = np.maximum(resp.T @ z**2 / mass[:, None] - means**2, 0.0) + floor
        rate = (resp.T @ y + 0.5) / (mass + 1.0)
        joint = _densities(z, shares, means, variances)
        joint = joint + weight * (y[:, None] * np.log(rate) + (1 - y[:, None]) * np.log1p(-rate))
        log_total = logsumexp(joint, axis=1)
        resp = np.exp(joint - log_total[:, None])
        if abs(float(log_total.mean()) - previous) < CLOSE:
            break
        previous = float(log_total.mean())
    return ErrorMixture(origin, projection, shares, means, variances, rate)


def _densities(z: Floats, shares: Floats, means: Floats, variances: Floats) -> NDArray[np.float64]:
    """Computes log P(s) + log N(z | s), (items, k)."""
    deviations = z[:, None, :] - means[None]
    normal = -0.5 * (deviations**2 / variances + np.log(2 * np.pi * variances)).sum(axis=2)
    return np.asarray(np.log(shares) + normal)
