"""Words of captions that go with wrong answers, in the manner of B2T (Kim et al. 2024): each is an attribute of two
values, whether the caption of an image has it.

Words are chosen on one half of the images; the other half gets values, and alone is tested. It knows captions and right
or wrong; neither images nor models.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from c2b_ray.names import normalise, plural

MOST_WORDS = 8
"""The most words of a class. Further ones are often the same images under other names."""
FEWEST = 5
"""The fewest images of the finding half that have a word, and that lack it."""
LARGEST_P = 0.1
"""Words whose difference is larger by chance in more than a tenth of all cases are not worth a test."""
LEAST_TYPICAL = 0.2
"""A word names a cluster where its share among the cluster's captions is larger by this much than among the others."""
SAME = 0.8
"""Words whose images overlap so much (Jaccard) are one."""

_OF_GRAMMAR = (
    "a an the of in on at by to with and or for from as is are was were be been it its this that these those there "
    "here some one two very"
)
_OF_PICTURES = "photo photograph picture image snapshot shot view showing shows shown seen"
_STOP = frozenset(f"{_OF_GRAMMAR} {_OF_PICTURES}".split())
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Word:
    """A word or two that go together. `has` (images,): whose captions have it; `p_value`: of no difference in wrong
    answers, on the images that it was found on."""

    text: str
    has: Mask
    p_value: float


def words_of(caption: str, target_class: str) -> set[str]:
    """Returns the words of a caption and its pairs of neighbouring words, without words of the class, of grammar, and
    those that every caption of a photograph has."""
    of_class = {word for name in (target_class, plural(target_class)) for word in normalise(name).split()} | _STOP
    result: set[str] = set()
    before = ""
    for token in re.findall(r"[\w'-]+|[^\w\s]", caption.lower()):
        word = token if re.match(r"\w", token) and token not in of_class and len(token) > 1 else ""
        if word:
            result.add(word)
            if before:
                result.add(f"{before} {word}")
        before = word
    return result


def telling_words(captions: Sequence[str], target_class: str, finding: Mask, wrong: Mask) -> list[Word]:
    """Returns the words of one class's captions that tell most of its wrong answers, the surest first.

    `finding` (images,): the half on which they are found; `wrong`: is read there alone.
    """
    holders: Mapping[str, list[int]] = _holders(captions, target_class)
    failed = wrong & finding
    images, errors = int(finding.sum()), int(failed.sum())
    candidates = []
    for text, rows in holders.items():
        n, k = int(finding[rows].sum()), int(failed[rows].sum())
        if min(n, images - n) < FEWEST:
            continue
        p_value = float(scipy.stats.fisher_exact([[k, n - k], [errors - k, images - n - errors + k]]).pvalue)
        if p_value <= LARGEST_P:
            has = np.zeros(len(captions), bool)
            has[rows] = True
            candidates.append(Word(text, has, p_value))
    result: list[Word] = []
    # Of two words on the same images, the shorter one is kept.
    for candidate in sorted(candidates, key=lambda candidate: (candidate.p_value, len(candidate.text), candidate.text)):
        if len(result) < MOST_WORDS and all(_overlap(candidate.has, other.has, finding) < SAME for other in result):
            result.append(candidate)
    return result


def typical_words(captions: Sequence[str], target_class: str, inside: Mask, among: Mask, most: int = 2) -> list[str]:
    """Returns the words that the captions of the images `inside` have most often beside all images `among`, by share
    inside minus share outside; none that is more frequent outside."""
    holders = _holders(captions, target_class)
    others = among & ~inside
    sizes = max(1, int(inside.sum())), max(1, int(others.sum()))
    scores = {text: inside[rows].sum() / sizes[0] - others[rows].sum() / sizes[1] for text, rows in holders.items()}
    result: list[str] = []
    for text in sorted(scores, key=lambda text: (-round(float(scores[text]), 9), -len(text), text)):
        parts = set(text.split())
        if scores[text] > LEAST_TYPICAL and not any(parts & set(other.split()) for other in result):
            result.append(text)
        if len(result) == most:
            break
    return result


def _holders(captions: Sequence[str], target_class: str) -> Mapping[str, list[int]]:
    holders: dict[str, list[int]] = defaultdict(list)
    for row, caption in enumerate(captions):
        for word in words_of(caption, target_class):
            holders[word].append(row)
    return holders


def _overlap(first: Mask, second: Mask, among: Mask) -> float:
    union = int(((first | second) & among).sum())
    return int((first & second & among).sum()) / union if union else 0.0
