"""Failure rates of images in clusters, such as those of one camera: rates, ratios and tests of two sides.

Works on failures and images by side and cluster. Clusters are the independent samples; one cluster may hold images of
both sides. `cluster_robust` has the variance, `contrasts` the tails, and `rates` the same for independent images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from c2b_ray.stats.clusters import LEAST_DEGREES, cluster_design
from c2b_ray.stats.contrasts import Design, contrast_interval, contrast_p_values
from c2b_ray.stats.rates import RateEstimate, ratios_of
from c2b_ray.stats.roots import checked_levels
from c2b_ray.stats.scores import Floats

__all__ = ["ClusteredSides", "Correlation", "clustered_more_p_values", "clustered_rate_ratios", "clustered_rates"]

OWN, OTHERS = 0, 1


class Correlation(NamedTuple):
    """An intraclass correlation of failures, at most 1, below 0 taken as 0, and the degrees of freedom with which it is
    known."""

    value: float
    degrees: float


UNKNOWN = Correlation(0.0, 0.0)


@dataclass(frozen=True)
class ClusteredSides:
    """Failures and images by side and cluster, float64 (..., 2, clusters), 0 <= failures <= images: first the images
    with a caption, then those that it is compared with."""

    failures: Floats
    images: Floats

    @classmethod
    def of(cls, failures: ArrayLike, images: ArrayLike) -> ClusteredSides:
        """Builds checked sides. Raises: ValueError where shapes or counts are invalid."""
        f, n = np.asarray(failures, np.float64), np.asarray(images, np.float64)
        if f.shape != n.shape or f.ndim < 2 or f.shape[-2] != 2 or not ((f >= 0) & (f <= n)).all():
            raise ValueError(
                f"need failures and images of one shape (..., 2, clusters), 0 <= failures <= images; got shapes "
                f"{f.shape} and {n.shape}"
            )
        return cls(f, n)

    @property
    def rates(self) -> Floats:
        """Failures over images of each side, (..., 2); NaN for a side without images."""
        images = self.images.sum(axis=-1)
        rates: Floats = np.divide(
            self.failures.sum(axis=-1), images, out=np.full(images.shape, np.nan), where=images > 0
        )
        return rates

    @property
    def clusters(self) -> Floats:
        """The number of clusters of each side, (..., 2)."""
        count: Floats = (self.images > 0).sum(axis=-1).astype(np.float64)
        return count

    def _variance(self) -> Floats:
        smooth: Floats = (self.failures.sum(axis=-1) + 0.5) / (self.images.sum(axis=-1) + 1)
        return smooth * (1 - smooth)


def clustered_rates(sides: ClusteredSides, confidence: float = 0.95, known: Correlation = UNKNOWN) -> RateEstimate:
    """Computes the failure rate of each side with limits.

    rate = f/n;  limits: those of a sum with the one weight 1 in `contrast_interval`, under the design

    factor = (d * F + d0 * F0) / (d + d0),   degrees = d + d0,   F0 = 1 + (sum over clusters of n_g^2 / n - 1) * rho

    F and d are those of `cluster_design`, rho and d0 the correlation of more images and its degrees (Kish 1965, section
    5.4, for F0; moderated as variances of few samples are by those of many, Smyth 2004, Statistical Applications in
    Genetics and Molecular Biology 3: 3, section 3). Failures are rare, and most clusters of a side may have none: then
    its own variance between clusters says little. A side of one cluster says nothing, and is not moderated.

    Args: sides: (..., 2, clusters); confidence: in (0, 1); known: what other images tell too.
    Returns: `RateEstimate` (..., 2) in [0, 1]. Without images NaN within (0, 1); nearly so with images of one cluster.
    Raises: ValueError for the confidence.
    """
    checked_levels(confidence=confidence)
    f, n, rates = sides.failures.sum(axis=-1), sides.images.sum(axis=-1), sides.rates
    weights = np.where(n > 0, 1.0, np.nan)[..., None, None]
    design = cluster_design(
        sides.failures[..., None, :], sides.images[..., None, :], sides._variance()[..., None], weights
    )
    sizes = np.divide((sides.images**2).sum(axis=-1), n, out=np.ones(n.shape), where=n > 0)
    expected = (1 + (sizes - 1) * max(known.value, 0.0))[..., None]
    more = np.where(design.degrees > LEAST_DEGREES, known.degrees, 0.0)
    degrees = design.degrees + more
    design = Design((design.degrees * design.factor + more * expected) / degrees, degrees)
    low, high = contrast_interval(f[..., None, None], n[..., None, None], weights, confidence, design)
    low, high = np.clip(np.nan_to_num(low[..., 0], nan=0.0), 0, 1), np.clip(np.nan_to_num(high[..., 0], nan=1.0), 0, 1)
    return RateEstimate(rates, low, high)


def clustered_rate_ratios(
    sides: ClusteredSides, confidence: float = 0.95, known: Correlation = UNKNOWN
) -> RateEstimate:
    """Computes the ratio of the first side's failure rate to the second's, with limits.

    The limits follow from those of both rates as `rate_ratios` has it (MOVER-R, Donner & Zou 2012), as if the rates
    were independent: where clusters hold images of both sides and fail more on both, the interval is too wide, never
    too narrow.

    Args: as for `clustered_rates`.
    Returns: `RateEstimate` (...), 0 or more, as `rate_ratios`.
    Raises: ValueError for the confidence.
    """
    rates = clustered_rates(sides, confidence, known)
    own, others = (RateEstimate(*(values[..., side] for values in rates)) for side in (OWN, OTHERS))
    return ratios_of(own, others)


def clustered_more_p_values(sides: ClusteredSides) -> Floats:
    """Computes the p-value of "the first side fails no more often than the second".

    p = P(T beyond t | rates equal), one-sided: half of `contrast_p_values` of the difference where it is above 0, else
    1 less that half

    Args: sides: (..., 2, clusters).
    Returns: float64 (...) in [0, 1]; 1 where a side has no images.
    """
    f, n = sides.failures.sum(axis=-1), sides.images.sum(axis=-1)
    weights = np.where((n > 0).all(axis=-1, keepdims=True), np.array([1.0, -1.0]), np.nan)[..., None, :]
    design = cluster_design(sides.failures, sides.images, sides._variance(), weights)
    half = contrast_p_values(f[..., None, :], n[..., None, :], weights, design=design)[..., 0] / 2
    rates = sides.rates
    p: Floats = np.where(rates[..., OWN] > rates[..., OTHERS], half, 1 - half)
    return np.nan_to_num(p, nan=1.0)
