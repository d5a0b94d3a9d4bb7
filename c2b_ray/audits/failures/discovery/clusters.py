"""Clusters failures that may have one cause, and finds the caption that describes a cluster's images best.

Failures are split by the label that they were taken for, then by features (Wiles et al. 2022, section 3, "Optional
clustering"): average linkage on cosine distance. The number of clusters maximises the mean silhouette; there is one
cluster where even that is below `LEAST_SILHOUETTE` (Kaufman and Rousseeuw 1990: no substantial structure). Where a
label's failures are split, all of them together are a cluster too, so that a wrong split loses no cause (the paper's
footnote 3). It knows arrays and texts, not images or models.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from c2b_ray.audits.failures.discovery.sentences import caption, contained
from c2b_ray.engine.images import VERIFY, OnProgress
from c2b_ray.engine.stage import Rows, Runner
from c2b_ray.roles import Captioner, CaptionReply, CaptionScorer, Floats, Pixels, TextImageEncoder
from c2b_ray.steps.decode import decode_batch
from c2b_ray.tables import DESCRIPTIONS
from c2b_ray.tables.failures import COMBINATIONS, ClusterRow, CombinationRow

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
        remaining = [sentence for sentence in dict.fromkeys(sentences) if not contained(sentence, chosen)]
        if not remaining:
            break
        after = _Scored.of([caption(prompt, [*chosen, sentence]) for sentence in remaining], scores, reference)
        means = np.array([after.mean(text) for text in range(len(remaining))])
        if np.isnan(means).all():
            break
        best = int(np.nanargmax(means))
        if not always and after.gain(best, before) <= 0:
            break
        chosen.append(remaining[best])
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
        reference_gains = self.reference[:, text] - before.reference[:, 0]
        error = np.sqrt(
            sum(float(np.var(part, ddof=1)) / len(part) for part in (gains, reference_gains) if len(part) > 1)
        )
        return _mean(gains) - _mean(reference_gains) - float(error)


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
    names, cluster_of_point = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        return 0.0
    member = np.eye(len(names))[cluster_of_point]
    sizes, sums = member.sum(axis=0), distances @ member
    members = sizes[cluster_of_point]
    a = sums[np.arange(len(cluster_of_point)), cluster_of_point] / np.maximum(members - 1, 1)
    b = np.where(member > 0, np.inf, sums / sizes).min(axis=1)
    larger = np.maximum(a, b)
    values = np.where((members > 1) & (larger > 0), (b - a) / np.where(larger > 0, larger, 1), 0.0)
    return float(values.mean())


# Clusters failures of one kind, and finds the sentences that describe each cluster best: images in, texts out.


MOST_MEMBERS, MOST_REFERENCE, MOST_TEXTS, MOST_CLUSTERS_OF_A_KIND = 12, 12, 16, 3
"""The most images of a cluster and of the reference that score captions; sentences tried; clusters per group. A
vision-language model looks at an image once for each text."""


@dataclass(frozen=True)
class Scoring:
    """The scorer of captions, and the encoder of features; either may be None."""

    scorer: CaptionScorer | None
    encoder: TextImageEncoder | None


def combine_groups(groups: pa.Table, models: Scoring) -> pa.Table:
    """Returns a table of `tables.failures.COMBINATIONS`, a row per row of `groups`.

    Columns: `combination_id`; `prompt`; `images`, encoded failures; `sentences`, of each of them; `reference`, encoded
    images of the label that are no failures. Without a scorer, a group has no combinations but an error.
    """
    return pa.Table.from_pylist([_row(group, models) for group in groups.to_pylist()], COMBINATIONS)


def described(sentences: Sequence[Sequence[str]]) -> Floats:
    """Returns features of images from their descriptions: unit-norm float32 (images, words); rarer words weigh more.

    A row is NaN for an image without a description.
    """
    words_of_images = [
        set(re.findall(r"[\w'-]+", " ".join(image_sentences).casefold())) for image_sentences in sentences
    ]
    counts = Counter(word for words in words_of_images for word in words)
    column = {word: number for number, word in enumerate(sorted(counts))}
    result = np.zeros((len(words_of_images), max(len(column), 1)), np.float32)
    for row, words in zip(result, words_of_images, strict=True):
        for word in words:
            row[column[word]] = math.log((1 + len(words_of_images)) / counts[word])
    norms = np.linalg.norm(result, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.asarray(result / norms, np.float32)


def _row(group: Mapping[str, Any], models: Scoring) -> CombinationRow:
    row: CombinationRow = {"combination_id": group["combination_id"], "clusters": [], "error": None}
    if models.scorer is None:
        return {**row, "error": "the captioner gives captions no scores, and no encoder was named"}
    images, _ = decode_batch(group["images"])
    decoded = [i for i, image in enumerate(images) if image is not None]
    decoded_images = [image for image in images if image is not None]
    descriptions = [group["sentences"][i] for i in decoded]
    reference = [image for image in decode_batch(group["reference"][:MOST_REFERENCE])[0] if image is not None]
    features = described(descriptions) if models.encoder is None else models.encoder.encode_images(decoded_images)
    reference_scores = partial(models.scorer.caption_scores, reference) if reference else None
    for cluster in clusters([None] * len(decoded), features, most_clusters=MOST_CLUSTERS_OF_A_KIND):
        scores = partial(models.scorer.caption_scores, [decoded_images[i] for i in cluster.members[:MOST_MEMBERS]])
        row["clusters"].append(_combined(group["prompt"], cluster, descriptions, scores, reference_scores, decoded))
    return row


def _combined(
    prompt: str,
    cluster: Cluster,
    descriptions: Sequence[Sequence[str]],
    scores: Callable[[Sequence[str]], Floats],
    reference_scores: Callable[[Sequence[str]], Floats] | None,
    numbers: Sequence[int],
) -> ClusterRow:
    common = Counter(sentence for i in cluster.members for sentence in dict.fromkeys(descriptions[i]))
    candidates = [sentence for sentence, _ in common.most_common(MOST_TEXTS)]
    combination = combine(prompt, candidates, scores, reference_scores)
    return {
        "members": [numbers[i] for i in cluster.members],
        "sentences": list(combination.sentences),
        "scores": list(combination.scores),
    }


# Scores how well captions fit images: by a captioner that scores captions, else by an encoder's similarity.


@dataclass(frozen=True)
class Similarity:
    """Implements `roles.CaptionScorer`: the cosine of an encoder's embeddings of image and text, in [−1, 1]."""

    encoder: TextImageEncoder

    def caption_scores(self, images: Sequence[Pixels], texts: Sequence[str]) -> Floats:
        return self.encoder.encode_images(images) @ self.encoder.encode_texts(texts).T


# The stage that clusters failures and combines their sentences: captioner and encoder stay where the images are.


COMBINE = replace(VERIFY, schema=COMBINATIONS, weigh=None, rows_per_file=64)


def combine_all(
    runner: Runner,
    groups: pa.Table,
    captioner: Callable[[], Captioner],
    encoder: Callable[[], TextImageEncoder] | None,
    out: str,
    on_progress: OnProgress,
) -> None:
    """Writes a row of `tables.failures.COMBINATIONS` per group (`audits.failures.discovery.clusters`) into parts under
    `out`."""
    runner.run(
        Rows.of(groups, 1),
        combine_groups,
        partial(_loaded, captioner, encoder),
        out,
        id_column="combination_id",
        config=replace(COMBINE, total=groups.num_rows),
        on_progress=on_progress,
    )


def _loaded(captioner: Callable[[], Captioner], encoder: Callable[[], TextImageEncoder] | None) -> Scoring:
    scorer, image_encoder = captioner(), encoder() if encoder is not None else None
    if isinstance(scorer, CaptionScorer):
        return Scoring(scorer, image_encoder)
    return Scoring(None if image_encoder is None else Similarity(image_encoder), image_encoder)


# Mines descriptions of failures for sets of sentences that failures share and other images do not.


LARGEST = 4
COST = 2.0
"""Nats that each sentence must gain, because there are many possible sentences."""

Sentences = tuple[str, ...]


@dataclass(frozen=True)
class SentenceSet:
    """A set of sentences in the order of their description. `lift`: how much more frequent it is among failures."""

    sentences: Sentences
    support: int
    lift: float
    gain: float


class Background:
    """The frequency of each sentence among a label's ordinary images; sentences are taken as independent."""

    def __init__(self, descriptions: Sequence[Sentences]) -> None:
        self._count = Counter(sentence for description in descriptions for sentence in set(description))
        self._images = len(descriptions)

    def share(self, sentences: Sentences) -> float:
        return math.prod((self._count[sentence] + 0.5) / (self._images + 1) for sentence in sentences)


def mine(failures: Sequence[Sentences], background: Background, most: int) -> list[SentenceSet]:
    """Returns at most `most` sets, best first; each explains failures that those before it do not."""
    unexplained = [failure for failure in failures if failure]
    result: list[SentenceSet] = []
    while unexplained and len(result) < most:
        best = max(_sets(unexplained, background), key=lambda mined: (mined.gain, mined.sentences), default=None)
        if best is None or best.gain <= 0:
            break
        result.append(best)
        unexplained = [failure for failure in unexplained if not set(best.sentences) <= set(failure)]
    return result


def _sets(failures: Sequence[Sentences], background: Background) -> list[SentenceSet]:
    """Returns every set of up to `LARGEST` sentences of a failure, and each whole description."""
    support: Counter[frozenset[str]] = Counter()
    order: dict[frozenset[str], Sentences] = {}
    for failure in failures:
        distinct = tuple(dict.fromkeys(failure))
        sizes = range(1, min(LARGEST, len(distinct)) + 1)
        sets = [sentence_set for size in sizes for sentence_set in combinations(distinct, size)]
        for sentence_set in dict.fromkeys([*sets, distinct]):
            order.setdefault(frozenset(sentence_set), sentence_set)
            support[frozenset(sentence_set)] += 1
    return [_mined(order[key], count, len(failures), background) for key, count in support.items()]


def _mined(sentences: Sentences, support: int, failures: int, background: Background) -> SentenceSet:
    share, usual = support / failures, min(background.share(sentences), 0.999)
    if share <= usual:
        return SentenceSet(sentences, support, share / usual, -math.inf)
    gain = support * math.log(share / usual)
    if share < 1:
        gain += (failures - support) * math.log((1 - share) / (1 - usual))
    return SentenceSet(sentences, support, share / usual, gain - (COST * len(sentences) if failures > 1 else 0.0))


# Describes failures: the captioner's text about each kept image. It knows only bytes and texts.


def describe(images: pa.Table, captioner: Captioner) -> pa.Table:
    """Returns a table of `tables.DESCRIPTIONS`, a row per row of `images` (`description_id`, `label`, `image`).

    An image that cannot be decoded, or about which the captioner says nothing usable, has an error in its row.
    """
    decoded, errors = decode_batch(images["image"].to_pylist())
    decoded_rows = [index for index, pixels in enumerate(decoded) if pixels is not None]
    labels = images["label"].to_pylist()
    replies = [CaptionReply(None, error) for error in errors]
    if decoded_rows:
        decoded_images = [pixels for pixels in decoded if pixels is not None]
        answered = captioner.caption(decoded_images, [labels[index] for index in decoded_rows])
        for index, reply in zip(decoded_rows, answered, strict=True):
            replies[index] = reply
    columns = {
        "description_id": images["description_id"],
        "text": pa.array([reply.text for reply in replies], pa.string()),
        "error": pa.array([reply.error for reply in replies], pa.string()),
    }
    return pa.table(columns).cast(DESCRIPTIONS)
