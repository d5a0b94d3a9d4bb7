"""How many of some images would be taken for others, predicted from images of known content: direct standardisation.

Images of known content are seldom like those in question. Both are sorted into strata by one number (here, how similar
an image is to a caption), the rate of each stratum is counted on the known images, and the rates are weighted by the
images in question. It knows counts, and not what they count.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from c2b_ray.stats.roots import checked_levels
from c2b_ray.stats.scores import Floats

__all__ = ["StandardisedCount", "standardised_count", "strata"]

STRATA = 10
LEAST = 10
"""Known images that a stratum must hold: with fewer its rate is a guess, and one more image would change the sum."""


class StandardisedCount(NamedTuple):
    """Predicted numbers of images, 0 or more, and their variances; `weight`: how many images one known image stands
    for, in the stratum where that is most, infinite where a stratum holds no known image. Of one count or, each of one
    shape, of several."""

    value: Floats
    variance: Floats
    weight: Floats

    def limits(self, confidence: float = 0.95, times: float = 1.0) -> tuple[Floats, Floats]:
        """Computes limits: those of a weighted sum of Poisson counts (Fay & Feuer 1997, Eqs. 1-2).

        Args: confidence: in (0, 1). times: the limits are those with this many times as many known images
        and the same share of them taken; above 0.
        Returns: (low, high); high is infinite where the weight is, both are NaN where the value is.
        Raises: ValueError for the confidence or for times.
        """
        checked_levels(confidence=confidence)
        if not times > 0:
            raise ValueError(f"times must be above 0, got {times}")
        value, variance, weight = (np.asarray(part, np.float64) for part in self)
        is_known, tail = np.isfinite(weight), (1 - confidence) / 2
        weight_of_one = np.where(is_known, weight, 0.0) / times
        low = _gamma_quantile(value, variance / times, tail)
        high = _gamma_quantile(value + weight_of_one, variance / times + weight_of_one**2, 1 - tail)
        return low, np.where(is_known | np.isnan(value), high, np.inf)[()]


def strata(images: ArrayLike, known: ArrayLike, most: int = STRATA, least: int = LEAST) -> Floats:
    """Returns limits between strata, ascending: quantiles of `images`, without those that leave a stratum with fewer
    than `least` of the `known`.

    Args: images, known: numbers of shapes (n,) and (m,), such as similarities. most: the most strata. least: as above.
    Returns: at most `most` - 1 numbers; a number x lies in stratum `np.searchsorted(limits, x, side="right")`. Empty
    where the known do not suffice for two strata.
    """
    values, known_values = np.asarray(images, np.float64), np.sort(np.asarray(known, np.float64))
    if not len(values):
        return np.zeros(0)
    limits: list[float] = []
    upper = len(known_values)
    # From above: the images nearest to a caption are those that matter, and the known ones are rare there.
    for limit in np.unique(np.quantile(values, np.arange(1, most) / most))[::-1].tolist():
        lower = int(np.searchsorted(known_values, limit, side="left"))
        if upper - lower >= least and lower >= least:
            limits.append(limit)
            upper = lower
    return np.array(limits[::-1])


def standardised_count(images: ArrayLike, kept: ArrayLike, taken: ArrayLike) -> StandardisedCount:
    """Predicts how many images were taken for something, beside those that are known not to have been.

    value = sum over strata s of R_s / r_s * a_s

    R the `images` in question that were not taken, r and a the known images that were not (`kept`) and that were
    (`taken`): a/r are the odds that such an image is taken. The variance is that of a weighted sum of Poisson counts
    (Fay & Feuer 1997, Statistics in Medicine 16: 791-801), times 1 + a/r, since r is counted too.

    Args: images: (strata,), 0 or more, need not be whole; kept, taken: (strata,), whole numbers of 0 or more.
    Returns: `StandardisedCount`. A stratum that holds images and no known image is left out of `value`. No images: 0
    everywhere.
    Raises: ValueError where shapes differ or numbers are negative.
    """
    image_counts, kept_counts, hits = (np.asarray(counts, np.float64) for counts in (images, kept, taken))
    if (
        not image_counts.shape == kept_counts.shape == hits.shape
        or image_counts.ndim != 1
        or min(map(_least, (image_counts, kept_counts, hits))) < 0
    ):
        raise ValueError(f"images, kept and taken must be 0 or more, of one shape (strata,), got {images, kept, taken}")
    unknown = (image_counts > 0) & (kept_counts == 0)
    weights = np.divide(image_counts, kept_counts, out=np.zeros(image_counts.shape), where=kept_counts > 0)
    odds = np.divide(hits, kept_counts, out=np.zeros(image_counts.shape), where=kept_counts > 0)
    value, variance = float((weights * hits).sum()), float((weights**2 * hits * (1 + odds)).sum())
    weight = np.inf if unknown.any() else float(weights.max(initial=0.0))
    return StandardisedCount(*(np.asarray(part)[()] for part in (value, variance, weight)))


def _least(counts: NDArray[np.float64]) -> float:
    return float(counts.min(initial=0.0))


def _gamma_quantile(mean: Floats, variance: Floats, share: float) -> Floats:
    """Returns the quantile of the gamma distribution with this mean and variance; 0 for a mean of 0."""
    is_positive = ~(mean <= 0)
    scale = np.divide(variance, mean, out=np.zeros(np.shape(mean)), where=is_positive)
    shape = np.divide(mean, scale, out=np.ones(np.shape(mean)), where=is_positive)
    quantile: Floats = scale * gammaincinv(shape, share)
    return quantile
