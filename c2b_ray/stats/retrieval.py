"""CIDEr: how far a caption uses the n-grams that people use for the image and for few other images.

Works on lists of words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c2b_ray.stats.scores import Floats

Words = Sequence[str]
Gram = tuple[str, ...]
LONGEST, SIGMA, SCALE = 4, 6.0, 10.0


@dataclass(frozen=True)
class _Vector:
    """tf-idf weights by length of n-gram, their norms, and the number of bigrams (which the code uses as the length of
    a text)."""

    weights: list[dict[Gram, float]]
    norms: list[float]
    length: int


def cider(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> Floats:
    """Computes CIDEr-D of each candidate, with document frequencies from these references.

    10 * mean over references of mean over n = 1..4 of
        exp(-(l_c - l_r)^2 / 72) * sum of min(g_c, g_r) * g_r / (|g_c| |g_r|)

    with g the tf-idf weights tf * (log N - log max(1, df)) of n-grams, df the number of images whose references hold
    the n-gram, N the number of images. Vedantam et al. 2015, section 5 (CIDEr-D); this is the Cider scorer of the COCO
    caption evaluation (pycocoevalcap), which papers report as "CIDEr": l counts bigrams there, and so here. The paper's
    Eqs. 1 to 3 have neither the clipping nor the Gaussian.

    Args: candidates: a list of words per image; references: one list or more per image.
    Returns: float64 (images,), 0 or more, 10 for a candidate that is its only reference. 0 for no common n-gram; all 0
    for one image alone, whose idf is 0. No images in, none out.
    Raises: ValueError for unequal numbers of images, or an image without references.
    """
    if len(candidates) != len(references):
        raise ValueError(f"{len(candidates)} candidates, but references of {len(references)} images")
    if without_reference := [row for row, captions_of_image in enumerate(references) if not captions_of_image]:
        raise ValueError(f"image {without_reference[0]} has no reference caption")
    counts = [[_grams(words) for words in captions_of_image] for captions_of_image in references]
    frequency: Counter[Gram] = Counter()
    for captions_of_image in counts:
        frequency.update({gram for grams in captions_of_image for gram in grams})
    size = math.log(len(references)) if references else 0.0
    scores = [
        _score(
            _vector(_grams(words), frequency, size), [_vector(grams, frequency, size) for grams in captions_of_image]
        )
        for words, captions_of_image in zip(candidates, counts, strict=True)
    ]
    return np.array(scores, np.float64)


def _grams(words: Words) -> Counter[Gram]:
    return Counter(tuple(words[i : i + n]) for n in range(1, LONGEST + 1) for i in range(len(words) - n + 1))


def _vector(grams: Counter[Gram], frequency: Counter[Gram], size: float) -> _Vector:
    weights: list[dict[Gram, float]] = [{} for _ in range(LONGEST)]
    for gram, count in grams.items():
        weights[len(gram) - 1][gram] = count * (size - math.log(max(1.0, frequency[gram])))
    norms = [math.sqrt(sum(weight**2 for weight in grams_of_length.values())) for grams_of_length in weights]
    return _Vector(weights, norms, sum(count for gram, count in grams.items() if len(gram) == 2))


def _score(candidate: _Vector, references: Sequence[_Vector]) -> float:
    total = 0.0
    for reference in references:
        similar = 0.0
        for n in range(LONGEST):
            candidate_weights, reference_weights = candidate.weights[n], reference.weights[n]
            product = sum(
                min(weight, reference_weights[gram]) * reference_weights[gram]
                for gram, weight in candidate_weights.items()
                if gram in reference_weights
            )
            norm = candidate.norms[n] * reference.norms[n]
            similar += product / norm if norm else product
        gap = candidate.length - reference.length
        total += similar / LONGEST * math.exp(-(gap**2) / (2 * SIGMA**2))
    return SCALE * total / len(references)


# Recall of a ranking.


def recall_at(
    ranked: Sequence[Hashable] | NDArray[Any], relevant: Collection[Hashable] | NDArray[Any], k: int
) -> float:
    """Computes the share of the relevant items that are among the first k of a ranking.

    |top-k of ranked, as a set, and relevant| / |relevant|

    Classifier-to-Bias (CVPR 2025), recall@(A*K) of detected biases: the caller computes k from A and K. Ramos et al.
    2025 average recall@k over images; with several captions right per image that is this share, not "at least one is
    found" (the two agree where one caption is right).

    Args: ranked: items, best first, repeats allowed and counted once; relevant: items, repeats counted once; k: 1 or
    more, may exceed the ranking.
    Returns: float in [0, 1]. 0: none found, or nothing ranked. NaN where nothing is relevant.
    Raises: ValueError for k < 1.
    """
    if k < 1:
        raise ValueError(f"k = {k} must be 1 or more")
    relevant_items = set(_listed(relevant))
    if not relevant_items:
        return float("nan")
    return len(relevant_items.intersection(_listed(ranked)[:k])) / len(relevant_items)


def _listed(items: Collection[Hashable] | NDArray[Any]) -> list[Any]:
    return items.tolist() if isinstance(items, np.ndarray) else list(items)
