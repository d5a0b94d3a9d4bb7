"""Clusters of images, such as those of one camera, patient or video: which images are not independent of each other.

It knows images, cells and counts; `metrics.cluster_robust` has the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import stdtrit

from c2b_ray.metrics.cluster_robust import cluster_design
from c2b_ray.metrics.contrasts import Design
from c2b_ray.metrics.levels import MOST_DEVIATIONS, deviations
from c2b_ray.steps.cells import CellImages
from c2b_ray.steps.image_ids import Ints, Mask, numbered

TOO_FEW_CLUSTERS = "too few clusters"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClusterSums:
    """Sums over the images of each cell and cluster. `clusters` (clusters,): their numbers in the run; `sums`, `images`
    (cells, clusters): of a number of each image, such as whether it was answered right, and how many images."""

    clusters: Ints
    sums: Floats
    images: Floats

    @property
    def count(self) -> Ints:
        """The number of clusters of each cell."""
        count: Ints = (self.images > 0).sum(axis=1)
        return count

    def variance(self) -> Floats:
        """Returns s(1 - s) of each cell, the variance of a right answer, s with half a right and half a wrong answer
        added."""
        smooth: Floats = (self.sums.sum(axis=1) + 0.5) / (self.images.sum(axis=1) + 1)
        return smooth * (1 - smooth)

    def design(self, weights: Floats, variance: Floats | None = None) -> Design:
        """Returns the design of weighted sums (sums, cells) of the cells' means."""
        return cluster_design(self.sums, self.images, self.variance() if variance is None else variance, weights)

    def effective(self, confidence: float, variance: Floats | None = None) -> Floats:
        """Returns the number of independent images that give each cell's mean an interval as wide, at most all."""
        images = self.images.sum(axis=1)
        effective: Floats = images / inflation(
            self.design(np.diag((images > 0).astype(np.float64)), variance), confidence
        )
        return effective


class Clusters:
    """The clusters of a run. `table`: of `schemas.CLUSTERS`; `named`: what a cluster is, such as `camera`.

    An image without a cluster is one of its own.
    """

    def __init__(self, table: pa.Table, named: str) -> None:
        known = table.filter(table["cluster"].is_valid())
        self.named = named
        self._images = known["image_id"]
        self._names, self._numbers = numbered(known["cluster"])

    def of(self, cells: CellImages) -> Ints:
        """Returns the number of the cluster of each row of `cells`."""
        of_image = len(self._names) + np.arange(len(cells.ids))
        image = cells.ids.numbers(self._images)
        known = image >= 0
        of_image[image[known]] = self._numbers[known]
        result: Ints = of_image[cells.image]
        return result

    def single(self, value: str) -> str:
        """Returns why a value of one cluster is in doubt."""
        return (
            f"all images of {value!r} are of one {self.named}, whose other properties cannot be told from it: give it "
            f"images of others"
        )

    def scarce(self, clusters: int, needed: int | None) -> str:
        """Returns why a cell is open, in clusters. `needed`: clusters that would settle it; None: not known."""
        about = "" if needed is None else f": about {needed:,} in each value would settle it"
        return f"{TOO_FEW_CLUSTERS} ({self.named}: {clusters:,} here){about}; more images of the same ones tell little"


def cluster_sums(cells: CellImages, group: slice, clusters: Ints, numbers: Ints | Mask, counted: Mask) -> ClusterSums:
    """Sums `numbers` over the counted rows of adjacent cells, by cell and cluster. All arrays have a value per row of
    `cells`."""
    rows = np.arange(cells.rows(group).start, cells.rows(group).stop)
    rows = rows[counted[rows]]
    names, column = np.unique(clusters[rows], return_inverse=True)
    shape = group.stop - group.start, len(names)
    at = (cells.cell[rows] - group.start) * len(names) + column
    sums, images = (
        np.bincount(at, weights=weights, minlength=shape[0] * shape[1]).reshape(shape)
        for weights in (numbers[rows].astype(np.float64), np.ones(len(rows)))
    )
    return ClusterSums(names, sums, images)


def together(parts: Sequence[ClusterSums]) -> ClusterSums:
    """Returns the cells of all parts as those of one table, in which a cluster has one column."""
    names = np.unique(np.concatenate([part.clusters for part in parts]))
    sums, images = (np.zeros((sum(len(part.images) for part in parts), len(names))) for _ in range(2))
    start = 0
    for part in parts:
        here = slice(start, start + len(part.images)), np.searchsorted(names, part.clusters)
        sums[here], images[here] = part.sums, part.images
        start = here[0].stop
    return ClusterSums(names, sums, images)


def inflation(design: Design, confidence: float) -> Floats:
    """Returns by how much fewer independent images would give intervals as wide as the design's; 1 or more."""
    z = deviations(confidence)
    reach = np.minimum(stdtrit(np.minimum(design.degrees, 1e6), (1 + confidence) / 2), MOST_DEVIATIONS)
    result: Floats = np.maximum(design.factor * (reach / z) ** 2, 1.0)
    return result
