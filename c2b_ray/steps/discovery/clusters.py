"""Clusters failures that may have one cause, and finds the caption that describes a cluster's images best.

Failures are split by the label that they were taken for, then by features (Wiles et al. 2022, section 3, "Optional
clustering"): average linkage on cosine distance. The number of clusters maximises the mean silhouette; there is one
cluster where even that is below `LEAST_SILHOUETTE` (Kaufman and Rousseeuw 1990: no substantial structure). Where a
label's failures are split, all of them together are a cluster too, so that a wrong split loses no cause (the paper's
footnote 3). It knows arrays and texts, not images or models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from c2b_ray.roles import Floats
from c2b_ray.steps.discovery.sentences import caption, contained

LEAST_SILHOUETTE = 0.25
MOST_IMAGES = 200
"""The most images of one predicted label; the distances of all their pairs are in memory."""
MOST_CLUSTERS = 6
MOST_SENTENCES = 4

Distances = NDArray[np.float64]
Scores = Callable[[Sequence[str]], Floats]
"""Texts → (images, texts), as `roles.CaptionScorer` scores the cluster's images."""


@dataclass(frozen=True)
class Cluster:
    """`members`: numbers of the failures, the one that represents them first, then those nearest to it."""

    target: str | None  # the label that they were taken for; None: several were likeliest
    members: tuple[int, ...]


@dataclass(frozen=True)
class Combination:
    """The chosen sentences, in the order of choosing. `scores`: the prompt's, then after each of them."""

    sentences: tuple[str, ...]
    scores: tuple[float, ...]


def clusters(
    predicted: Sequence[str | None],
    embeddings: Floats | None = None,
    most_images: int = MOST_IMAGES,
    most_clusters: int = MOST_CLUSTERS,
) -> list[Cluster]:
    """Returns the clusters of failures, those of the most frequent predicted label first, larger before smaller.

    `embeddings` (failures, dimension), unit-norm; None splits by label only; a row of NaN belongs to no cluster. Of a
    label with more failures than `most_images` the first ones are used: the same failures give the same clusters.
    """
    groups: dict[str | None, list[int]] = {}
    for number, label in enumerate(predicted):
        if embeddings is None or np.isfinite(embeddings[number]).all():
            groups.setdefault(label, []).append(number)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0] is None, item[0] or ""))
    return [
        Cluster(label, tuple(members))
        for label, numbers in ordered
        for members in _members(numbers[:most_images], embeddings, most_clusters)
    ]


def combine(
    prompt: str,
    sentences: Sequence[str],
    scores: Scores,
    reference: Scores | None = None,
    most: int = MOST_SENTENCES,
    always: bool = False,
) -> Combination:
    """Returns the sentences that describe the images best behind the prompt, chosen greedily (the paper's z_A).

    Each step adds the sentence whose caption has the highest mean score over the images, until none raises it or `most`
    are chosen. `reference` scores the same texts on images that are no failures: a sentence then counts by how much
    more it adds for the failures than for these, and must add more than a standard error. (Of 30 triples of values
    planted in the world, 19 were described in full; at two standard errors, 13. A superfluous sentence can be removed
    later.) What any image of the label shows explains no failure, and a longer text is less likely whatever the image.

    `always`: add until `most`, as the paper does, whether or not the score rises; needed for likelihoods without a
    reference. Sentences that say nothing beyond the chosen ones are skipped; among equal ones the first is taken.
    """
    chosen: list[str] = []
    before = _Scored.of([prompt], scores, reference)
    trace = [before.mean(0)]
    while len(chosen) < most:
        left = [sentence for sentence in dict.fromkeys(sentences) if not contained(sentence, chosen)]
        if not left:
            break
        after = _Scored.of([caption(prompt, [*chosen, sentence]) for sentence in left], scores, reference)
        means = np.array([after.mean(text) for text in range(len(left))])
        if np.isnan(means).all():
            break
        best = int(np.nanargmax(means))
        if not always and after.gain(best, before) <= 0:
            break
        chosen.append(left[best])
        trace.append(float(means[best]))
        before = after.only(best)
    return Combination(tuple(chosen), tuple(trace))


@dataclass(frozen=True)
class _Scored:
    """Scores of texts on the cluster's images and on those of the reference, float64 (images, texts)."""

    cluster: NDArray[np.float64]
    reference: NDArray[np.float64] | None

    @staticmethod
    def of(texts: Sequence[str], scores: Scores, reference: Scores | None) -> _Scored:
        return _Scored(_known(scores(texts)), None if reference is None else _known(reference(texts)))

    def only(self, text: int) -> _Scored:
        column = slice(text, text + 1)
        return _Scored(self.cluster[:, column], None if self.reference is None else self.reference[:, column])

    def mean(self, text: int) -> float:
        """Returns the mean score; NaN where an image that has scores has none for this text."""
        value = _mean(self.cluster[:, text])
        return value if self.reference is None else value - _mean(self.reference[:, text])

    def gain(self, text: int, before: _Scored) -> float:
        """Returns by how much the text is better than the one of `before`; with a reference, beyond a standard
        error."""
        gains = self.cluster[:, text] - before.cluster[:, 0]
        if self.reference is None or before.reference is None:
            return _mean(gains)
        others = self.reference[:, text] - before.reference[:, 0]
        error = np.sqrt(sum(float(np.var(part, ddof=1)) / len(part) for part in (gains, others) if len(part) > 1))
        return _mean(gains) - _mean(others) - float(error)


def _known(scores: Floats) -> NDArray[np.float64]:
    """Returns the scores without the images that have no scores at all."""
    rows = np.asarray(scores, np.float64)
    return rows[~np.isnan(rows).all(axis=1)]


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _members(numbers: Sequence[int], embeddings: Floats | None, most: int) -> list[list[int]]:
    if embeddings is None or len(numbers) < 2:
        return [list(numbers)]
    vectors = embeddings[list(numbers)].astype(np.float64)
    distances = np.clip(1 - vectors @ vectors.T, 0, 2)
    np.fill_diagonal(distances, 0)
    labels = _split(distances, most)
    parts = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    parts.sort(key=lambda part: (-len(part), part[0]))
    if len(parts) > 1:
        parts.insert(0, np.arange(len(numbers)))
    return [[numbers[i] for i in part[_nearest_first(distances[np.ix_(part, part)])]] for part in parts]


def _nearest_first(distances: Distances) -> NDArray[np.int64]:
    """Returns the order from the medoid outwards."""
    medoid = int(distances.sum(axis=1).argmin())
    order = np.argsort(distances[medoid], kind="stable")
    return np.concatenate([[medoid], order[order != medoid]])


def _split(distances: Distances, most: int) -> NDArray[np.int64]:
    n = len(distances)
    tree = linkage(squareform(distances, checks=False), "average")
    best, highest = np.zeros(n, np.int64), LEAST_SILHOUETTE
    for k in range(2, min(most, n - 1) + 1):
        labels = fcluster(tree, k, "maxclust")
        value = silhouette(distances, labels)
        if value > highest:
            best, highest = labels, value
    return best


def silhouette(distances: Distances, labels: NDArray[np.integer]) -> float:
    """Returns the mean over the points of (b − a)/max(a, b): a, the mean distance to its own cluster; b, to the nearest
    other one.

    In [−1, 1]; 0 for a point alone in its cluster, and where there is one cluster (Rousseeuw 1987).
    """
    names, at = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        return 0.0
    member = np.eye(len(names))[at]
    sizes, sums = member.sum(axis=0), distances @ member
    members = sizes[at]
    a = sums[np.arange(len(at)), at] / np.maximum(members - 1, 1)
    b = np.where(member > 0, np.inf, sums / sizes).min(axis=1)
    larger = np.maximum(a, b)
    values = np.where((members > 1) & (larger > 0), (b - a) / np.where(larger > 0, larger, 1), 0.0)
    return float(values.mean())
