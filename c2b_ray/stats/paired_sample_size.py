"""The number of pairs of answers that would settle whether a paired difference matters.

Knows counts and the tests of `paired`; which differences form one family of tests is the caller's business.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from c2b_ray.stats.paired import mcnemar_p_values, paired_difference_p_values, paired_equivalence_p_values
from c2b_ray.stats.roots import checked_levels, checked_margin
from c2b_ray.stats.sample_size import MOST_IMAGES
from c2b_ray.stats.scores import Floats, Ints, checked_pairs

__all__ = ["paired_images_to_settle"]

PSEUDO = 0.5


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
        fewer, more = ((differing + side * outcome) / 2 * images for side in (-1, 1))
        return fewer, more, images

    def found(images: Floats) -> Floats:
        counts = pairs(np.full(d.shape, -float(ndtri(power))), images)
        beyond = np.maximum(paired_difference_p_values(*counts, tau), mcnemar_p_values(*counts[:2]))
        return np.where(counts[1] > counts[0], beyond, 1.0)

    def clear(images: Floats) -> Floats:
        one_side = d * np.sqrt(images) > deviation * 2
        deviates = np.where(one_side, float(ndtri(power)), float(ndtri((1 + power) / 2)))
        return paired_equivalence_p_values(*pairs(deviates, images), tau)

    needed = np.where(d > tau, _least(found, d.shape, alpha), _least(clear, d.shape, alpha))
    return np.where((n > 0) & (needed <= MOST_IMAGES), needed, -1).reshape(shape)


def _least(p_values: Callable[[Floats], Floats], shape: tuple[int, ...], alpha: float) -> Ints:
    """Finds the least number of images at which the p-value is at most alpha; MOST_IMAGES + 1 where none is."""
    low, high = np.zeros(shape, np.int64), np.full(shape, MOST_IMAGES + 1, np.int64)
    while (high - low > 1).any():
        # The middle of a logarithmic scale: most numbers are small beside the largest.
        middle = np.clip(np.sqrt((low + 1.0) * high).astype(np.int64), low + 1, np.maximum(high - 1, low + 1))
        settled = p_values(middle.astype(np.float64)) <= alpha
        open_still = high - low > 1
        high, low = np.where(open_still & settled, middle, high), np.where(open_still & ~settled, middle, low)
    return high
