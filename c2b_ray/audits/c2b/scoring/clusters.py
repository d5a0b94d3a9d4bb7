"""Clusters of images, such as those of one camera, patient or video: which images are not independent of each other.

It knows images, cells and counts; `stats.clusters` has the formulas.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import stdtrit

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.roles import ImageIndex
from c2b_ray.stats.clusters import cluster_correlation, cluster_design
from c2b_ray.stats.contrasts import Design
from c2b_ray.stats.roots import MOST_DEVIATIONS, deviations
from c2b_ray.steps.answers import CellAnswers
from c2b_ray.steps.cells import CellImages
from c2b_ray.steps.draw import Ints, Mask, numbered
from c2b_ray.tables import CLUSTERS

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
    """The clusters of a run. `table`: of `tables.CLUSTERS`; `named`: what a cluster is, such as `camera`.

    An image without a cluster is one of its own.
    """

    def __init__(self, table: pa.Table, named: str) -> None:
        clustered = table.filter(table["cluster"].is_valid())
        self.named = named
        self._images = clustered["image_id"]
        self._names, self._numbers = numbered(clustered["cluster"])

    def of(self, cells: CellImages) -> Ints:
        """Returns the number of the cluster of each row of `cells`."""
        of_image = len(self._names) + np.arange(len(cells.ids))
        image = cells.ids.numbers(self._images)
        is_known = image >= 0
        of_image[image[is_known]] = self._numbers[is_known]
        result: Ints = of_image[cells.image]
        return result

    def single(self, value: str) -> str:
        """Returns why a value of one cluster is in doubt."""
        return (
            f"all images of {value!r} are of one {self.named}, whose other properties cannot be told from it: give it "
            f"images of others"
        )

    def scarce(self, clusters: int, needed: int | None) -> str:
        """Returns why a cell is open, in clusters. `needed`: as many would settle it; None: not known."""
        estimate = "" if needed is None else f": about {needed:,} in each value would settle it"
        return (
            f"{TOO_FEW_CLUSTERS} ({self.named}: {clusters:,} here){estimate}; more images of the same ones tell little"
        )


def cluster_sums(
    cells: CellImages, group: slice, clusters: Ints, numbers: Ints | Mask, is_counted: Mask
) -> ClusterSums:
    """Sums `numbers` over the counted rows of adjacent cells, by cell and cluster. All arrays have a value per row of
    `cells`."""
    rows = np.arange(cells.rows(group).start, cells.rows(group).stop)
    rows = rows[is_counted[rows]]
    names, column = np.unique(clusters[rows], return_inverse=True)
    shape = group.stop - group.start, len(names)
    flat_index = (cells.cell[rows] - group.start) * len(names) + column
    sums, images = (
        np.bincount(flat_index, weights=weights, minlength=shape[0] * shape[1]).reshape(shape)
        for weights in (numbers[rows].astype(np.float64), np.ones(len(rows)))
    )
    return ClusterSums(names, sums, images)


def effective_answers(answers: CellAnswers, rows: Ints, clusters: Ints, confidence: float) -> float:
    """Returns the number of independent images that give the share of right answers to these rows an interval as wide;
    at most how many are answered. `clusters`: of each row of the cells; `rows`: of images of any cells."""
    rows = rows[answers.answered[rows]]
    names, column = np.unique(clusters[rows], return_inverse=True)
    if not len(rows):
        return 0.0
    sums, images = (
        np.bincount(column, weights).astype(np.float64)[None, :]
        for weights in (answers.right[rows].astype(np.float64), np.ones(len(rows)))
    )
    return float(ClusterSums(names, sums, images).effective(confidence)[0])


def add_cluster_sums(parts: Sequence[ClusterSums]) -> ClusterSums:
    """Returns the cells of all parts as those of one table, in which a cluster has one column."""
    names = np.unique(np.concatenate([part.clusters for part in parts]))
    sums, images = (np.zeros((sum(len(part.images) for part in parts), len(names))) for _ in range(2))
    start = 0
    for part in parts:
        block = slice(start, start + len(part.images)), np.searchsorted(names, part.clusters)
        sums[block], images[block] = part.sums, part.images
        start = block[0].stop
    return ClusterSums(names, sums, images)


def inflation(design: Design, confidence: float) -> Floats:
    """Returns by how much fewer independent images would give intervals as wide as the design's; 1 or more."""
    z = deviations(confidence)
    reach = np.minimum(stdtrit(np.minimum(design.degrees, 1e6), (1 + confidence) / 2), MOST_DEVIATIONS)
    result: Floats = np.maximum(design.factor * (reach / z) ** 2, 1.0)
    return result


# Whether images that share a value of a column, such as one camera, are answered alike, though the audit takes them
# as independent.


FEWEST_VALUES = 5
FEWEST_IMAGES = 10
"""The fewest images that a value of the column has on average."""
FEWEST_ANSWERS = 10
"""The fewest right answers, and wrong ones: with two or three wrong ones the p-value is too small."""
LEAST_CORRELATION = 0.02
"""The least intraclass correlation that matters: with 20 images a cluster, intervals are too narrow by a seventh."""
LEVEL = 0.05


@dataclass(frozen=True)
class ClusterLikeColumn:
    """A column whose values have `images` images each on average, answered alike by `classifier`: `correlation` is the
    intraclass correlation of right answers."""

    column: str
    classifier: str
    correlation: float
    values: int
    images: float

    def __str__(self) -> str:
        return (
            f"images of one {self.column} are answered alike by {self.classifier} (intraclass correlation "
            f"{self.correlation:.2f} of right answers within class and attributes; {self.values:,} values, "
            f"{self.images:.0f} images each), so that intervals which take them as independent may be too narrow: "
            f"write `cluster: {self.column}` under `images`; or, if it is a property to compare, name it in "
            "`attributes`"
        )


def answered_alike(
    answers: Mapping[str, CellAnswers],
    pictures: Ints,
    columns: Mapping[str, Ints],
    attribute_of: Mapping[str, str] = MappingProxyType({}),
) -> list[ClusterLikeColumn]:
    """Returns the columns by whose values images are answered alike, each with the classifier that shows it most.

    Images are compared with others of the same class and the same values of all attributes of the audit, but of the one
    that a column itself is (`attribute_of`), and a picture counts once in each. A column has at least `FEWEST_VALUES`
    values of `FEWEST_IMAGES` images on average. All columns and classifiers are tested together at `LEVEL`
    (Bonferroni).

    `answers`: of each classifier, to the same cells. `pictures`: the picture of each image; `columns`: the number of
    its value in each column, -1 for none; arrays have a value for each of the cells' image ids.
    """
    tested = []
    for classifier, of_classifier in answers.items():
        known: dict[str | None, tuple[Ints, Ints, Ints]] = {}
        for column, value_of in columns.items():
            without = attribute_of.get(column)
            if without not in known:
                known[without] = _strata(of_classifier, pictures, without)
            image, stratum, right = known[without]
            has_value = value_of[image] >= 0
            value = value_of[image[has_value]]
            values, images = len(np.unique(value)), len(value)
            rarer = min(right[has_value].sum(), images - right[has_value].sum())
            if values >= FEWEST_VALUES and images >= FEWEST_IMAGES * values and rarer >= FEWEST_ANSWERS:
                parts, part = np.unique(stratum[has_value] * (int(value.max()) + 1) + value, return_inverse=True)
                sums = (np.bincount(part, weights) for weights in (right[has_value], np.ones(images)))
                rho, p = cluster_correlation(parts // (int(value.max()) + 1), *sums)
                tested.append((p, ClusterLikeColumn(column, classifier, rho, values, images / values)))
    cluster_like = [
        column_found
        for p, column_found in tested
        if p * len(tested) < LEVEL and column_found.correlation >= LEAST_CORRELATION
    ]
    return _most_of_each(cluster_like)


def _most_of_each(cluster_like: Sequence[ClusterLikeColumn]) -> list[ClusterLikeColumn]:
    most: dict[str, ClusterLikeColumn] = {}
    for column_found in sorted(cluster_like, key=lambda column_found: -column_found.correlation):
        most.setdefault(column_found.column, column_found)
    return list(most.values())


def _strata(answers: CellAnswers, pictures: Ints, without: str | None) -> tuple[Ints, Ints, Ints]:
    """Returns the answered images, each picture of a stratum once; the stratum of each, which is its class with all of
    its values but those of the attribute `without`; and whether it was answered right, 0 or 1."""
    cells = answers.cells
    none = np.zeros(0, np.int64)
    parts, first = [(none, none, none)], 0
    for target in cells.groups_of_class:
        rows = cells.rows_of_class(target)
        rows = rows[answers.answered[rows]]
        image = cells.image[rows]
        stratum = _values(cells, target, image, without)
        _, once = np.unique(stratum * (int(pictures.max(initial=0)) + 1) + pictures[image], return_index=True)
        parts.append((image[once], first + stratum[once], answers.right[rows[once]].astype(np.int64)))
        first += int(stratum.max(initial=-1)) + 1
    image, stratum, right = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return image, stratum, right


def _values(cells: CellImages, target: str, image: Ints, without: str | None) -> Ints:
    """Numbers the combinations of values of all attributes but `without` that these images of a class, in ascending
    order, have."""
    combination = np.zeros(len(image), np.int64)
    for group in cells.groups_of_class[target]:
        if group.attribute == without:
            continue
        rows = cells.rows(group.cells)
        is_in_image = np.isin(cells.image[rows], image)
        value = np.zeros(len(image), np.int64)  # 0: none
        value[np.searchsorted(image, cells.image[rows][is_in_image])] = (
            cells.cell[rows][is_in_image] - group.cells.start + 1
        )
        _, combination = np.unique(combination * (len(group.values) + 1) + value, return_inverse=True)
    return combination.astype(np.int64)


# The cluster of each image of an index, such as its camera, from the metadata that the index keeps of it.


FOLDER = "folder"
"""Clusters by the folder in an image's key, unless its metadata has a column of this name."""
AT_ONCE = 16_384


def check_clusters_of_index(open_index: Callable[[], ImageIndex], name: str) -> None:
    """Raises ConfigError where the index's first image has no column `name`: all have the same ones."""
    columns = _columns(open_index(), [0])[0][1]
    if name not in columns and name != FOLDER:
        raise ConfigError(
            "images.cluster",
            f"the index's images have no column {name!r} (`c2b index build` keeps all columns of its source); "
            f"{nearest(name, [*columns, FOLDER])}",
        )


def clusters_of_index(open_index: Callable[[], ImageIndex], images: pa.Table, name: str) -> pa.Table:
    """Returns a table of `tables.CLUSTERS`, a row per row of `images` (`image_id`, `row` in the index).

    `name`: a column of the source that the index was built from, or `folder`. The cluster is null where an image has no
    value: none, an empty text, or NaN. Raises ConfigError where none of the images has a value.
    """
    index = open_index()
    rows, clusters = images["row"].to_pylist(), list[str | None]()
    for start in range(0, len(rows), AT_ONCE):
        for key, columns in _columns(index, rows[start : start + AT_ONCE]):
            clusters.append(
                (key.rpartition("/")[0] or None)
                if name == FOLDER and name not in columns
                else _as_text(columns.get(name))
            )
    if clusters and all(cluster is None for cluster in clusters):
        raise ConfigError(
            "images.cluster", f"none of {len(clusters):,} images of the index has a {name}; name another column"
        )
    return pa.table({"image_id": images["image_id"], "cluster": pa.array(clusters, pa.string())}).cast(CLUSTERS)


def _columns(index: ImageIndex, rows: list[int]) -> list[tuple[str, Mapping[str, Any]]]:
    """Returns the key of each image, and its source's columns."""
    metadata = index.metadata(rows)
    texts = metadata["metadata"].to_pylist() if "metadata" in metadata.column_names else [None] * metadata.num_rows
    return [(key, json.loads(text or "{}")) for key, text in zip(metadata["key"].to_pylist(), texts, strict=True)]


def _as_text(value: object) -> str | None:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
