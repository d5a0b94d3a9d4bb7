"""Suspected label errors: answers that contradict a label with confidence, and what the neighbours are labelled.

It knows labels, probabilities and vectors; nothing of images, models or tables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from c2b_ray.stats.scores import Floats, Ints

__all__ = ["Neighbours", "confident_disagreements", "confident_thresholds", "neighbours"]

SAME = 1 - 1e-4
"""The cosine from which two images are one picture, which is no witness of its own label."""
BLOCK = 2**24
"""Similarities that are in memory at once."""


def confident_thresholds(labels: ArrayLike, probabilities: ArrayLike) -> Floats:
    """Computes for every class how probable a classifier finds it, on average, on the images labelled with it.

    t_j = mean of p_j over the images labelled j

    Northcutt et al. 2021, Confident Learning, Eq. 2. A class of which the classifier is never sure has a low threshold,
    so that it is compared with its own certainty.

    Args: labels: int (images,), in [0, classes); probabilities: (images, classes), NaN in the rows without an answer.
    Returns: float64 (classes,); NaN for a class without a labelled image that has an answer.
    Raises: ValueError for shapes, or a label that has no column.
    """
    y, p = _checked(labels, probabilities)
    is_finite = np.isfinite(p).all(axis=1)
    classes = p.shape[1]
    count = np.bincount(y[is_finite], minlength=classes)
    sums = np.bincount(y[is_finite], p[is_finite, y[is_finite]], classes)
    thresholds: Floats = np.divide(sums, count, out=np.full(classes, np.nan), where=count > 0)
    return thresholds


def confident_disagreements(labels: ArrayLike, probabilities: ArrayLike) -> Ints:
    """Returns for every image the other class that the classifier confidently takes it for; -1 where there is none.

    j = argmax of p_l over the classes l with p_l >= t_l; the image is off the confident joint's diagonal where j is not
    its label. Northcutt et al. 2021, Eq. 1. An image whose label is more probable than j is none, although its label
    may lie below its threshold, and j above: the classifier did not take it for j. The classifier must not have been
    trained on these images: of those it has learned the errors too.

    Args, raises: as for `confident_thresholds`.
    Returns: int64 (images,). A tie goes to the label, and then to the first class.
    """
    y, p = _checked(labels, probabilities)
    thresholds = confident_thresholds(y, p)
    confident = np.where(p >= thresholds - 1e-12, p, -1.0)  # NaN is not sure
    rows = np.arange(len(y))
    if not p.size:
        return np.full(len(y), -1, np.int64)
    confident_class = confident.argmax(axis=1)
    disagrees = (
        (confident[rows, confident_class] >= 0) & (confident_class != y) & (p[rows, confident_class] > p[rows, y])
    )
    return np.where(disagrees, confident_class, -1).astype(np.int64)


@dataclass(frozen=True)
class Neighbours:
    """What the nearest images are labelled: shares of them, float64 (queries,), NaN where an image has no vector.

    `answer`: those labelled with the query's answer; `label`: with its own label.
    """

    answer: Floats
    label: Floats


def neighbours(
    vectors: NDArray[np.float32], labels: ArrayLike, queries: ArrayLike, answers: ArrayLike, number: int
) -> Neighbours:
    """Computes which labels the nearest images of some images have, by cosine, without themselves and their copies.

    A k-nearest-neighbour vote in the space of an encoder that has not seen the labels (Wilson 1972, edited nearest
    neighbours): it errs otherwise than the classifier.

    Args: vectors: float32 (images, dimension), of length 1, NaN in the rows without one; labels: int (images,);
    queries: int (queries,), the images asked about; answers: int (queries,), what the classifier took them for; number:
    how many neighbours, 1 or more; fewer where there are fewer.
    Raises: ValueError for shapes or the number.
    """
    y, query_rows, answered_class = (np.asarray(column, np.int64) for column in (labels, queries, answers))
    if len(vectors) != len(y) or query_rows.shape != answered_class.shape:
        raise ValueError(f"shapes {vectors.shape}, {y.shape}; {query_rows.shape}, {answered_class.shape} do not fit")
    if number < 1:
        raise ValueError(f"number = {number}; need 1 or more")
    shares = np.full((2, len(query_rows)), np.nan)
    usable_rows = np.flatnonzero(np.isfinite(vectors).all(axis=1))
    usable_vectors, size = vectors[usable_rows], max(1, BLOCK // max(1, len(usable_rows)))
    for start in range(0, len(query_rows), size):
        rows = slice(start, start + size)
        cosines = np.nan_to_num(vectors[query_rows[rows]], nan=0.0) @ usable_vectors.T
        cosines[cosines >= SAME] = -np.inf
        cosines[query_rows[rows][:, None] == usable_rows[None, :]] = -np.inf
        n_nearest = min(number, cosines.shape[1])
        nearest = (
            np.argpartition(-cosines, n_nearest - 1, axis=1)[:, :n_nearest]
            if n_nearest
            else np.zeros((len(cosines), 0), np.int64)
        )
        is_usable = np.take_along_axis(cosines, nearest, axis=1) > -np.inf
        count = is_usable.sum(axis=1)
        for side, label_of_query in enumerate((answered_class[rows], y[query_rows[rows]])):
            votes = ((y[usable_rows][nearest] == label_of_query[:, None]) & is_usable).sum(axis=1)
            shares[side, rows] = np.divide(votes, count, out=np.full(len(count), np.nan), where=count > 0)
    shares[:, ~np.isfinite(vectors[query_rows]).all(axis=1)] = np.nan
    return Neighbours(answer=shares[0], label=shares[1])


def _checked(labels: ArrayLike, probabilities: ArrayLike) -> tuple[Ints, Floats]:
    y, p = np.asarray(labels, np.int64), np.asarray(probabilities, np.float64)
    if y.ndim != 1 or p.ndim != 2 or len(y) != len(p):
        raise ValueError(f"need labels (images,) and probabilities (images, classes); got {y.shape} and {p.shape}")
    for row in np.flatnonzero((y < 0) | (y >= p.shape[1])):
        raise ValueError(f"labels[{row}] = {y[row]}: there are {p.shape[1]} classes")
    return y, p
