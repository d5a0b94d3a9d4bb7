"""Mean and covariance of features that come in parts, and a sample of them of bounded size.

Knows vectors; knows nothing of images or of the network that made the features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from c2b_ray.metrics.scores import Floats

__all__ = ["Moments", "Sample", "needed_for_covariance"]


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
        apart = mean - self.mean
        count = self.count + len(part)
        self._squares += centred.T @ centred + np.outer(apart, apart) * (self.count * len(part) / count)
        self.mean = self.mean + apart * (len(part) / count)
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
        joined = np.concatenate([self._marks, marks])
        kept = np.argsort(joined, kind="stable")[: self._most]
        self._rows = np.concatenate([self._rows, np.asarray(rows, np.float32)])[kept]
        self._marks = joined[kept]

    @property
    def rows(self) -> NDArray[np.float32]:
        """Returns the sampled rows, sorted by their marks."""
        return self._rows


def needed_for_covariance(dimension: int) -> int:
    """Returns the least number of rows whose covariance can be regular; with fewer it is singular, and a Frechet
    distance would compare a degenerate distribution."""
    return dimension + 1
