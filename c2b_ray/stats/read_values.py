"""Where a fallible reader says what images show, or a label may be wrong: accuracies of values, standardised counts,
and suspected label errors.

Knows numbered values, labels, probabilities and vectors; nothing of images, models or tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv

from c2b_ray.stats.noisy_labels import CalibrationCounts, covariance, fitted, smoothed
from c2b_ray.stats.roots import checked_levels, deviations
from c2b_ray.stats.scores import Floats, Ints, checked_counts


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


def standardised_count(
    images: ArrayLike, kept: ArrayLike, taken: ArrayLike, determined: ArrayLike = 1.0
) -> StandardisedCount:
    """Predicts how many images were taken for something, beside those that are known not to have been.

    value = sum over strata s of R_s / r_s * a_s

    R the `images` in question that were not taken, r and a the known images that were not (`kept`) and that were
    (`taken`): a/r are the odds that such an image is taken. The variance of what is expected is that of a weighted sum
    of Poisson counts (Fay & Feuer 1997, Statistics in Medicine 16: 791-801), times 1 + a/r, since r is counted too. The
    number itself varies about it by R * a/r * (1 + a/r), as that of successes before the R-th failure does. Where R was
    estimated from the same odds, errors are larger (`RightlyRefused.determined`).

    Args: images: (strata,), 0 or more, need not be whole; kept, taken: (strata,), whole numbers of 0 or more.
    determined: (strata,) or one number, in (0, 1].
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
    enlarged = 1 / np.asarray(determined, np.float64) ** 2
    value, variance = float((weights * hits).sum()), float((enlarged * weights**2 * hits * (1 + odds)).sum())
    weight = np.inf if unknown.any() else float(weights.max(initial=0.0))
    chance = float((enlarged * image_counts * odds * (1 + odds)).sum())
    return StandardisedCount(*(np.asarray(part)[()] for part in (value, variance, weight, chance)))


LEAST_DETERMINED = 0.25
"""With less, the limits' gamma distribution would be all tail, whose quantiles fall again."""


class RightlyRefused(NamedTuple):
    """Numbers of images, (strata,); and `determined` (strata,), from `LEAST_DETERMINED` to 1: the standard deviation of
    how many were accepted beside them is 1 / determined times as large as if the images were known."""

    images: Floats
    determined: Floats


def rightly_refused(
    refused: ArrayLike, accepted: ArrayLike, kept: ArrayLike, taken: ArrayLike, sensitivity: float
) -> RightlyRefused:
    """Estimates how many refused images do not show what was asked for; the others show it and were missed.

    N = (R - m * A) / (1 - m * a/r),   m = (1 - sensitivity) / sensitivity

    Of the `accepted` images A, N * a/r do not show it, and the rest has m missed ones for each of its own among the
    `refused` R: R = N + m * (A - N * a/r). `kept` r and `taken` a: known images that do not show it, refused and
    accepted.

    N depends on a/r too: the derivative of N * a/r by a/r is N / (1 - m * a/r). And d accepted images more than
    N * a/r are d refused ones fewer, which makes N * a/r wrong by d / (1 - m * a/r). So `determined` divides its
    errors. Chance in the number of missed images is left out, since it is small beside these.

    Args: counts, (strata,), 0 or more; sensitivity: in (0, 1].
    Returns: `RightlyRefused`: float64 between 0 and R; R, determined as little as can be, where m * a/r is 1 or more,
    so that the equation tells nothing; R, determined, where no known image was refused.
    """
    images, accepted_images, kept_counts, hits = (
        np.asarray(counts, np.float64) for counts in (refused, accepted, kept, taken)
    )
    missed = (1 - sensitivity) / sensitivity
    odds = np.divide(hits, kept_counts, out=np.zeros(hits.shape), where=kept_counts > 0)
    determined = 1 - missed * odds
    is_told = (determined > 0) & (kept_counts > 0)
    solved = np.divide(images - missed * accepted_images, determined, out=images.copy(), where=is_told)
    return RightlyRefused(np.clip(solved, 0.0, images), np.maximum(determined, LEAST_DETERMINED))


def _least(counts: NDArray[np.float64]) -> float:
    return float(counts.min(initial=0.0))


def _gamma_quantile(mean: Floats, variance: Floats, share: float) -> Floats:
    """Returns the quantile of the gamma distribution with this mean and variance; 0 for a mean of 0."""
    is_positive = ~(mean <= 0)
    scale = np.divide(variance, mean, out=np.zeros(np.shape(mean)), where=is_positive)
    shape = np.divide(mean, scale, out=np.ones(np.shape(mean)), where=is_positive)
    quantile: Floats = scale * gammaincinv(shape, share)
    return quantile


# Suspected label errors: answers that contradict a label with confidence, and what the neighbours are labelled.


SAME = 1 - 1e-4
"""The cosine from which two images are one picture, which is no witness of its own label."""
BLOCK = 2**24
"""Similarities that are in memory at once."""


def confident_thresholds(labels: ArrayLike, probabilities: ArrayLike) -> Floats:
    """Computes for every class how probable a classifier finds it, on average, on the images labelled with it.

    t_j = mean of p_j over the images labelled j

    Northcutt et al. 2021, Confident Learning, Eq. 2. A class of which the classifier is never sure has a low threshold,
    so that it is compared with its own certainty.

    Args: labels: int (images,), in [0, classes); probabilities: (images, classes), NaN in the rows without an answer.
    Returns: float64 (classes,); NaN for a class without a labelled image that has an answer.
    Raises: ValueError for shapes, or a label that has no column.
    """
    y, p = _checked(labels, probabilities)
    is_finite = np.isfinite(p).all(axis=1)
    classes = p.shape[1]
    count = np.bincount(y[is_finite], minlength=classes)
    sums = np.bincount(y[is_finite], p[is_finite, y[is_finite]], classes)
    thresholds: Floats = np.divide(sums, count, out=np.full(classes, np.nan), where=count > 0)
    return thresholds


def confident_disagreements(labels: ArrayLike, probabilities: ArrayLike) -> Ints:
    """Returns for every image the other class that the classifier confidently takes it for; -1 where there is none.

    j = argmax of p_l over the classes l with p_l >= t_l; the image is off the confident joint's diagonal where j is not
    its label. Northcutt et al. 2021, Eq. 1. An image whose label is more probable than j is none, although its label
    may lie below its threshold, and j above: the classifier did not take it for j. The classifier must not have been
    trained on these images: of those it has learned the errors too.

    Args, raises: as for `confident_thresholds`.
    Returns: int64 (images,). A tie goes to the label, and then to the first class.
    """
    y, p = _checked(labels, probabilities)
    thresholds = confident_thresholds(y, p)
    confident = np.where(p >= thresholds - 1e-12, p, -1.0)  # NaN is not sure
    rows = np.arange(len(y))
    if not p.size:
        return np.full(len(y), -1, np.int64)
    confident_class = confident.argmax(axis=1)
    disagrees = (
        (confident[rows, confident_class] >= 0) & (confident_class != y) & (p[rows, confident_class] > p[rows, y])
    )
    return np.where(disagrees, confident_class, -1).astype(np.int64)


@dataclass(frozen=True)
class Neighbours:
    """What the nearest images are labelled: shares of them, float64 (queries,), NaN where an image has no vector.

    `answer`: those labelled with the query's answer; `label`: with its own label.
    """

    answer: Floats
    label: Floats


def neighbours(
    vectors: NDArray[np.float32], labels: ArrayLike, queries: ArrayLike, answers: ArrayLike, number: int
) -> Neighbours:
    """Computes which labels the nearest images of some images have, by cosine, without themselves and their copies.

    A k-nearest-neighbour vote in the space of an encoder that has not seen the labels (Wilson 1972, edited nearest
    neighbours): it errs otherwise than the classifier.

    Args: vectors: float32 (images, dimension), of length 1, NaN in the rows without one; labels: int (images,);
    queries: int (queries,), the images asked about; answers: int (queries,), what the classifier took them for; number:
    how many neighbours, 1 or more; fewer where there are fewer.
    Raises: ValueError for shapes or the number.
    """
    y, query_rows, answered_class = (np.asarray(column, np.int64) for column in (labels, queries, answers))
    if len(vectors) != len(y) or query_rows.shape != answered_class.shape:
        raise ValueError(f"shapes {vectors.shape}, {y.shape}; {query_rows.shape}, {answered_class.shape} do not fit")
    if number < 1:
        raise ValueError(f"number = {number}; need 1 or more")
    shares = np.full((2, len(query_rows)), np.nan)
    usable_rows = np.flatnonzero(np.isfinite(vectors).all(axis=1))
    usable_vectors, size = vectors[usable_rows], max(1, BLOCK // max(1, len(usable_rows)))
    for start in range(0, len(query_rows), size):
        rows = slice(start, start + size)
        cosines = np.nan_to_num(vectors[query_rows[rows]], nan=0.0) @ usable_vectors.T
        cosines[cosines >= SAME] = -np.inf
        cosines[query_rows[rows][:, None] == usable_rows[None, :]] = -np.inf
        n_nearest = min(number, cosines.shape[1])
        nearest = (
            np.argpartition(-cosines, n_nearest - 1, axis=1)[:, :n_nearest]
            if n_nearest
            else np.zeros((len(cosines), 0), np.int64)
        )
        is_usable = np.take_along_axis(cosines, nearest, axis=1) > -np.inf
        count = is_usable.sum(axis=1)
        for side, label_of_query in enumerate((answered_class[rows], y[query_rows[rows]])):
            votes = ((y[usable_rows][nearest] == label_of_query[:, None]) & is_usable).sum(axis=1)
            shares[side, rows] = np.divide(votes, count, out=np.full(len(count), np.nan), where=count > 0)
    shares[:, ~np.isfinite(vectors[query_rows]).all(axis=1)] = np.nan
    return Neighbours(answer=shares[0], label=shares[1])


def _checked(labels: ArrayLike, probabilities: ArrayLike) -> tuple[Ints, Floats]:
    y, p = np.asarray(labels, np.int64), np.asarray(probabilities, np.float64)
    if y.ndim != 1 or p.ndim != 2 or len(y) != len(p):
        raise ValueError(f"need labels (images,) and probabilities (images, classes); got {y.shape} and {p.shape}")
    for row in np.flatnonzero((y < 0) | (y >= p.shape[1])):
        raise ValueError(f"labels[{row}] = {y[row]}: there are {p.shape[1]} classes")
    return y, p
