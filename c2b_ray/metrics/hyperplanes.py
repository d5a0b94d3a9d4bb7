"""Hyperplanes that separate the two values of an attribute in a latent space, and how good they are.

Knows latents and labels; knows neither generators nor what the attribute is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import expit

from c2b_ray.metrics.intervals import wilson_interval
from c2b_ray.metrics.scores import Floats

__all__ = ["Hyperplane", "curved_scores", "fit_hyperplane"]

_RIDGE = 1e-3  # of the mean loss, for coordinates of variance 1: it decides where classes are separable
_RESAMPLES = 16
_ROWS_A_TERM = 8  # of a curved fit: fewer latents than so many a coefficient, and it follows single latents
_EACH = 2  # latents of each value in either half: fewer say nothing of accuracy


@dataclass(frozen=True)
class Hyperplane:
    """w.x + o = 0, |w| = 1, w towards the value 1. `accuracy`: mean of both values' shares of held-out latents on their
    own side, with its 95 % limits. `angle`: the angle in radians to the normal that another sample of as many latents
    would give, not exceeded in 95 of 100 samples. `count`: the number of labelled latents, both halves."""

    normal: Floats
    offset: float
    accuracy: float
    accuracy_low: float
    accuracy_high: float
    angle: float
    count: int


def fit_hyperplane(latents: ArrayLike, labels: ArrayLike, seed: int, held_out: float = 0.2) -> Hyperplane:
    """Fits the hyperplane by a logistic regression in which both values weigh the same.

    Li & Xu 2021, App. A.3: labelled latents, held-out accuracy; hyperplanes below 0.9 are left out there. Accuracy here
    is balanced: for an attribute that 95 % of images have, always answering yes would otherwise be 95 % accurate.

    Args: latents: shape (n, d), finite; labels: shape (n,), true or false; held_out: the share that accuracy is of.
    Raises: ValueError for shapes that do not fit, a latent that is not finite, or an attribute with one value, or with
    fewer than two latents of a value in either part.
    """
    z, y = np.asarray(latents, np.float64), np.asarray(labels).astype(bool)
    if z.ndim != 2 or y.shape != (len(z),):
        raise ValueError(f"latents of shape (n, d) and labels of shape (n,) belong together, got {z.shape}, {y.shape}")
    if not np.isfinite(z).all():
        raise ValueError("a latent holds a value that is not finite")
    if y.all() or not y.any():
        raise ValueError(f"all {len(y)} latents have one value; a hyperplane separates two")
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(z))
    test, train = np.split(order, [round(held_out * len(z))])
    for part in (test, train):
        if min(y[part].sum(), (~y[part]).sum()) < _EACH:
            raise ValueError(f"{len(part)} latents, fewer than {_EACH} of one of the two values; label more")
    normal, offset = _fitted(z[train], y[train])
    right = ((z[test] @ normal + offset) > 0) == y[test]
    shares = [(int(right[y[test] == value].sum()), int((y[test] == value).sum())) for value in (False, True)]
    limits = np.array([wilson_interval(*share) for share in shares]).mean(axis=0)
    accuracy = float(np.mean([hits / total for hits, total in shares]))
    angle = _angle(z[train], y[train], normal, generator)
    return Hyperplane(normal, offset, accuracy, float(limits[0]), float(limits[1]), angle, len(z))


def curved_scores(latents: ArrayLike, labels: ArrayLike, of: ArrayLike) -> Floats | None:
    """Computes how far other latents lie on the attribute's side of a quadratic surface, in log odds.

    Fits a logistic regression on coordinates, their squares and products, in which both values weigh the same.
    Attributes bend in learned spaces, which a hyperplane's coordinate cannot express.

    Args: latents: shape (n, d); labels: shape (n,), true or false; of: shape (m, d), latents that are not among the
    labelled ones.
    Returns: shape (m,). None where n is too small for that many terms, or where only one value occurs.
    """
    z, y, others = np.asarray(latents, np.float64), np.asarray(labels).astype(bool), np.asarray(of, np.float64)
    terms = z.shape[1] * (z.shape[1] + 3) // 2
    if len(z) < _ROWS_A_TERM * terms or y.all() or not y.any():
        return None
    normal, offset = _fitted(_second_order(z), y)
    scores: Floats = _second_order(others) @ normal + offset
    return scores


def _second_order(z: Floats) -> Floats:
    first, second = np.triu_indices(z.shape[1])
    return np.concatenate([z, z[:, first] * z[:, second]], axis=1)


def _fitted(z: Floats, y: NDArray[np.bool_], start: Floats | None = None) -> tuple[Floats, float]:
    mean, scale = z.mean(axis=0), z.std(axis=0)
    x = (z - mean) / np.where(scale > 0, scale, 1)
    sign = np.where(y, 1.0, -1.0)
    weight = np.where(y, 0.5 / y.sum(), 0.5 / (~y).sum())

    def loss(parameters: Floats) -> tuple[float, Floats]:
        w, o = parameters[:-1], parameters[-1]
        margin = sign * (x @ w + o)
        slope = -weight * sign * expit(-margin)
        value = float(weight @ np.logaddexp(0, -margin) + _RIDGE / 2 * w @ w)
        return value, np.append(x.T @ slope + _RIDGE * w, slope.sum())

    first = np.zeros(z.shape[1] + 1) if start is None else start
    solution = minimize(loss, first, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    w = np.where(scale > 0, solution[:-1] / np.where(scale > 0, scale, 1), 0.0)
    length = float(np.linalg.norm(w))
    if length == 0:
        raise ValueError("the latents of both values are alike in every coordinate")
    return w / length, float(solution[-1] - w @ mean) / length


def _angle(z: Floats, y: NDArray[np.bool_], normal: Floats, generator: np.random.Generator) -> float:
    """Computes the angle between this normal and those of resampled latents: mean + 1.645 standard deviations."""
    angles = []
    for _ in range(_RESAMPLES):
        rows = generator.integers(0, len(z), len(z))
        if y[rows].any() and not y[rows].all():
            angles.append(np.arccos(np.clip(abs(_fitted(z[rows], y[rows])[0] @ normal), 0, 1)))
    return float(np.mean(angles) + 1.645 * np.std(angles, ddof=1)) if len(angles) > 1 else float(np.pi / 2)
