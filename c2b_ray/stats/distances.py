"""Distances between two sets of images, from their features: Frechet and kernel distance (FID and KID with
Inception's).

Knows feature vectors and their moments; knows nothing of images or of the network that made the features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.stats.scores import Floats

__all__ = ["Moments", "Sample", "frechet_distance", "kernel_distance", "needed_for_covariance"]


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
