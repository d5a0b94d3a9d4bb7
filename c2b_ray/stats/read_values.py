"""Rates where a fallible reader says what images show: accuracies of values, and standardised counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from c2b_ray.stats.noisy_labels import CalibrationCounts, covariance, fitted, smoothed
from c2b_ray.stats.roots import checked_levels, deviations
from c2b_ray.stats.scores import Floats, checked_counts

__all__ = [
    "ReadAccuracies",
    "StandardisedCount",
    "read_accuracies",
    "rightly_refused",
    "standardised_count",
    "strata",
]


@dataclass(frozen=True)
class ReadAccuracies:
    """Of the n values of one attribute, float64.

    `accuracy` (n,): of the images that show a value, in [0, 1]. `effective` (n,): the number of images of known content
    with the same information on it; 0 where none was read as the value. `covariance` (n, n): of the accuracies;
    `from_reader`: the part that comes from not knowing C. `shown`, `shown_low`, `shown_high` (n,): the share of the
    images read as a value that show it, with limits. `sensitivity`, `specificity` (n,): of the reader on each value.
    """

    accuracy: Floats
    effective: Floats
    covariance: Floats
    from_reader: Floats
    shown: Floats
    shown_low: Floats
    shown_high: Floats
    sensitivity: Floats
    specificity: Floats


def read_accuracies(
    right: ArrayLike, wrong: ArrayLike, calibration: ArrayLike, confidence: float = 0.95
) -> ReadAccuracies:
    """Corrects accuracies for a reader's errors.

    effective = s(1 - s) / variance,   s the accuracy with half an image of even content more

    The covariance is the inverse of the Fisher information of A, π and C, in which the calibration's size counts.

    Args: right, wrong: whole numbers (n,), images read as each value, that the classifier got right or wrong.
    calibration: (n, n), images known to show a value (row), by the value that the reader named (column); every row must
    hold an image. confidence: of limits, in (0, 1).
    Returns: `ReadAccuracies`; NaN and 0 effective images for a value that no image was read as.
    Raises: ValueError for shapes that do not agree, counts that are negative or not whole, a value without calibration,
    or the confidence.
    """
    r, x, calibration_counts = (np.asarray(values, np.float64) for values in (right, wrong, calibration))
    n = len(r) if r.ndim == 1 else 0
    if r.ndim != 1 or x.shape != r.shape or calibration_counts.shape != (n, n):
        raise ValueError(
            f"right and wrong must be (n,), calibration (n, n), got {r.shape}, {x.shape}, {calibration_counts.shape}"
        )
    checked_counts(r, r + x)
    if (
        not np.isfinite(calibration_counts).all()
        or (calibration_counts < 0).any()
        or (calibration_counts.sum(axis=1) <= 0).any()
    ):
        raise ValueError(
            f"calibration must hold numbers of 0 or more, and an image of each value, got {calibration_counts}"
        )
    z = deviations(confidence)
    has_images = r + x > 0
    if not has_images.any():
        undefined, square = np.full(n, np.nan), np.zeros((n, n))
        return ReadAccuracies(undefined, np.zeros(n), square, square, *(undefined,) * 5)
    model = fitted(np.stack([r, x, np.zeros(n)], axis=1)[None], CalibrationCounts(calibration_counts))
    uncertainty = covariance(model, (1.0, 1.0))
    spread, smooth = uncertainty.parameters, smoothed(model)
    variance = np.diag(spread)[:n]
    effective = np.divide(smooth * (1 - smooth), variance, out=np.zeros(n), where=has_images & (variance > 0))
    # The share of those read as w that show w: π_w C_ww / sum over k of π_k C_kw.
    shares, answers = model.shown[0], model.answers
    joint = shares[:, None] * answers
    read_shares = joint.sum(axis=0)
    shown = np.diag(joint) / read_shares
    slopes = np.zeros((n, spread.shape[0]))
    by_share, by_answer = uncertainty.shown.reshape(n, -1), uncertainty.answers.reshape(n, n, -1)
    for w in range(n):
        of_joint = by_share * answers[:, w, None] + shares[:, None] * by_answer[:, w]
        slopes[w] = (of_joint[w] - shown[w] * of_joint.sum(axis=0)) / read_shares[w]
    margin = z * np.sqrt(np.maximum(np.einsum("wp,pq,wq->w", slopes, spread, slopes), 0.0))
    images = shares * (r + x).sum()
    other_images = images.sum() - images
    read_images = images @ answers
    return ReadAccuracies(
        accuracy=np.where(has_images, model.accuracy[:n], np.nan),
        effective=effective,
        covariance=spread[:n, :n],
        from_reader=uncertainty.verifier,
        shown=np.where(has_images, shown, np.nan),
        shown_low=np.where(has_images, np.clip(shown - margin, 0.0, 1.0), np.nan),
        shown_high=np.where(has_images, np.clip(shown + margin, 0.0, 1.0), np.nan),
        sensitivity=np.diag(answers).copy(),
        specificity=1
        - np.divide(read_images - images * np.diag(answers), other_images, out=np.zeros(n), where=other_images > 0),
    )


# How many of some images would be taken for others, predicted from images of known content: direct standardisation.


STRATA = 10
LEAST = 10
"""Known images that a stratum must hold: with fewer its rate is a guess, and one more image would change the sum."""


class StandardisedCount(NamedTuple):
    """Predicted numbers of images, 0 or more. `variance`: of what is expected, since few images are known; `weight`:
    how many images one known image stands for, in the stratum where that is most, infinite where a stratum holds no
    known image; `chance`: the variance of the number itself about what is expected. Of one count or, each of one shape,
    of several."""

    value: Floats
    variance: Floats
    weight: Floats
    chance: Floats

    def limits(self, confidence: float = 0.95, times: float = 1.0) -> tuple[Floats, Floats]:
        """Computes limits of the number itself.

        They are those of a weighted sum of Poisson counts (Fay & Feuer 1997, Eqs. 1-2), with the number's own variance
        added; in one stratum, quantiles of the negative binomial distribution that predicts it, to an image or two.

        Args: confidence: in (0, 1). times: the limits are those with this many times as many known images
        and the same share of them taken; above 0.
        Returns: (low, high); high is infinite where the weight is, both are NaN where the value is.
        Raises: ValueError for the confidence or for times.
        """
        checked_levels(confidence=confidence)
        if not times > 0:
            raise ValueError(f"times must be above 0, got {times}")
        value, variance, weight, chance = (np.asarray(part, np.float64) for part in self)
        is_known, tail = np.isfinite(weight), (1 - confidence) / 2
        weight_of_one = np.where(is_known, weight, 0.0) / times
        spread = variance / times + chance
        low = _gamma_quantile(value, spread, tail)
        high = _gamma_quantile(value + weight_of_one, spread + weight_of_one**2 + weight_of_one, 1 - tail)
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
    (`taken`): a/r are the odds that such an image is taken. The variance of what is expected is that of a weighted sum
    of Poisson counts (Fay & Feuer 1997, Statistics in Medicine 16: 791-801), times 1 + a/r, since r is counted too. The
    number itself varies about it by R * a/r * (1 + a/r), as that of successes before the R-th failure does.

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
    chance = float((image_counts * odds * (1 + odds)).sum())
    return StandardisedCount(*(np.asarray(part)[()] for part in (value, variance, weight, chance)))


def rightly_refused(
    refused: ArrayLike, accepted: ArrayLike, kept: ArrayLike, taken: ArrayLike, sensitivity: float
) -> Floats:
    """Estimates how many refused images do not show what was asked for; the others show it and were missed.

    N = (R - m * A) / (1 - m * a/r),   m = (1 - sensitivity) / sensitivity

    Of the `accepted` images A, N * a/r do not show it, and the rest has m missed ones for each of its own among the
    `refused` R: R = N + m * (A - N * a/r). `kept` r and `taken` a: known images that do not show it, refused and
    accepted.

    Args: counts, (strata,), 0 or more; sensitivity: in (0, 1].
    Returns: float64 (strata,) between 0 and R; R where no known image was refused, or where m * a/r is 1 or more, so
    that the equation tells nothing.
    """
    images, accepted_images, kept_counts, hits = (
        np.asarray(counts, np.float64) for counts in (refused, accepted, kept, taken)
    )
    missed = (1 - sensitivity) / sensitivity
    odds = np.divide(hits, kept_counts, out=np.full(hits.shape, np.nan), where=kept_counts > 0)
    rest = 1 - missed * odds
    solved = np.divide(images - missed * accepted_images, rest, out=images.copy(), where=rest > 0)
    result: Floats = np.clip(solved, 0.0, images)
    return result


def _least(counts: NDArray[np.float64]) -> float:
    return float(counts.min(initial=0.0))


def _gamma_quantile(mean: Floats, variance: Floats, share: float) -> Floats:
    """Returns the quantile of the gamma distribution with this mean and variance; 0 for a mean of 0."""
    is_positive = ~(mean <= 0)
    scale = np.divide(variance, mean, out=np.zeros(np.shape(mean)), where=is_positive)
    shape = np.divide(mean, scale, out=np.ones(np.shape(mean)), where=is_positive)
    quantile: Floats = scale * gammaincinv(shape, share)
    return quantile
