"""Clusters of embeddings that a classifier gets wrong alike, in the manner of Domino (Eyuboglu et al. 2022): the values
of an attribute.

They are fitted on one half of the images of a class, with its answers. The images of the other half, which alone is
tested, belong to clusters by their embeddings, whatever the answers to them. It knows vectors and right or wrong;
neither images nor models.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from c2b_ray.stats.cuts import LEAST_SHARE
from c2b_ray.stats.error_mixture import error_mixture
from c2b_ray.stats.scores import Ints
from c2b_ray.tables import seed_of

IMAGES_OF_EACH, MOST = 20, 8
"""Images of the finding half for each cluster, and the most clusters of a class."""

Mask = NDArray[np.bool_]
Vectors = NDArray[np.float32]


def slices_of(vectors: Vectors, finding: Mask, wrong: Mask, target_class: str, seed: int) -> Ints:
    """Returns the cluster of each image of one class, int64 (images,), numbered by their share of wrong answers in the
    finding half, the largest 0; −1 for all where there are too few images, and for clusters of less than a twentieth of
    either half.

    `vectors`: (images, dimension), of length 1. `wrong` is read on the finding half alone.
    """
    none = np.full(len(vectors), -1, np.int64)
    count = min(MOST, int(finding.sum()) // IMAGES_OF_EACH)
    if count < 2:
        return none
    fitted = error_mixture(vectors[finding], wrong[finding], count, seed=seed_of("slices", target_class, seed))
    cluster_numbers = fitted.assigned(vectors)
    halves = [np.bincount(cluster_numbers[half], minlength=count) / max(1, half.sum()) for half in (finding, ~finding)]
    is_large = (halves[0] >= LEAST_SHARE) & (halves[1] >= LEAST_SHARE)
    if is_large.sum() < 2:
        return none
    rates = [
        wrong[finding & (cluster_numbers == number)].mean() if is_large[number] else -1.0 for number in range(count)
    ]
    order = np.argsort(-np.array(rates), kind="stable")
    rank = np.full(count, -1, np.int64)
    rank[order] = np.arange(count)
    return np.where(is_large[cluster_numbers], rank[cluster_numbers], -1)
