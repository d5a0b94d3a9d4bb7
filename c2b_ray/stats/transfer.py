"""Similarity of embedding spaces: how far the same pairs of items are similar in both.

Knows embeddings of the same items; knows nothing of what is embedded.
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

__all__ = ["Estimate", "SpaceSimilarity", "clustered_consistency", "clustered_rate", "space_similarity"]


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


def clustered_rate(failures: ArrayLike, totals: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Computes a rate over all images of several captions, with an interval for captions like these.

    r = sum f_c / N,   v = (K-1)/K * sum ((f_c - r n_c) / (N - n_c))^2,   N = sum n_c

    the jackknife's variance over K captions with images: that of a linearised ratio (Cochran 1977, Eq. 6.13) where all
    have as many, and more where a few have most (CR3: Cameron & Miller 2015, section VI.B). The interval is Wilson's
    with the effective number of images r(1-r)/v, at most the images themselves, and Student's quantile of k - 1
    degrees, k = N^2 / sum n_c^2: captions that have most images count for most. In simulations of 10 to 200 captions
    whose images are log-normal (sigma 1 to 1.5), an interval of .95 holds the rate in .91 to .99; with the linearised
    variance and K - 1 degrees it was .75 to .98. Where all answers are alike, v carries no information, and k is the
    effective number. A single caption says nothing about others: its images then count as independent, and reports have
    to say so.

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
        spread = (captions - 1.0) / captions * (jackknife**2).sum(axis=-1)
        effective = np.minimum(rate * (1 - rate) / spread, images)
    is_extreme, is_single = (rate == 0) | (rate == 1), captions <= 1
    effective = np.where(is_single, images, np.where(is_extreme, _effective_captions(n), effective))
    z = np.where(is_single | is_extreme, deviations(confidence), _student(n, confidence))
    low, high = wilson(rate * effective, effective, z)
    return Estimate(rate, np.where(images > 0, low, np.nan), np.where(images > 0, high, np.nan))


def clustered_consistency(
    wrong_a: ArrayLike, wrong_b: ArrayLike, both: ArrayLike, totals: ArrayLike, confidence: float = 0.95
) -> Estimate:
    """Computes the error consistency of pairs of classifiers from counts by caption, with an interval for captions like
    these.

    kappa as `paired.error_consistency`; its interval is kappa -+ t * s, s the jackknife's standard error over
    captions (Efron & Tibshirani 1993, Eq. 11.5) and t Student's quantile with the degrees of `clustered_rate`, within
    [-1, 1].

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
        squares = np.nansum((jackknife - mean[..., None]) ** 2, axis=-1)
        error = np.sqrt((captions - 1.0) / captions * squares)
    margin = _student(n, confidence) * error
    tells = [(wrong > 0) & (wrong < totals_of_counts[3]) for wrong in totals_of_counts[:2]]
    margin = np.where((captions > 1) & tells[0] & tells[1], margin, np.nan)
    return Estimate(value, np.clip(value - margin, -1, 1), np.clip(value + margin, -1, 1))


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
