"""Clusters failures of one kind, and finds the sentences that describe each cluster best: images in, texts out.

A group is the failures of one label that were taken for one other. Its images are clustered by an encoder's features,
or without an encoder by the words of their descriptions; the captioner, or else the encoder, scores the captions. It
knows bytes, texts and roles.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.roles import CaptionScorer, Floats, TextImageEncoder
from c2b_ray.schemas.failure_rows import ClusterRow, CombinationRow
from c2b_ray.schemas.failures import COMBINATIONS
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.discovery.clusters import Cluster, clusters, combine

MOST_MEMBERS, MOST_REFERENCE, MOST_TEXTS, MOST_CLUSTERS = 12, 12, 16, 3
"""The most images of a cluster and of the reference that score captions; sentences tried; clusters per group. A
vision-language model looks at an image once for each text."""


@dataclass(frozen=True)
class Scoring:
    """The scorer of captions, and the encoder of features; either may be None."""

    scorer: CaptionScorer | None
    encoder: TextImageEncoder | None


def combine_groups(groups: pa.Table, models: Scoring) -> pa.Table:
    """Returns a table of `schemas.COMBINATIONS`, a row per row of `groups`.

    Columns: `combination_id`; `prompt`; `images`, encoded failures; `sentences`, of each of them; `reference`, encoded
    images of the label that are no failures. Without a scorer, a group has no combinations but an error.
    """
    return pa.Table.from_pylist([_row(group, models) for group in groups.to_pylist()], COMBINATIONS)


def described(sentences: Sequence[Sequence[str]]) -> Floats:
    """Returns features of images from their descriptions: unit-norm float32 (images, words); rarer words weigh more.

    A row is NaN for an image without a description.
    """
    said = [set(re.findall(r"[\w'-]+", " ".join(one).casefold())) for one in sentences]
    counts = Counter(word for words in said for word in words)
    column = {word: number for number, word in enumerate(sorted(counts))}
    result = np.zeros((len(said), max(len(column), 1)), np.float32)
    for row, words in zip(result, said, strict=True):
        for word in words:
            row[column[word]] = math.log((1 + len(said)) / counts[word])
    norms = np.linalg.norm(result, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.asarray(result / norms, np.float32)


def _row(group: Mapping[str, Any], models: Scoring) -> CombinationRow:
    row: CombinationRow = {"combination_id": group["combination_id"], "clusters": [], "error": None}
    if models.scorer is None:
        return {**row, "error": "the captioner gives captions no scores, and no encoder was named"}
    images, _ = decode_batch(group["images"])
    good = [i for i, image in enumerate(images) if image is not None]
    shown = [image for image in images if image is not None]
    said = [group["sentences"][i] for i in good]
    reference = [image for image in decode_batch(group["reference"][:MOST_REFERENCE])[0] if image is not None]
    features = described(said) if models.encoder is None else models.encoder.encode_images(shown)
    against = partial(models.scorer.caption_scores, reference) if reference else None
    for cluster in clusters([None] * len(good), features, most_clusters=MOST_CLUSTERS):
        scores = partial(models.scorer.caption_scores, [shown[i] for i in cluster.members[:MOST_MEMBERS]])
        row["clusters"].append(_combined(group["prompt"], cluster, said, scores, against, good))
    return row


def _combined(
    prompt: str,
    cluster: Cluster,
    said: Sequence[Sequence[str]],
    scores: Callable[[Sequence[str]], Floats],
    against: Callable[[Sequence[str]], Floats] | None,
    numbers: Sequence[int],
) -> ClusterRow:
    common = Counter(sentence for i in cluster.members for sentence in dict.fromkeys(said[i]))
    tried = [sentence for sentence, _ in common.most_common(MOST_TEXTS)]
    chosen = combine(prompt, tried, scores, against)
    return {
        "members": [numbers[i] for i in cluster.members],
        "sentences": list(chosen.sentences),
        "scores": list(chosen.scores),
    }
