"""Finds zeros of many functions at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from c2b_ray.stats.scores import Floats, Ints

ROUNDS = 80  # of a search; about ten are taken
FARTHEST = 1e9  # where a search ends, in units of its scale
PRECISION = 1e-12
CLOSE = 1e-9  # to zero, of a value
NEWTON = 20  # rounds of Newton's method alone: where it takes more, it may swing between two points for ever


def crossing(
    function: Callable[[Floats, Ints], Floats], ends: tuple[Floats, Floats], values: tuple[Floats, Floats]
) -> Floats:
    """Finds the zeros of functions that are below 0 at the first end and above 0 at the second; returns the second end
    where a function has no zero.

    Illinois' false position (Dowell & Jarratt 1971). `function` takes points and the rows that they belong to.
    """
    inside, outside = (end.copy() for end in ends)
    value_in, value_out = (value.copy() for value in values)
    points, last_side = outside.copy(), np.zeros(len(outside))
    rows = np.flatnonzero(value_out > 0)
    for _ in range(ROUNDS):
        if not len(rows):
            break
        share = value_in[rows] / (value_in[rows] - value_out[rows])
        points[rows] = inside[rows] + np.clip(share, 0.01, 0.99) * (outside[rows] - inside[rows])
        value = function(points[rows], rows)
        low, high = rows[value < 0], rows[value >= 0]
        value_out[low[last_side[low] > 0]] /= 2
        value_in[high[last_side[high] < 0]] /= 2
        inside[low], value_in[low], last_side[low] = points[low], value[value < 0], 1.0
        outside[high], value_out[high], last_side[high] = points[high], value[value >= 0], -1.0
        rows = rows[(np.abs(value) > CLOSE) & (np.abs(inside[rows] - outside[rows]) > PRECISION)]
    return points


def falling_root(function: Callable[[Floats], tuple[Floats, Floats]], scale: Floats) -> Floats:
    """Finds the zeros of falling functions by Newton's method, with bisection on a logarithmic-like scale where a step
    leaves the bracket, and in every other round after the first `NEWTON`."""
    point = np.zeros(scale.shape)
    low, high = -FARTHEST * scale, FARTHEST * scale
    for number in range(ROUNDS):
        value, slope = function(point)
        low, high = np.where(value > 0, point, low), np.where(value > 0, high, point)
        with np.errstate(over="ignore"):
            newton = point - np.divide(value, slope, out=np.full(point.shape, np.inf), where=slope < 0)
        is_bracketed = (newton > low) & (newton < high) & (number < NEWTON or number % 2 == 0)
        result = newton
        if not is_bracketed.all():
            halfway = scale * np.sinh((np.arcsinh(low / scale) + np.arcsinh(high / scale)) / 2)
            result = np.where(is_bracketed, newton, halfway)
        still = (np.abs(result - point) > PRECISION * (scale + np.abs(point))) & (np.abs(value) > 1e-15)
        point = np.where(np.abs(value) > 1e-15, result, point)
        if not still.any():
            break
    return point


# Arguments of tests and intervals: margins and levels, checked, and levels as normal deviates.


MOST_DEVIATIONS = 40.0  # 2 * ndtr(-40) is 0 in float64: no p-value lies further out


def checked_margin(tau: float) -> float:
    if not 0 <= tau < np.inf:
        raise ValueError(f"tau = {tau} must be finite and 0 or more")
    return float(tau)


def checked_levels(**levels: float) -> None:
    for name, level in levels.items():
        if not 0 < level < 1:
            raise ValueError(f"{name} = {level} must lie strictly between 0 and 1")


def deviations(confidence: float) -> float:
    """Returns how many standard deviations an interval of that confidence reaches to either side."""
    checked_levels(confidence=confidence)
    return float(-ndtri((1 - confidence) / 2))
