"""How far failures of one classifier are failures of others, from counts by caption.

Images of one caption share what makes them hard, so captions are the sampling unit: an interval that takes a thousand
images of ten captions for independent is far too narrow. Knows counts by caption; knows no classifier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from c2b_ray.metrics.intervals import wilson
from c2b_ray.metrics.levels import deviations
from c2b_ray.metrics.scores import Floats

__all__ = ["Estimate", "clustered_consistency", "clustered_rate"]


@dataclass(frozen=True)
class Estimate:
    """An estimate and the limits of its interval, arrays of one shape; NaN where there are no data."""

    value: Floats
    low: Floats
    high: Floats


def clustered_rate(failures: ArrayLike, totals: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Computes a rate over all images of several captions, with an interval for captions like these.

    r = sum f_c / sum n_c,   v = K/(K-1) * sum (f_c - r n_c)^2 / (sum n_c)^2

    the linearised variance of a ratio over K captions with images (Cochran 1977, Eq. 6.13). The interval is Wilson's
    with the effective number of images r(1-r)/v, at most the images themselves, and Student's quantile of K - 1
    degrees. Where all answers are alike, v carries no information, and captions count as images. A single caption says
    nothing about others: its images then count as independent, and reports have to say so.

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
        spread = captions / (captions - 1.0) * ((f - rate[..., None] * n) ** 2).sum(axis=-1) / images**2
        effective = np.minimum(rate * (1 - rate) / spread, images)
    alike = (rate == 0) | (rate == 1)
    effective = np.where(captions <= 1, images, np.where(alike, np.minimum(captions, images), effective))
    z = np.where(
        (captions > 1) & ~alike, stdtrit(np.maximum(captions - 1, 1), (1 + confidence) / 2), deviations(confidence)
    )
    low, high = wilson(rate * effective, effective, z)
    return Estimate(rate, np.where(images > 0, low, np.nan), np.where(images > 0, high, np.nan))


def clustered_consistency(
    wrong_a: ArrayLike, wrong_b: ArrayLike, both: ArrayLike, totals: ArrayLike, confidence: float = 0.95
) -> Estimate:
    """Computes the error consistency of pairs of classifiers from counts by caption, with an interval for captions like
    these.

    kappa as `consistency.error_consistency`; its interval is kappa -+ t * s, s the jackknife's standard error over
    captions (Efron & Tibshirani 1993, Eq. 11.5) and t Student's quantile of K - 1 degrees, within [-1, 1].

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
    reach = stdtrit(np.maximum(captions - 1, 1), (1 + confidence) / 2) * error
    tells = [(wrong > 0) & (wrong < whole[3]) for wrong in whole[:2]]
    reach = np.where((captions > 1) & tells[0] & tells[1], reach, np.nan)
    return Estimate(value, np.clip(value - reach, -1, 1), np.clip(value + reach, -1, 1))


def _kappa(wrong_a: Floats, wrong_b: Floats, both: Floats, images: Floats) -> Floats:
    """Computes Cohen's kappa of two classifiers' correctness (Geirhos et al. 2020, Eqs. 1 to 3); 1 where they agree on
    all."""
    with np.errstate(invalid="ignore", divide="ignore"):
        p, q = 1 - wrong_a / images, 1 - wrong_b / images
        observed = 1 - (wrong_a + wrong_b - 2 * both) / images
        expected = p * q + (1 - p) * (1 - q)
        kappa: Floats = (observed - expected) / (1 - expected)
    return np.where(images > 0, np.where(wrong_a + wrong_b == 2 * both, 1.0, kappa), np.nan)
