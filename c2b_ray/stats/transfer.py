"""How far failures of one classifier are failures of others, from counts by caption.

Images of one caption share what makes them hard, so captions are the sampling unit: an interval that takes a thousand
images of ten captions for independent is far too narrow. Knows counts by caption; knows no classifier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from c2b_ray.stats.intervals import wilson
from c2b_ray.stats.roots import deviations
from c2b_ray.stats.scores import Floats

__all__ = ["Estimate", "clustered_consistency", "clustered_rate"]


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
        left_out = (f - rate[..., None] * n) / (images[..., None] - n)
        spread = (captions - 1.0) / captions * (left_out**2).sum(axis=-1)
        effective = np.minimum(rate * (1 - rate) / spread, images)
    alike, alone = (rate == 0) | (rate == 1), captions <= 1
    effective = np.where(alone, images, np.where(alike, _effective_captions(n), effective))
    z = np.where(alone | alike, deviations(confidence), _student(n, confidence))
    low, high = wilson(rate * effective, effective, z)
    return Estimate(rate, np.where(images > 0, low, np.nan), np.where(images > 0, high, np.nan))


def clustered_consistency(
    wrong_a: ArrayLike, wrong_b: ArrayLike, both: ArrayLike, totals: ArrayLike, confidence: float = 0.95
) -> Estimate:
    """Computes the error consistency of pairs of classifiers from counts by caption, with an interval for captions like
    these.

    kappa as `consistency.error_consistency`; its interval is kappa -+ t * s, s the jackknife's standard error over
    captions (Efron & Tibshirani 1993, Eq. 11.5) and t Student's quantile with the degrees of `clustered_rate`, within
    [-1, 1].

    Args: wrong_a, wrong_b, both: images that A, B and both got wrong; totals: images. Whole numbers of one shape (...,
    captions). confidence: in (0, 1).
    Returns: `Estimate` of shape (...). NaN without images; the limits are NaN too where fewer than
    two captions have images, and where a classifier is right on all or on none: its kappa is then the same whatever the
    other does.
    """
    a, b, c, n = (np.asarray(counts, np.float64) for counts in (wrong_a, wrong_b, both, totals))
    whole = tuple(counts.sum(axis=-1) for counts in (a, b, c, n))
    value = _kappa(*whole)
    left = _kappa(*(total[..., None] - counts for total, counts in zip(whole, (a, b, c, n), strict=True)))
    held = n > 0
    captions = held.sum(axis=-1)
    left = np.where(held & ~np.isnan(left), left, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(left, axis=-1) / captions
        squares = np.nansum((left - mean[..., None]) ** 2, axis=-1)
        error = np.sqrt((captions - 1.0) / captions * squares)
    reach = _student(n, confidence) * error
    tells = [(wrong > 0) & (wrong < whole[3]) for wrong in whole[:2]]
    reach = np.where((captions > 1) & tells[0] & tells[1], reach, np.nan)
    return Estimate(value, np.clip(value - reach, -1, 1), np.clip(value + reach, -1, 1))


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
