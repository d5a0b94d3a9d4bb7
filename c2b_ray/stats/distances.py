"""Distances between sets of feature vectors, similarity of embedding spaces, and how far failures are shared.

Frechet and kernel distance are FID and KID with Inception's features. Knows vectors, their moments and counts; knows
nothing of images or of the network that made the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from c2b_ray.stats.intervals import wilson
from c2b_ray.stats.roots import deviations
from c2b_ray.stats.scores import Floats


def frechet_distance(mu1: ArrayLike, sigma1: ArrayLike, mu2: ArrayLike, sigma2: ArrayLike) -> float:
    """Squared Frechet (2-Wasserstein) distance between two normal distributions; FID on Inception features.

    |mu1 - mu2|^2 + tr(S1) + tr(S2) - 2 * sum of sqrt(eigenvalues of S1 S2)

    Heusel et al. 2017, Eq. 6; Wiles et al. 2022, Table 2. The original code takes a matrix square root of S1 S2 and
    adds an epsilon to the diagonal when that fails; the sum over eigenvalues is the same trace, needs no epsilon for
    singular covariances, and its square roots are complex, since rounding makes some eigenvalues slightly negative or
    complex.

    Args: mu1, mu2: shape (d,); sigma1, sigma2: covariances of shape (d, d). Scalars (or shape (1,)) for d = 1; sigma is
    then a variance.
    Returns: float, 0 or more (rounding below 0 is cut off). 0: equal means and covariances. There is no empty input:
    the moments of too few features are the caller's matter.
    Raises: ValueError for shapes that do not fit or for values that are not finite.
    """
    m1, s1 = _moments(mu1, sigma1)
    m2, s2 = _moments(mu2, sigma2)
    if m1.shape != m2.shape:
        raise ValueError(f"means have shapes {m1.shape} and {m2.shape}")
    roots = np.sqrt(np.linalg.eigvals(s1 @ s2).astype(np.complex128)).real
    squared = ((m1 - m2) ** 2).sum() + np.trace(s1) + np.trace(s2) - 2 * roots.sum()
    return float(np.maximum(0.0, squared))


def kernel_distance(x: ArrayLike, y: ArrayLike, subsets: int = 100, subset_size: int = 1000, seed: int = 0) -> float:
    """Squared maximum mean discrepancy with a cubic kernel, averaged over random subsets; KID on Inception features.

    mean k(x, x') over x != x' + mean k(y, y') over y != y' - 2 * mean k(x, y),   k(a, b) = (a.b/d + 1)^3

    Binkowski et al. 2018 (unbiased estimator); Wiles et al. 2022, Table 2. Subset size is cut to the smaller set; where
    it covers both sets there is one subset and no randomness.

    Args: x (N, d), y (M, d): features; subsets: how many pairs of subsets, each without replacement; subset_size: 2 or
    more; seed: of the subsets, so the same inputs give the same value.
    Returns: float. 0 on average for two samples of one distribution; negative values are legal, as the estimator is
    unbiased. NaN where a set has fewer than two rows.
    Raises: ValueError for shapes that do not fit, or for subsets or subset_size.
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or a.shape[1] == 0:
        raise ValueError(f"need features of shapes (N, d) and (M, d), got {a.shape} and {b.shape}")
    if subsets < 1 or subset_size < 2:
        raise ValueError(f"subsets = {subsets} must be 1 or more and subset_size = {subset_size} 2 or more")
    size = min(subset_size, len(a), len(b))
    if size < 2:
        return float("nan")
    if size == len(a) == len(b):
        return _discrepancy(a, b)
    rng = np.random.default_rng(seed)
    values = [
        _discrepancy(a[rng.choice(len(a), size, replace=False)], b[rng.choice(len(b), size, replace=False)])
        for _ in range(subsets)
    ]
    return float(np.mean(values))


def _discrepancy(x: Floats, y: Floats) -> float:
    n, d = x.shape
    total = 0.0
    for rows in (x, y):
        kernel = (rows @ rows.T / d + 1) ** 3
        total += float(kernel.sum() - np.trace(kernel)) / (n * (n - 1))
    return total - 2 * float(((x @ y.T / d + 1) ** 3).mean())


def _moments(mu: ArrayLike, sigma: ArrayLike) -> tuple[Floats, Floats]:
    mean, covariance = np.atleast_1d(np.asarray(mu, dtype=np.float64)), np.asarray(sigma, dtype=np.float64)
    if covariance.size == 1:
        covariance = covariance.reshape(1, 1)
    if mean.ndim != 1 or covariance.shape != (mean.size, mean.size):
        raise ValueError(f"need a mean (d,) and a covariance (d, d), got {mean.shape} and {covariance.shape}")
    if not np.isfinite(mean).all() or not np.isfinite(covariance).all():
        raise ValueError("means and covariances must be finite")
    return mean, covariance


# Mean and covariance of features that come in parts, and a sample of them of bounded size.


class Moments:
    """Mean and covariance (ddof = 1) of rows that are added part by part; memory for one d x d matrix.

    Parts are merged by the update of Chan, Golub & LeVeque 1983, in float64: sums of squares would cancel.
    """

    def __init__(self, dimension: int) -> None:
        self.count = 0
        self.mean = np.zeros(dimension)
        self._squares = np.zeros((dimension, dimension))

    def add(self, rows: NDArray[np.floating]) -> None:
        """`rows`: (n, d)."""
        if not len(rows):
            return
        part = np.asarray(rows, np.float64)
        mean = part.mean(axis=0)
        centred = part - mean
        shift = mean - self.mean
        count = self.count + len(part)
        self._squares += centred.T @ centred + np.outer(shift, shift) * (self.count * len(part) / count)
        self.mean = self.mean + shift * (len(part) / count)
        self.count = count

    @property
    def covariance(self) -> Floats:
        """(d, d); NaN of fewer than two rows."""
        if self.count < 2:
            return np.full_like(self._squares, np.nan)
        return self._squares / (self.count - 1)


class Sample:
    """A sample of at most `most` of the rows added, chosen by their marks alone, so neither the rows' order nor their
    division into parts changes the sample. `marks`: numbers that behave like random ones, such as hashes of ids."""

    def __init__(self, most: int, dimension: int) -> None:
        self._most = most
        self._marks = np.zeros(0, np.uint64)
        self._rows = np.zeros((0, dimension), np.float32)

    def add(self, rows: NDArray[np.floating], marks: NDArray[np.uint64]) -> None:
        """`rows`: (n, d); `marks`: (n,)."""
        all_marks = np.concatenate([self._marks, marks])
        order = np.argsort(all_marks, kind="stable")[: self._most]
        self._rows = np.concatenate([self._rows, np.asarray(rows, np.float32)])[order]
        self._marks = all_marks[order]

    @property
    def rows(self) -> NDArray[np.float32]:
        """Returns the sampled rows, sorted by their marks."""
        return self._rows


def needed_for_covariance(dimension: int) -> int:
    """Returns the least number of rows whose covariance can be regular; with fewer it is singular, and a Frechet
    distance would compare a degenerate distribution."""
    return dimension + 1


# Similarity of embedding spaces: how far the same pairs of items are similar in both.


FOLDS = 20
ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class SpaceSimilarity:
    """Arrays (spaces, spaces): the similarity of every pair of spaces, and the limits of its interval."""

    value: Floats
    low: Floats
    high: Floats


def space_similarity(
    spaces: Sequence[NDArray[np.floating]], confidence: float = 0.95, centred: bool = False
) -> SpaceSimilarity:
    """Computes the cosine similarity of spaces, each taken as the vector of cosines of all D(D-1)/2 pairs of items.

    s(e, f) = sum over i < j of S_e[i, j] * S_f[i, j] / (|S_e| |S_f|),   S[i, j] the cosine of items i and j

    Ramos et al. 2025, section 4.4 and Figure 8. Where all of a space's items are alike (one narrow cone) every entry of
    S is near 1, and so is s to any other such space, whichever pairs are similar in them: `centred` subtracts each
    space's mean pair first (Pearson's correlation of the vectors), which removes this effect. The paper's is the
    default. The interval is the jackknife's over 20 parts of the items (a pair is left out where either of its items
    is).

    Args: spaces: float arrays (items, dimension of the space), the same items in each; confidence: in (0, 1).
    Returns: `SpaceSimilarity`, 1 on the diagonal. NaN where a space has no direction (all zeros, or all alike where
    centred), or fewer than 2 items. Limits NaN for fewer than 40 items.
    Raises: ValueError for spaces of different numbers of items, or of items without length.
    """
    units = [_unit(space) for space in spaces]
    items = len(units[0]) if units else 0
    if any(len(unit) != items for unit in units):
        raise ValueError(f"spaces have {sorted({len(unit) for unit in units})} items; they must hold the same")
    folds = FOLDS if items >= 2 * FOLDS else 1
    of_fold = np.arange(items) * folds // max(items, 1)
    products, sums, pairs = _gathered(units, of_fold, folds)
    value = _cosine(products.sum((0, 1)), sums.sum((0, 1)), pairs.sum(), centred)
    if folds == 1:
        undefined = np.full(value.shape, np.nan)
        return SpaceSimilarity(value, undefined, undefined)
    left_out = []
    for fold in range(folds):
        is_kept = np.arange(folds) != fold
        part = np.ix_(is_kept, is_kept)
        left_out.append(_cosine(products[part].sum((0, 1)), sums[part].sum((0, 1)), pairs[part].sum(), centred))
    spread = np.sqrt((folds - 1) / folds * ((np.array(left_out) - np.mean(left_out, axis=0)) ** 2).sum(axis=0))
    margin = stdtrit(folds - 1, (1 + confidence) / 2) * spread
    return SpaceSimilarity(value, np.clip(value - margin, -1, 1), np.clip(value + margin, -1, 1))


def _unit(space: NDArray[np.floating]) -> Floats:
    vectors = np.asarray(space, np.float64)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(vectors).all() or (length == 0).any():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1) | (length[:, 0] == 0))[0])
        raise ValueError(f"item {row} has an embedding without length, or one that is not finite")
    result: Floats = vectors / length
    return result


def _gathered(units: Sequence[Floats], of_fold: NDArray[np.int64], folds: int) -> tuple[Floats, Floats, Floats]:
    """Sums, by the folds of both items of a pair i < j: products of cosines (folds, folds, E, E), cosines, and the
    number of pairs."""
    number, items = len(units), len(of_fold)
    products = np.zeros((folds, folds, number, number))
    sums = np.zeros((folds, folds, number))
    pairs = np.zeros((folds, folds))
    ends = np.searchsorted(of_fold, np.arange(folds + 1))
    for start in range(0, items, ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, items))
        for second in range(int(of_fold[start]), folds):
            columns = np.arange(ends[second], ends[second + 1])
            upper = columns[None, :] > rows[:, None]
            cosines = np.stack([(unit[rows] @ unit[columns].T) * upper for unit in units])  # (E, rows, columns)
            for first in np.unique(of_fold[rows]):
                block = cosines[:, of_fold[rows] == first].reshape(number, -1)
                products[first, second] += block @ block.T
                sums[first, second] += block.sum(axis=1)
                pairs[first, second] += upper[of_fold[rows] == first].sum()
    return products, sums, pairs


def _cosine(products: Floats, sums: Floats, pairs: float, centred: bool) -> Floats:
    if centred and pairs:
        products = products - np.outer(sums, sums) / pairs
    length = np.sqrt(np.maximum(np.diag(products), 0.0))
    scale = np.outer(length, length)
    result: Floats = np.divide(products, scale, out=np.full(scale.shape, np.nan), where=scale > 1e-300)
    return np.clip(result, -1, 1)


# How far failures of one classifier are failures of others, from counts by caption.
#
# Images of one caption share what makes them hard, so captions are the sampling unit: an interval that takes a
# thousand images of ten captions for independent is far too narrow.


@dataclass(frozen=True)
class Estimate:
    """An estimate and the limits of its interval, arrays of one shape; NaN where there are no data."""

    value: Floats
    low: Floats
    high: Floats


UNSEEN = 2
"""Captions that are added to those that were drawn, of each kind of answer."""


def clustered_rate(failures: ArrayLike, totals: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Computes a rate over all images of several captions, with an interval for captions like these.

    r = sum f_c / N,   v = (K-1)/K * sum ((f_c - r n_c) / (N - n_c))^2,   N = sum n_c

    the jackknife's variance over K captions with images: that of a linearised ratio (Cochran 1977, Eq. 6.13) where all
    have as many, and more where a few have most (CR3: Cameron & Miller 2015, section VI.B). The interval is Wilson's
    with the effective number of images r(1-r)/v, at most the images themselves, and Student's quantile of k - 1
    degrees, k = N^2 / sum n_c^2: captions that have most images count for most.

    Where few captions make a classifier fail, those that were drawn do not show how much captions differ, and the rate
    is more often above the interval than below. So the upper limit's variance has two captions more, in the manner of
    Agresti & Coull 1998:

      v' = v + (K-1)/K * 2 * (1 - q) * ((q - r) / k)^2

    of the size N/k, which fail as often as the images of the captions that have a failure (q); the lower limit's
    likewise two that are right as often as those with a right answer. Captions that fail on all images or on none (one
    image each, or copies of one) are as single answers, and nothing is added.
    In simulations of 10 to 200 captions, also with images that are log-normal (sigma 1 to 1.5) and with rates of .005
    to .1, an interval of .95 holds the rate in .91 to .99; without the two it was .77 to .99, and with the linearised
    variance and K - 1 degrees .75 to .98. Where all answers are alike, v carries no information, and k is the effective
    number. A single caption says nothing about others: its images then count as independent, and reports have to say
    so.

    Args: failures, totals: whole numbers of shape (..., captions), 0 <= failures <= totals. confidence: in (0, 1).
    Returns: `Estimate` of shape (...); NaN where there is no image.
    Raises: ValueError for shapes that differ, or counts out of range.
    """
    f, n = np.asarray(failures, np.float64), np.asarray(totals, np.float64)
    if f.shape != n.shape or f.ndim == 0 or (f < 0).any() or (f > n).any():
        raise ValueError(f"need 0 <= failures <= totals of one shape (..., captions), got {f.shape} and {n.shape}")
    images, captions = n.sum(axis=-1), (n > 0).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = f.sum(axis=-1) / images
        jackknife = (f - rate[..., None] * n) / (images[..., None] - n)
        squares = (jackknife**2).sum(axis=-1)
    is_extreme, is_single = (rate == 0) | (rate == 1), captions <= 1
    z = np.where(is_single | is_extreme, deviations(confidence), _student(n, confidence))
    limits = []
    for side, unseen in enumerate((n - f, f)):
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = (captions - 1.0) / captions * (squares + _of_unseen_captions(unseen, n))
            effective = np.minimum(rate * (1 - rate) / spread, images)
        effective = np.where(is_single, images, np.where(is_extreme, _effective_captions(n), effective))
        limits.append(np.where(images > 0, wilson(rate * effective, effective, z)[side], np.nan))
    return Estimate(rate, limits[0], limits[1])


def _of_unseen_captions(answers: Floats, totals: Floats) -> Floats:
    """Returns what two captions more, with such answers as often as on the captions that have one, add to the sum of a
    jackknife's squares. `answers`, `totals`: of shape (..., captions)."""
    images, of_answers = totals.sum(axis=-1), answers.sum(axis=-1)
    share = of_answers / np.where(answers > 0, totals, 0.0).sum(axis=-1)
    beyond = np.nan_to_num(share - of_answers / images) / _effective_captions(totals)
    result: Floats = UNSEEN * (1 - share) * beyond**2
    return result


def clustered_consistency(
    wrong_a: ArrayLike, wrong_b: ArrayLike, both: ArrayLike, totals: ArrayLike, confidence: float = 0.95
) -> Estimate:
    """Computes the error consistency of pairs of classifiers from counts by caption, with an interval for captions like
    these.

    kappa as `paired.error_consistency`; its interval is kappa -+ t * s, within [-1, 1], t Student's quantile with the
    degrees of `clustered_rate` and

    s^2 = (K-1)/K * (sum (kappa_-c - mean)^2 + (kappa_+both - kappa)^2 + (kappa_+one - kappa)^2)

    the jackknife's variance over captions (Efron & Tibshirani 1993, Eq. 11.5) with two captions more, in the manner of
    Agresti & Min 2005: one on which both fail, and one on which only one of them does, each as often as on the captions
    on which it fails. Where few captions make a classifier fail, those that were drawn do not show how much kappa
    varies: the jackknife alone held it in .30 to .88 of samples of 10 to 30 captions with rates of .02 to .1, and was a
    point where all failures were shared. So it is held in .93 or more, .89 where captions' sizes are log-normal too,
    and hardly changed where failures are many.

    Args: wrong_a, wrong_b, both: images that A, B and both got wrong; totals: images. Whole numbers of one shape (...,
    captions). confidence: in (0, 1).
    Returns: `Estimate` of shape (...). NaN without images; the limits are NaN too where fewer than
    two captions have images, and where a classifier is right on all or on none: its kappa is then the same whatever the
    other does.
    """
    a, b, c, n = (np.asarray(counts, np.float64) for counts in (wrong_a, wrong_b, both, totals))
    totals_of_counts = tuple(counts.sum(axis=-1) for counts in (a, b, c, n))
    value = _kappa(*totals_of_counts)
    jackknife = _kappa(
        *(total[..., None] - counts for total, counts in zip(totals_of_counts, (a, b, c, n), strict=True))
    )
    has_images = n > 0
    captions = has_images.sum(axis=-1)
    jackknife = np.where(has_images & ~np.isnan(jackknife), jackknife, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(jackknife, axis=-1) / captions
        squares = np.nansum((jackknife - mean[..., None]) ** 2, axis=-1) + _of_unseen((a, b), totals_of_counts, n)
        error = np.sqrt((captions - 1.0) / captions * squares)
    margin = _student(n, confidence) * error
    tells = [(wrong > 0) & (wrong < totals_of_counts[3]) for wrong in totals_of_counts[:2]]
    margin = np.where((captions > 1) & tells[0] & tells[1], margin, np.nan)
    return Estimate(value, np.clip(value - margin, -1, 1), np.clip(value + margin, -1, 1))


def _of_unseen(failed: tuple[Floats, Floats], totals: tuple[Floats, ...], images: Floats) -> Floats:
    """Returns the sum of the squares by which kappa would move with one caption more, of as many images as the mean
    one: on which both fail, and on which one of them does.

    Args: failed: by caption, images that A and B got wrong; totals: over captions, images that A, B and both got wrong,
    and all; images: by caption.
    """
    value = _kappa(*totals)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_images = totals[3] / (images > 0).sum(axis=-1)
        # The share that fails of a caption's images, on the caption of a failure.
        of_a, of_b = (np.nansum(x**2 / images, axis=-1) / x.sum(axis=-1) * mean_images for x in failed)

    def moved(a: Floats, b: Floats, both: Floats) -> Floats:
        more = (a, b, both, mean_images)
        kappa = _kappa(*(np.nan_to_num(total + added) for total, added in zip(totals, more, strict=True)))
        return np.nan_to_num(np.abs(kappa - value))

    either, none = np.minimum(of_a, of_b), np.zeros(np.shape(value))
    squares: Floats = (
        moved(either, either, either) ** 2 + np.maximum(moved(of_a, none, none), moved(none, of_b, none)) ** 2
    )
    return squares


def _effective_captions(images: Floats) -> Floats:
    """Returns how many captions of equal numbers of images weigh as much as these: N^2 / sum n_c^2 (Kish 1965)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        effective: Floats = images.sum(axis=-1) ** 2 / (images**2).sum(axis=-1)
    return effective


def _student(images: Floats, confidence: float) -> Floats:
    quantile: Floats = stdtrit(np.maximum(_effective_captions(images) - 1, 1), (1 + confidence) / 2)
    return quantile


def _kappa(wrong_a: Floats, wrong_b: Floats, both: Floats, images: Floats) -> Floats:
    """Computes Cohen's kappa of two classifiers' correctness (Geirhos et al. 2020, Eqs. 1 to 3); 1 where they agree on
    all."""
    with np.errstate(invalid="ignore", divide="ignore"):
        p, q = 1 - wrong_a / images, 1 - wrong_b / images
        observed = 1 - (wrong_a + wrong_b - 2 * both) / images
        expected = p * q + (1 - p) * (1 - q)
        kappa: Floats = (observed - expected) / (1 - expected)
    return np.where(images > 0, np.where(wrong_a + wrong_b == 2 * both, 1.0, kappa), np.nan)
