"""The number of images that would settle a verdict.

Knows accuracies, counts and the tests of `contrasts`; which cells form one family of tests is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from c2b_ray.stats.contrasts import contrast_none_p_values, contrast_p_values
from c2b_ray.stats.paired import mcnemar_p_values, paired_difference_p_values, paired_equivalence_p_values
from c2b_ray.stats.roots import checked_levels, checked_margin
from c2b_ray.stats.scores import Floats, Ints, accuracies, checked_cells, checked_pairs

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
    accuracy, nonempty = accuracies(c, t)
    values = c.shape[-1]
    if not c.size:
        return np.zeros(c.shape, np.int64)
    off_diagonal = ~np.eye(values, dtype=bool) & nonempty[..., None, :]
    n_others = off_diagonal.sum(axis=-1, keepdims=True)
    weights = np.eye(values) - off_diagonal / np.maximum(n_others, 1)
    smooth = (c + PSEUDO) / (t + 2 * PSEUDO)
    of_sums = (np.nan_to_num(accuracy)[..., None, :], (smooth * (1 - smooth))[..., None, :], weights)
    rates, variances, signed = (np.broadcast_to(sums_of, weights.shape).reshape(-1, values) for sums_of in of_sums)
    sums = _Sums.of(rates, variances, signed, tau)
    images = _least(sums, tau, alpha, power)
    defined = nonempty & (n_others[..., 0] > 0)
    return np.where(defined.ravel() & (images <= MOST_IMAGES), images, -1).reshape(c.shape)


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
    def of(cls, accuracy: Floats, variance: Floats, weights: Floats, tau: float) -> _Sums:
        phi = (weights * accuracy).sum(axis=-1)
        signed = np.where(phi < 0, -1.0, 1.0)[:, None] * weights
        deviation = np.sqrt((weights**2 * variance).sum(axis=-1))
        return cls(accuracy, variance, signed, np.abs(phi), deviation, np.abs(phi) > tau)

    def rows(self, chosen: NDArray[np.bool_]) -> _Sums:
        return _Sums(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def outcome(self, deviates: Floats, n: Floats) -> Floats:
        """Returns the mean accuracies of n images a cell, given a sum that lies so many deviations from the truth."""
        spread = np.divide(self.weights * self.variance, self.deviation[:, None])
        return np.clip(self.accuracy + (deviates / np.sqrt(n))[:, None] * spread, 0.0, 1.0)


def _least(sums: _Sums, tau: float, alpha: float, power: float) -> Ints:
    """Finds the least number of images at which the outcome is settled; MOST_IMAGES + 1 where none is."""
    result = np.full(len(sums.phi), MOST_IMAGES + 1, np.int64)
    for mask, is_settled in ((sums.beyond, _found), (~sums.beyond, _clear)):
        selected = sums.rows(mask)
        low, high = np.zeros(len(selected.phi), np.int64), np.full(len(selected.phi), MOST_IMAGES + 1, np.int64)
        while (high - low > 1).any():
            # The middle of a logarithmic scale: most numbers are small beside the largest.
            middle = np.clip(np.sqrt((low + 1.0) * high).astype(np.int64), low + 1, np.maximum(high - 1, low + 1))
            is_settled_at = is_settled(selected, middle.astype(np.float64), tau, alpha, power)
            open_still = high - low > 1
            high, low = (
                np.where(open_still & is_settled_at, middle, high),
                np.where(open_still & ~is_settled_at, middle, low),
            )
        result[mask] = high
    return result


def _found(sums: _Sums, n: Floats, tau: float, alpha: float, power: float) -> NDArray[np.bool_]:
    rates = sums.outcome(np.full(len(n), -float(ndtri(power))), n)
    images = np.broadcast_to(n[:, None], rates.shape)
    exceeds: NDArray[np.bool_] = (sums.weights * rates).sum(axis=-1) > tau
    return exceeds & (contrast_p_values(rates * images, images, sums.weights, tau) <= alpha)


def _clear(sums: _Sums, n: Floats, tau: float, alpha: float, power: float) -> NDArray[np.bool_]:
    width = 2 * sums.phi * np.sqrt(n) / sums.deviation
    nearer = _deviates_within(width, power)
    images = np.broadcast_to(n[:, None], sums.weights.shape)
    margins = []
    for deviates in (nearer, -nearer - width):
        p = contrast_none_p_values(sums.outcome(deviates, n) * images, images, sums.weights, tau)
        # So many deviations further and the outcome would be just settled.
        margins.append(np.abs(deviates) - ndtri(np.clip(p, 1e-300, 1 - 1e-16)) + ndtri(alpha))
    result: NDArray[np.bool_] = ndtr(margins[0]) + ndtr(margins[1]) - 1 >= power
    return result


def _deviates_within(width: Floats, power: float) -> Floats:
    """Solves Phi(x) + Phi(x + width) - 1 = power for x."""
    low, high = (np.full(width.shape, float(ndtri(level))) for level in (power, (1 + power) / 2))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        suffices = ndtr(middle) + ndtr(middle + width) - 1 >= power
        low, high = np.where(suffices, low, middle), np.where(suffices, middle, high)
    return high


# The power of a design in two stages: a few images of every cell, then fresh ones of the attributes whose scores
# look large, which alone are tested.
#
# Both stages are independent samples of the same cells: what selected a cell had no part in its test, so the test of a
# fixed size holds its level given the selection, and Benjamini & Hochberg's procedure over the selected cells controls
# their false discovery rate. Zehetmayer, Bauer & Posch 2005, "Two-stage designs for experiments with a large number of
# hypotheses", compare this design, whose test takes the second stage alone, with one that takes both.


SCREENING_HALVINGS = 30
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
    shifted = size[..., None] + np.sqrt(np.asarray(cell.captions) * variance)[..., None] * _NODES
    chance = ndtr((shifted - critical[..., None]) / second[..., None])
    power: Floats = (ndtr((shifted - design.least) / first[..., None]) * chance) @ _WEIGHTS / _WEIGHTS.sum()
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
        significant: NDArray[np.bool_] = contrast_p_values(rates * total, total, weights, design.tau) <= design.level
        return significant

    low, high = np.full(rate.shape, design.tau), np.maximum(rate, 1 - rate)
    is_reached = is_found(high)
    for _ in range(SCREENING_HALVINGS):
        middle = (low + high) / 2
        suffices = is_found(middle)
        low, high = np.where(suffices, low, middle), np.where(suffices, middle, high)
    return np.where(np.isnan(images), np.nan, np.where(is_reached, high, np.inf))


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
    is_reached = _power(high, cell, design, critical) >= power
    for _ in range(SCREENING_HALVINGS):
        middle = (low + high) / 2
        suffices = _power(middle, cell, design, critical) >= power
        low, high = np.where(suffices, low, middle), np.where(suffices, middle, high)
    return np.where(is_reached, high, np.nan)


# The number of pairs of answers that would settle whether a paired difference matters.


def paired_images_to_settle(
    only_a: ArrayLike, only_b: ArrayLike, total: ArrayLike, tau: float, alpha: float = 0.05, power: float = 0.8
) -> Ints:
    """Computes how many images would settle the verdict on a paired difference if the observed shares were the truth.

    With shares s_a = (only_a + .5)/(total + 1), s_b alike, the estimate of d = s_b - s_a from n images is near normal
    with variance V/n, V = s_a + s_b - d^2. The answer is the least n at which the outcome
      |d| > tau:  T = |d| - z_power * sqrt(V/n), which `power` of all outcomes exceed, has p-values of at most alpha,
                  the larger of `paired_difference_p_values` and `mcnemar_p_values`
      |d| < tau:  T = |d| + z_power * sqrt(V/n), has a p-value of `paired_equivalence_p_values` of at most alpha; near
                  d = 0 outcomes on both sides must, and z is that of (1 + power)/2
    with as many images on which the answers differ as expected. alpha is for one test: divide it by the cost of
    multiplicity.

    Args: only_a, only_b, total: as for `paired_difference`; tau: 0 or more; alpha, power: in (0, 1).
    Returns: int64 of that shape: images in all, 1 or more. -1 where no number up to MOST_IMAGES would do (|d| next to
    tau), or total is 0. Empty in, empty out.
    Raises: ValueError as `paired_difference` does, or for tau, alpha or power.
    """
    a, b, n = checked_pairs(only_a, only_b, total)
    checked_margin(tau)
    checked_levels(alpha=alpha, power=power)
    shape = n.shape
    a, b, n = (np.ravel(counts) for counts in (a, b, n))
    shares = [(count + PSEUDO) / (n + 2 * PSEUDO) for count in (a, b)]
    differing, d = shares[0] + shares[1], np.abs(shares[1] - shares[0])
    deviation = np.sqrt(np.maximum(differing - d**2, 0.0))

    def pairs(deviates: Floats, images: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns the counts of an outcome so many deviations from the truth."""
        outcome = np.clip(d + deviates * deviation / np.sqrt(images), -differing, differing)
        fewer, larger = ((differing + side * outcome) / 2 * images for side in (-1, 1))
        return fewer, larger, images

    def found(images: Floats) -> Floats:
        counts = pairs(np.full(d.shape, -float(ndtri(power))), images)
        p_values = np.maximum(paired_difference_p_values(*counts, tau), mcnemar_p_values(*counts[:2]))
        return np.where(counts[1] > counts[0], p_values, 1.0)

    def clear(images: Floats) -> Floats:
        one_side = d * np.sqrt(images) > deviation * 2
        deviates = np.where(one_side, float(ndtri(power)), float(ndtri((1 + power) / 2)))
        return paired_equivalence_p_values(*pairs(deviates, images), tau)

    least = np.where(d > tau, _least_pairs(found, d.shape, alpha), _least_pairs(clear, d.shape, alpha))
    return np.where((n > 0) & (least <= MOST_IMAGES), least, -1).reshape(shape)


def _least_pairs(p_values: Callable[[Floats], Floats], shape: tuple[int, ...], alpha: float) -> Ints:
    """Finds the least number of images at which the p-value is at most alpha; MOST_IMAGES + 1 where none is."""
    low, high = np.zeros(shape, np.int64), np.full(shape, MOST_IMAGES + 1, np.int64)
    while (high - low > 1).any():
        # The middle of a logarithmic scale: most numbers are small beside the largest.
        middle = np.clip(np.sqrt((low + 1.0) * high).astype(np.int64), low + 1, np.maximum(high - 1, low + 1))
        suffices = p_values(middle.astype(np.float64)) <= alpha
        open_still = high - low > 1
        high, low = np.where(open_still & suffices, middle, high), np.where(open_still & ~suffices, middle, low)
    return high
