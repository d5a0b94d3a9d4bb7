"""Tries the usual preprocessings of a classifier about which nothing states its own, on labelled images.

It says how often each is right, and names the one that is right far more often than the others. It does not know how a
classifier is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from c2b_ray.errors import C2BError
from c2b_ray.roles import Classifier, Pixels
from c2b_ray.steps.predict import Classification
from c2b_ray.steps.right import Classes, answers

LEAST, SHARE = 4, 0.15
"""The best is named where it is right on so many more images, and on such a share more of them, than the second."""


@dataclass(frozen=True)
class Tried:
    """How often a preprocessing was `right` on so many `images`; `error`: why it could not be tried."""

    word: str
    right: int = 0
    images: int = 0
    error: str | None = None


def try_preprocessings(
    words: Sequence[str],
    load: Callable[[str], Classifier],
    classify: Callable[[Classifier], Classification],
    images: Sequence[Pixels],
    targets: Sequence[str],
) -> list[Tried]:
    """Returns how often each of the preprocessings `words` is right, most often first.

    `load` returns the classifier with a preprocessing, `classify` what it decides; `targets` has the class of each
    image. An error of loading or answering becomes the `error` of its row.
    """
    tried = []
    for word in words:
        try:
            classifier = load(word)
            asked = classify(classifier)
            logits = classifier.logits(images, [""] * len(images))
        except C2BError as error:
            tried.append(Tried(word, error=str(error)))
            continue
        found = answers(logits, classifier.labels, Classes(asked.classes, asked.labels_of_class), asked.right)
        right = sum(
            answer is not None and (target == answer.predicted_class or target in (answer.answered or ()))
            for answer, target in zip(found, targets, strict=True)
        )
        tried.append(Tried(word, right, len(images)))
    return sorted(tried, key=lambda one: (one.error is not None, -one.right))


def far_best(tried: Sequence[Tried]) -> Tried | None:
    """Returns the preprocessing that is right far more often than the others; None where none is."""
    able = [one for one in tried if one.error is None]
    if len(able) < 2:
        return None
    lead = able[0].right - able[1].right
    return able[0] if lead >= max(LEAST, SHARE * able[0].images) else None
