"""Whether images that share a value of a column, such as one camera, are answered alike, though the audit takes them as
independent.

It knows cells, answers and numbers of values; not tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from c2b_ray.metrics.cluster_robust import cluster_correlation
from c2b_ray.steps.answers import CellAnswers
from c2b_ray.steps.cells import CellImages
from c2b_ray.steps.image_ids import Ints

FEWEST_VALUES = 5
FEWEST_IMAGES = 10
"""The fewest images that a value of the column has on average."""
FEWEST_ANSWERS = 10
"""The fewest right answers, and wrong ones: with two or three wrong ones the p-value is too small."""
LEAST_CORRELATION = 0.02
"""The least intraclass correlation that matters: with 20 images a cluster, intervals are too narrow by a seventh."""
LEVEL = 0.05


@dataclass(frozen=True)
class Alike:
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


def answered_alike(answers: Mapping[str, CellAnswers], pictures: Ints, columns: Mapping[str, Ints]) -> list[Alike]:
    """Returns the columns by whose values images are answered alike, each with the classifier that shows it most.

    Images are compared with others of the same class and the same values of all attributes of the audit, and a picture
    counts once in each. A column has at least `FEWEST_VALUES` values of `FEWEST_IMAGES` images on average. All columns
    and classifiers are tested together at `LEVEL` (Bonferroni).

    `answers`: of each classifier, to the same cells. `pictures`: the picture of each image; `columns`: the number of
    its value in each column, -1 for none; arrays have a value for each of the cells' image ids.
    """
    tested = []
    for classifier, of_classifier in answers.items():
        image, stratum, right = _strata(of_classifier, pictures)
        for column, value_of in columns.items():
            known = value_of[image] >= 0
            value = value_of[image[known]]
            values, images = len(np.unique(value)), len(value)
            rarer = min(right[known].sum(), images - right[known].sum())
            if values >= FEWEST_VALUES and images >= FEWEST_IMAGES * values and rarer >= FEWEST_ANSWERS:
                parts, part = np.unique(stratum[known] * (int(value.max()) + 1) + value, return_inverse=True)
                sums = (np.bincount(part, weights) for weights in (right[known], np.ones(images)))
                rho, p = cluster_correlation(parts // (int(value.max()) + 1), *sums)
                tested.append((p, Alike(column, classifier, rho, values, images / values)))
    found = [one for p, one in tested if p * len(tested) < LEVEL and one.correlation >= LEAST_CORRELATION]
    return _most_of_each(found)


def _most_of_each(found: Sequence[Alike]) -> list[Alike]:
    most: dict[str, Alike] = {}
    for one in sorted(found, key=lambda one: -one.correlation):
        most.setdefault(one.column, one)
    return list(most.values())


def _strata(answers: CellAnswers, pictures: Ints) -> tuple[Ints, Ints, Ints]:
    """Returns the answered images, each picture of a stratum once; the stratum of each, which is its class with all of
    its values; and whether it was answered right, 0 or 1."""
    cells = answers.cells
    none = np.zeros(0, np.int64)
    parts, first = [(none, none, none)], 0
    for target in cells.groups_of_class:
        rows = cells.rows_of_class(target)
        rows = rows[answers.answered[rows]]
        image = cells.image[rows]
        stratum = _values(cells, target, image)
        _, once = np.unique(stratum * (int(pictures.max(initial=0)) + 1) + pictures[image], return_index=True)
        parts.append((image[once], first + stratum[once], answers.right[rows[once]].astype(np.int64)))
        first += int(stratum.max(initial=-1)) + 1
    image, stratum, right = (np.concatenate(several) for several in zip(*parts, strict=True))
    return image, stratum, right


def _values(cells: CellImages, target: str, image: Ints) -> Ints:
    """Numbers the combinations of values of all attributes that these images of a class, in ascending order, have."""
    combination = np.zeros(len(image), np.int64)
    for group in cells.groups_of_class[target]:
        rows = cells.rows(group.cells)
        known = np.isin(cells.image[rows], image)
        value = np.zeros(len(image), np.int64)  # 0: none
        value[np.searchsorted(image, cells.image[rows][known])] = cells.cell[rows][known] - group.cells.start + 1
        _, combination = np.unique(combination * (len(group.values) + 1) + value, return_inverse=True)
    return combination.astype(np.int64)
