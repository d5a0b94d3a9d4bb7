"""The power of a design in two stages: a few images of every cell, then fresh ones of the attributes whose scores look
large, which alone are tested.

Knows accuracies, variances and sizes; which cells form one family of tests is the caller's business. Both stages are
independent samples of the same cells: what selected a cell had no part in its test, so the test of a fixed size holds
its level given the selection, and Benjamini & Hochberg's procedure over the selected cells controls their false
discovery rate. Zehetmayer, Bauer & Posch 2005, "Two-stage designs for experiments with a large number of hypotheses",
compare this design, whose test takes the second stage alone, with one that takes both.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from c2b_ray.metrics.contrasts import contrast_p_values
from c2b_ray.metrics.levels import checked_levels, checked_margin
from c2b_ray.metrics.scores import Floats

__all__ = ["TwoStages", "Variation", "least_found", "two_stage_power"]

HALVINGS = 30
NO_DEVIATION = 1e-12
MOST_OTHERS = 1e3
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
"""Gauss-Hermite quadrature of a standard normal variable."""


@dataclass(frozen=True)
class TwoStages:
    """A design. `images`: of a cell in each stage, more than 0, of shapes that broadcast. `least`: the |phi| from which
    the first stage selects a cell. `tau`, `level`: the second stage tests |phi| <= tau at this level."""

    images: tuple[ArrayLike, ArrayLike]
    least: float
    tau: float
    level: float

    def __post_init__(self) -> None:
        checked_margin(self.least)
        checked_margin(self.tau)
        checked_levels(level=self.level)


@dataclass(frozen=True)
class Variation:
    """What a score varies by; arrays of shapes that broadcast.

    `rate`: the accuracy of the other values, in [0, 1]. `others`: the variance that one answer of each of them adds to
    the score. `inflation`: the variance of the score over that of independent answers about which all is known, for the
    same captions. `captions`: the variance of the score over samples of captions, in variances of one answer of each
    value: what no number of images of the same captions makes smaller.
    """

    rate: ArrayLike
    others: ArrayLike
    inflation: ArrayLike = 1.0
    captions: ArrayLike = 0.0


def two_stage_power(phi: ArrayLike, cell: Variation, design: TwoStages) -> Floats:
    """Computes the probability that a cell is selected and then found, were its score phi.

    P = E[Phi((|phi| + b - least) / s_1) * Phi((|phi| + b - critical) / s_2)],   b ~ Normal(0, captions * V)

    s_k^2 = inflation * V / n_k,   V = a(1 - a) + others,   a = rate - |phi|, or rate + |phi| where rate < 1/2

    with n_k images a cell in stage k. b is what the captions at hand add to the score of all captions there could be:
    both stages draw from the same ones, so it is the same in both, and the test allows for it. critical is the smallest
    score whose p-value of `contrast_p_values` is at most the level, with n_2 / (inflation + captions * n_2) images. A
    cell is selected here by its own estimate alone; another value of its attribute, or another classifier, may select
    it too, so this is a lower limit.

    Args: phi: in [-1, 1], of a shape that broadcasts with the fields of `cell`.
    Returns: float64 in [0, 1]; NaN where an argument is.
    """
    return _power(np.abs(np.asarray(phi, np.float64)), cell, design, _critical(cell, design))


def _power(size: Floats, cell: Variation, design: TwoStages, critical: Floats) -> Floats:
    variance = np.asarray(cell.others, np.float64) + _of_answer(_accuracy(size, cell))
    first, second = (
        np.maximum(np.sqrt(np.asarray(cell.inflation) * variance / np.asarray(n)), NO_DEVIATION) for n in design.images
    )
    moved = size[..., None] + np.sqrt(np.asarray(cell.captions) * variance)[..., None] * _NODES
    found = ndtr((moved - critical[..., None]) / second[..., None])
    power: Floats = (ndtr((moved - design.least) / first[..., None]) * found) @ _WEIGHTS / _WEIGHTS.sum()
    return power


def _critical(cell: Variation, design: TwoStages) -> Floats:
    """Finds by bisection the smallest score of a cell that the second stage's test calls a finding; infinite where the
    accuracies leave no room for one, NaN where an argument is."""
    rate, others, inflation, captions, n = np.broadcast_arrays(
        *(
            np.asarray(part, np.float64)
            for part in (cell.rate, cell.others, cell.inflation, cell.captions, design.images[1])
        )
    )
    images = n / (inflation + captions * n)
    # The other values together are as uncertain as so many images of one value: as those of the cell at least.
    times = np.divide(_of_answer(rate), others, out=np.full(rate.shape, MOST_OTHERS), where=others > 0)
    total = np.stack([images, images * np.clip(times, 1.0, MOST_OTHERS)], axis=-1)
    sign = np.where(rate < 0.5, 1.0, -1.0)

    def is_found(score: Floats) -> NDArray[np.bool_]:
        rates = np.stack([_accuracy(score, cell) + np.zeros(rate.shape), rate], axis=-1)
        weights = np.stack([sign, -sign], axis=-1)
        found: NDArray[np.bool_] = contrast_p_values(rates * total, total, weights, design.tau) <= design.level
        return found

    low, high = np.full(rate.shape, design.tau), np.maximum(rate, 1 - rate)
    reached = is_found(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = is_found(middle)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(np.isnan(images), np.nan, np.where(reached, high, np.inf))


def _accuracy(size: Floats, cell: Variation) -> Floats:
    """Returns the accuracy of a cell of this score, away from the nearer end of the scale."""
    rate = np.asarray(cell.rate, np.float64)
    return np.asarray(np.clip(np.where(rate < 0.5, rate + size, rate - size), 0.0, 1.0))


def _of_answer(accuracy: Floats) -> Floats:
    return np.asarray(accuracy * (1 - accuracy))


def least_found(cell: Variation, design: TwoStages, power: float = 0.8) -> Floats:
    """Computes the smallest |phi| that the design finds with probability `power`, by bisection of `two_stage_power`.

    Args: as there; power: in (0, 1).
    Returns: float64 of the arguments' common shape, in (0, 1]; NaN where no |phi| that the accuracies leave room for is
    found so often, or an argument is NaN.
    Raises: ValueError for the power.
    """
    checked_levels(power=power)
    critical = _critical(cell, design)
    rate = np.asarray(cell.rate, np.float64)
    low, high = np.zeros(critical.shape), np.broadcast_to(np.maximum(rate, 1 - rate), critical.shape).copy()
    reached = _power(high, cell, design, critical) >= power
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = _power(middle, cell, design, critical) >= power
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(reached, high, np.nan)
