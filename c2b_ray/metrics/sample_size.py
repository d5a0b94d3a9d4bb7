"""The number of images that would settle a verdict.

Knows accuracies, counts and the tests of `contrasts`; which cells form one family of tests is the caller's business.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from c2b_ray.metrics.contrasts import contrast_none_p_values, contrast_p_values
from c2b_ray.metrics.levels import checked_levels, checked_margin
from c2b_ray.metrics.scores import Floats, Ints, accuracies, checked_cells

__all__ = ["MOST_IMAGES", "images_to_settle"]

MOST_IMAGES = 10_000_000  # per cell; beyond it `images_to_settle` answers that no number would do
PSEUDO = 0.5
HALVINGS = 40


def images_to_settle(correct: ArrayLike, total: ArrayLike, tau: float, alpha: float = 0.05, power: float = 0.8) -> Ints:
    """Computes how many images per cell would settle the verdict if the observed accuracies were the truth.

    With V_j = v_j + sum over k != j of v_k / m^2, v = s(1-s), s = (correct + .5)/(total + 1), the estimate of phi_j
    from n images in every cell is near normal with variance V_j/n. The answer is the least n at which the outcome
      |phi| > tau:  T = |phi| - z_power * sqrt(V/n), which `power` of all outcomes exceed, has a p-value of
                    `bias_score_p_values` of at most alpha
      |phi| < tau:  T = |phi| + x * sqrt(V/n), and the one as far beyond 0, have one of `equivalence_p_values` of at
                    most alpha, where `power` of all outcomes lie between: Phi(x) + Phi(x + 2 * |phi| * sqrt(n/V)) - 1
                    = power; room on one side makes up for the other
    with each accuracy at its mean given T. The tests themselves are asked, because they take the variance at the margin
    and allow for steps: at accuracies near 1 a normal test at the observed variance promises to settle after a few
    images what takes hundreds. alpha is for one test: divide it by the cost of multiplicity.

    Args: correct, total: integers of shape (..., n); tau: 0 or more; alpha, power: in (0, 1).
    Returns: int64 of shape (..., n): images in each cell (in all, not on top of the present ones), 1 or more; also for
    cells that are settled already. -1 where no number up to MOST_IMAGES would do: |phi| = tau or next to it, or phi
    undefined. No classes in, none out.
    Raises: ValueError as `bias_scores` does, or for tau, alpha or power.
    """
    c, t = checked_cells(correct, total)
    checked_margin(tau)
    checked_levels(alpha=alpha, power=power)
    accuracy, held = accuracies(c, t)
    values = c.shape[-1]
    if not c.size:
        return np.zeros(c.shape, np.int64)
    off_diagonal = ~np.eye(values, dtype=bool) & held[..., None, :]
    others = off_diagonal.sum(axis=-1, keepdims=True)
    weights = np.eye(values) - off_diagonal / np.maximum(others, 1)
    smooth = (c + PSEUDO) / (t + 2 * PSEUDO)
    of_sums = (np.nan_to_num(accuracy)[..., None, :], (smooth * (1 - smooth))[..., None, :], weights)
    rates, variances, signed = (np.broadcast_to(each, weights.shape).reshape(-1, values) for each in of_sums)
    sums = _Sums.of(rates, variances, signed, tau)
    needed = _least(sums, tau, alpha, power)
    defined = held & (others[..., 0] > 0)
    return np.where(defined.ravel() & (needed <= MOST_IMAGES), needed, -1).reshape(c.shape)


@dataclass(frozen=True)
class _Sums:
    """Weighted sums of accuracies, turned so that each is 0 or more: `accuracy`, `variance` (of one answer) and
    `weights` have shape (sums, cells), `phi`, `deviation` (of n = 1) and `beyond` (sums,)."""

    accuracy: Floats
    variance: Floats
    weights: Floats
    phi: Floats
    deviation: Floats
    beyond: NDArray[np.bool_]

    @classmethod
    def of(cls, accuracy: Floats, variance: Floats, weights: Floats, tau: float) -> "_Sums":
        phi = (weights * accuracy).sum(axis=-1)
        signed = np.where(phi < 0, -1.0, 1.0)[:, None] * weights
        deviation = np.sqrt((weights**2 * variance).sum(axis=-1))
        return cls(accuracy, variance, signed, np.abs(phi), deviation, np.abs(phi) > tau)

    def rows(self, chosen: NDArray[np.bool_]) -> "_Sums":
        return _Sums(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def outcome(self, deviates: Floats, n: Floats) -> Floats:
        """Returns the mean accuracies of n images a cell, given a sum that lies so many deviations from the truth."""
        spread = np.divide(self.weights * self.variance, self.deviation[:, None])
        return np.clip(self.accuracy + (deviates / np.sqrt(n))[:, None] * spread, 0.0, 1.0)


def _least(sums: _Sums, tau: float, alpha: float, power: float) -> Ints:
    """Finds the least number of images at which the outcome is settled; MOST_IMAGES + 1 where none is."""
    result = np.full(len(sums.phi), MOST_IMAGES + 1, np.int64)
    for chosen, is_settled in ((sums.beyond, _found), (~sums.beyond, _clear)):
        of = sums.rows(chosen)
        low, high = np.zeros(len(of.phi), np.int64), np.full(len(of.phi), MOST_IMAGES + 1, np.int64)
        while (high - low > 1).any():
            # The middle of a logarithmic scale: most numbers are small beside the largest.
            middle = np.clip(np.sqrt((low + 1.0) * high).astype(np.int64), low + 1, np.maximum(high - 1, low + 1))
            settled = is_settled(of, middle.astype(np.float64), tau, alpha, power)
            open_still = high - low > 1
            high, low = np.where(open_still & settled, middle, high), np.where(open_still & ~settled, middle, low)
        result[chosen] = high
    return result


def _found(sums: _Sums, n: Floats, tau: float, alpha: float, power: float) -> NDArray[np.bool_]:
    rates = sums.outcome(np.full(len(n), -float(ndtri(power))), n)
    images = np.broadcast_to(n[:, None], rates.shape)
    above: NDArray[np.bool_] = (sums.weights * rates).sum(axis=-1) > tau
    return above & (contrast_p_values(rates * images, images, sums.weights, tau) <= alpha)


def _clear(sums: _Sums, n: Floats, tau: float, alpha: float, power: float) -> NDArray[np.bool_]:
    width = 2 * sums.phi * np.sqrt(n) / sums.deviation
    nearer = _deviates_within(width, power)
    images = np.broadcast_to(n[:, None], sums.weights.shape)
    room = []
    for deviates in (nearer, -nearer - width):
        p = contrast_none_p_values(sums.outcome(deviates, n) * images, images, sums.weights, tau)
        # So many deviations further and the outcome would be just settled.
        room.append(np.abs(deviates) - ndtri(np.clip(p, 1e-300, 1 - 1e-16)) + ndtri(alpha))
    settled: NDArray[np.bool_] = ndtr(room[0]) + ndtr(room[1]) - 1 >= power
    return settled


def _deviates_within(width: Floats, power: float) -> Floats:
    """Solves Phi(x) + Phi(x + width) - 1 = power for x."""
    low, high = (np.full(width.shape, float(ndtri(level))) for level in (power, (1 + power) / 2))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = ndtr(middle) + ndtr(middle + width) - 1 >= power
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high
