"""The power of a design in two stages: a few images of every cell, then fresh ones of the attributes whose scores look
large, which alone are tested.

Knows standard deviations and sizes; which cells form one family of tests is the caller's business. Both stages are
independent samples of the same cells: what selected a cell had no part in its test, so the test of a fixed size holds
its level given the selection, and Benjamini & Hochberg's procedure over the selected cells controls their false
discovery rate. Zehetmayer, Bauer & Posch 2005, "Two-stage designs for experiments with a large number of hypotheses",
compare this design, whose test takes the second stage alone, with one that takes both.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from c2b_ray.metrics.levels import checked_levels, checked_margin
from c2b_ray.metrics.scores import Floats

__all__ = ["least_found", "two_stage_power"]

HALVINGS = 40
NO_DEVIATION = 1e-12


def two_stage_power(
    phi: ArrayLike, deviation: ArrayLike, images: tuple[ArrayLike, ArrayLike], least: float, tau: float, level: float
) -> Floats:
    """Computes the probability that a cell is selected and then found, were its score phi.

    P = Phi((|phi| - least) / s_1) * Phi((|phi| - tau) / s_2 - z),   z = the normal deviate of 1 - level

    s_k = max(deviation * sqrt(n_1 / n_k), sqrt(|phi| * (1 - |phi|) / n_k)),   n_k images a cell in stage k

    taken as normal. The second term is the deviation of a cell that is right in 1 - |phi| of cases where the others are
    always right: answers that are nearly all right vary less than those of a cell of score phi would. A cell is
    selected here by its own estimate alone; another value of its attribute, or another classifier, may select it too,
    so this is a lower limit.

    Args: phi: in [-1, 1]; deviation: the standard deviation of the first stage's estimate, 0 or more; images: of a cell
    in both stages, more than 0; all of shapes that broadcast. least, tau: 0 or more; level: of the test, in (0, 1).
    Returns: float64 in [0, 1]; NaN where an argument is.
    Raises: ValueError for least, tau or level.
    """
    checked_margin(least)
    checked_margin(tau)
    checked_levels(level=level)
    size = np.abs(np.asarray(phi, np.float64))
    n_1, n_2 = (np.asarray(n, np.float64) for n in images)
    own = np.sqrt(np.maximum(size * (1 - size), 0.0))
    first, second = (
        np.maximum(np.maximum(np.asarray(deviation, np.float64) * np.sqrt(n_1 / n), own / np.sqrt(n)), NO_DEVIATION)
        for n in (n_1, n_2)
    )
    power: Floats = ndtr((size - least) / first) * ndtr((size - tau) / second + ndtri(level))
    return power


def least_found(
    deviation: ArrayLike,
    images: tuple[ArrayLike, ArrayLike],
    least: float,
    tau: float,
    level: float,
    power: float = 0.8,
) -> Floats:
    """Computes the smallest |phi| that the design finds with probability `power`, by bisection of `two_stage_power`.

    Args: as there; power: in (0, 1).
    Returns: float64 of the arguments' common shape, in (0, 1]; NaN where no |phi| up to 1 is found so often, or an
    argument is NaN.
    Raises: ValueError as there, or for the power.
    """
    checked_levels(power=power)
    shape = np.broadcast_shapes(np.shape(deviation), *(np.shape(n) for n in images))
    low, high = np.zeros(shape), np.ones(shape)
    reached = two_stage_power(high, deviation, images, least, tau, level) >= power
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = two_stage_power(middle, deviation, images, least, tau, level) >= power
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(reached, high, np.nan)
