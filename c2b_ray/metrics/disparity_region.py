"""The least and the largest KL from uniform among the rates that a test with a given limit does not reject (Fieller's
region).

Knows rates, their standard errors and a limit; knows nothing of where these are from.
"""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from c2b_ray.metrics.scores import Floats

__all__ = ["extreme_divergences"]

STEPS = 80


def extreme_divergences(rates: Floats, errors: Floats, limit: Floats) -> tuple[Floats, Floats]:
    """Finds the least and largest KL(p || uniform) over all true rates t >= 0 with sum of ((t_a - r_a) / e_a)^2 <=
    limit.

    p = t / sum of t does not depend on the scale of t: the region of p is then that of Fieller (1954), all p for which
    some scale is within the limit. Two groups: the angle that the disc subtends, exactly. More: steps along the
    gradient on the sphere, from every corner (`STEPS`; the tests compare with a general optimiser).

    Args: rates, errors: (models, groups), errors above 0; limit: (models,).
    Returns: (low, high), float64 (models,), 0 <= low <= high <= log(groups); NaN where a rate is NaN.
    """
    if rates.shape[1] == 2:
        return _of_two(rates, errors, limit)
    low, high = (_along(rates, errors, limit, sign) for sign in (-1.0, 1.0))
    everything = (np.divide(rates, errors, where=errors > 0, out=np.full(rates.shape, np.inf)) ** 2).sum(1) <= limit
    return np.where(everything, 0.0, low), np.where(everything, np.log(rates.shape[1]), high)


def _kl(rates: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        p = rates / rates.sum(axis=-1, keepdims=True)
        value: Floats = np.maximum(xlogy(p, p).sum(axis=-1) + np.log(rates.shape[-1]), 0.0)
    return value


def _of_two(rates: Floats, errors: Floats, limit: Floats) -> tuple[Floats, Floats]:
    scale = np.maximum(errors, 1e-300)
    z = rates / scale
    length = np.hypot(z[:, 0], z[:, 1])
    with np.errstate(invalid="ignore", divide="ignore"):
        half = np.where(length**2 > limit, np.arcsin(np.minimum(np.sqrt(limit) / length, 1.0)), np.pi)
    middle = np.arctan2(z[:, 1], z[:, 0])
    ends = np.stack([np.clip(middle - half, 0, np.pi / 2), np.clip(middle + half, 0, np.pi / 2)], axis=1)
    values = _kl(np.stack([np.cos(ends), np.sin(ends)], axis=-1) * scale[:, None, :])
    equal = np.arctan2(1 / scale[:, 1], 1 / scale[:, 0])
    inside = (ends[:, 0] <= equal) & (equal <= ends[:, 1])
    return np.where(inside, 0.0, values.min(axis=1)), values.max(axis=1)


def _along(rates: Floats, errors: Floats, limit: Floats, sign: float) -> Floats:
    groups = rates.shape[1]
    corners = np.concatenate([np.eye(groups), -np.eye(groups)])
    radius = np.sqrt(limit)[:, None, None]
    z = corners[None] * radius
    step = 1.0
    floor = 1e-12 * np.maximum(rates.max(axis=1), errors.max(axis=1) + 1e-300)[:, None, None]
    best = _kl(rates)[:, None].repeat(len(corners), axis=1)
    for number in range(STEPS):
        at = np.maximum(rates[:, None] + z * errors[:, None], floor)
        value = _kl(at)
        best = np.fmax(best, value) if sign > 0 else np.fmin(best, value)
        p = at / at.sum(axis=-1, keepdims=True)
        logs = np.log(p)
        slope = (logs - (p * logs).sum(axis=-1, keepdims=True)) * errors[:, None] * sign
        size = np.linalg.norm(slope, axis=-1, keepdims=True)
        towards = radius * np.divide(slope, size, out=np.zeros_like(slope), where=size > 0)
        z = (1 - step) * z + step * towards
        step = 1.0 if number < STEPS // 4 else max(2.0 / (number - STEPS // 4 + 2), 0.02)
    result: Floats = best.max(axis=1) if sign > 0 else best.min(axis=1)
    return result
