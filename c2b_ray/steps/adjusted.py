"""Decides which findings hold on images that are alike in all other attributes: tests of the standardised φ.

It knows φ, its limits and by how much standardising moves it (`metrics.standardise`); not where images come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from c2b_ray.metrics.levels import deviations
from c2b_ray.metrics.standardise import Standardised
from c2b_ray.steps.cells import CellGroup
from c2b_ray.steps.thresholds import Thresholds

NAMED = 0.25
"""A second attribute is named where it explains at least this share of what all attributes explain."""

CAUTION = 1.4
"""The test multiplies the variance that standardising adds by this: products of estimates have long tails."""

Floats = NDArray[np.float64]


class Score(NamedTuple):
    """φ of values, with its limits."""

    phi: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Adjusted:
    """Standardised scores of an attribute's values, in the order of the cells.

    `phi`: the standardised φ. `moved`: φ minus the standardised φ; `noise`: its standard error. `added`: by how much
    the variance of the standardised φ exceeds that of φ. `p_value`: of |standardised φ| ≤ τ, 1 where its sign is not
    φ's; `none_p_value`: of |standardised φ| ≥ τ. A finding, and `none`, must pass both the plain test and this one.
    `doubt`: why a finding does not count. `same`: the (attribute, value) of another attribute that nearly the same
    images show. NaN and None where nothing is known.
    """

    phi: Floats
    moved: Floats
    noise: Floats
    added: Floats
    p_value: Floats
    none_p_value: Floats
    doubt: tuple[str | None, ...]
    same: tuple[tuple[str, str] | None, ...]

    def limits(self, low: Floats, high: Floats, confidence: float) -> tuple[Floats, Floats]:
        """Returns the limits of φ at a confidence, widened until they contain those of the standardised φ."""
        phi, more = self.phi + self.moved, deviations(confidence) ** 2 * self.added
        below, above = np.sqrt((phi - low) ** 2 + more), np.sqrt((high - phi) ** 2 + more)
        return np.fmin(low, np.maximum(self.phi - below, -1.0)), np.fmax(high, np.minimum(self.phi + above, 1.0))

    def among(self, positions: Sequence[int], values: int) -> Adjusted:
        """Returns the same scores at these positions among `values` values; NaN and None elsewhere."""
        arrays = {
            name: np.full(values, np.nan) for name in ("phi", "moved", "noise", "added", "p_value", "none_p_value")
        }
        for name, array in arrays.items():
            array[list(positions)] = getattr(self, name)
        nothing = (None,) * values
        return Adjusted(**arrays, doubt=nothing, same=nothing)


def adjusted(
    standardised: Standardised,
    group: CellGroup,
    others: Sequence[str],
    same: Mapping[str, tuple[str, str]],
    score: Score,
    thresholds: Thresholds,
) -> Adjusted:
    """Returns a group's scores as they would be on images that are alike in all other attributes.

    `others`: all attributes, in the order of `standardised.parts`. `same`: by value of the group, the value of another
    attribute that nearly the same images show.
    """
    phi, low, high = score
    tau, alpha = thresholds
    n = len(group.values)
    moved, noise, added, parts = (
        at[:n] for at in (standardised.moved, standardised.noise, standardised.added, standardised.parts)
    )
    standard = phi - moved
    reach = np.where(phi > 0, phi - low, high - phi) / deviations(1 - alpha)
    error = np.sqrt(reach**2 + CAUTION * added)
    p_value = _p_value(np.sign(phi) * standard, error, tau)
    none_p_value = _p_value(2 * tau - np.abs(standard), error, tau)
    plain = _p_value(np.abs(phi), reach, tau)
    in_doubt = (np.abs(phi) > tau) & (plain <= alpha) & (p_value > alpha)
    z = deviations(1 - alpha)
    doubts = [
        _doubt(value, float(phi[j]), (float(moved[j]), z * float(noise[j])), (parts[j], others), tau)
        if in_doubt[j]
        else None
        for j, value in enumerate(group.values)
    ]
    alike = tuple(same.get(value) for value in group.values)
    return Adjusted(standard, moved, noise, added, p_value, none_p_value, tuple(doubts), alike)


def together(classes: Sequence[Adjusted | None], shares: Floats, score: Score, thresholds: Thresholds) -> Adjusted:
    """Returns the standardised φ over several classes: the classes' standardised φ, weighted by their shares.

    `classes`: for every class, arrays of shape (values,); None where nothing is known about its other attributes, so
    that its φ stays unchanged. `shares`: (classes, values). `score`: φ over all classes with its limits at 1 - α, each
    (values,).
    """
    phi, low, high = score
    tau, alpha = thresholds
    still = np.zeros(shares.shape[1])
    moved = np.array([still if one is None else np.nan_to_num(one.moved) for one in classes])
    noise = np.array([still if one is None else np.nan_to_num(one.noise) for one in classes])
    added = np.array([still if one is None else np.nan_to_num(one.added) for one in classes])
    moves, more = (shares * moved).sum(axis=0), (shares**2 * added).sum(axis=0)
    standard = phi - moves
    reach = np.where(phi > 0, phi - low, high - phi) / deviations(1 - alpha)
    error = np.sqrt(reach**2 + CAUTION * more)
    p_value = _p_value(np.sign(phi) * standard, error, tau)
    none_p_value = _p_value(2 * tau - np.abs(standard), error, tau)
    unsure = (np.abs(phi) > tau) & (_p_value(np.abs(phi), reach, tau) <= alpha) & (p_value > alpha)
    doubts = tuple(
        f"on images alike in the other attributes it is {left:+.2f}" if doubted else None
        for left, doubted in zip(standard.tolist(), unsure.tolist(), strict=True)
    )
    spread = np.sqrt((shares**2 * noise**2).sum(axis=0))
    return Adjusted(standard, moves, spread, more, p_value, none_p_value, doubts, (None,) * len(phi))


def _doubt(
    value: str, phi: float, moved: tuple[float, float], parts: tuple[Floats, Sequence[str]], tau: float
) -> str | None:
    """Returns why a finding is in doubt once it is standardised; None where other attributes do not explain that.

    `moved`: by how much standardising moves φ, and the error of that. `parts`: what each attribute contributes to it.
    """
    toward, off = float(np.sign(phi)) * moved[0], moved[1]
    who = _carriers(np.sign(phi) * parts[0], toward, parts[1])
    said, left = f"{phi:+.2f} on the images of {value!r}", phi - moved[0]
    if toward > max(tau, off):
        return f"explained by {who}: {said}, {left:+.2f} on images alike in {who}"
    if toward + off > abs(phi) - tau:
        return f"cannot be told from {who}: {said}, {left - off:+.2f} to {left + off:+.2f} on images alike in {who}"
    return None


def _p_value(beyond: Floats, error: Floats, tau: float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        p_value: Floats = np.where(beyond > tau, ndtr(-(beyond - tau) / error), 1.0)
    return np.where(np.isnan(beyond), np.nan, p_value)


def _carriers(parts: Floats, toward: float, names: Sequence[str]) -> str:
    """Returns the attributes that explain most, at most two."""
    order = np.argsort(-parts, kind="stable")
    chosen = [names[order[0]]]
    if len(order) > 1 and parts[order[1]] >= NAMED * max(toward, parts[order[0]]):
        chosen.append(names[order[1]])
    return " and ".join(chosen)
