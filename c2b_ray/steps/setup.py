"""Detects a classifier that is wrong because it was set up wrongly: from which class each image has, and its answer.

A wrong order of label names, a wrong label map, missing weights or a wrong normalisation make nearly all answers wrong
in the same way. Each claim is an exact test: at most one right set-up in a thousand is called hopeless, whatever the
classifier's accuracy. A map from answers to classes is chosen on a third of the images, and tested on the others, so
that the search among all maps does not count as evidence. It knows numbers of classes and labels, not their words.
"""

from __future__ import annotations

import numpy as np

from c2b_ray.steps.classify import Classification
from c2b_ray.steps.setup_maps import (
    LEVEL,
    DetectedMapping,
    Evidence,
    Ints,
    Kind,
    LabelledAnswers,
    Mask,
    at_least,
    at_most,
    exchanged,
    other_meaning,
)

LEAST_PERFECT = 100
NEARLY_ALL = 0.9
NO_SKILL, LITTLE_SKILL = 0.15, 0.05
"""Accuracy is no better than guessing below this share of the way from guessing to perfection, and below three times
guessing; the smaller share holds where it is certainly above guessing."""

LEAST = 50
"""Fewer images than this never show that a classifier has no skill."""

_OF_SKILL = LEVEL / 2 / 3  # three ways to bound accuracy
_INFORMED = 2.33  # standard deviations above chance: accuracy that is no accident, at 1 in 100


def detected(asking: Classification, answered: LabelledAnswers, is_table: bool = False) -> list[DetectedMapping]:
    """Returns what is wrong with a classifier's set-up, by its answers; nothing where they do not show it.

    `is_table`: the answers come from a table of predictions, of which a perfect one is suspicious.
    """
    found: list[DetectedMapping] = []
    if len(answered) == 0:
        return found
    evidence = Evidence(asking, answered)
    if len(asking.classes) > 1:
        found = other_meaning(evidence) or exchanged(evidence)
        found = found or _without_skill(evidence)
    found = found or _outside(evidence)
    right = int(evidence.is_right(answered).sum())
    if is_table and len(asking.classes) > 1 and right == len(answered) >= LEAST_PERFECT:
        found.append(DetectedMapping("perfect", len(answered), right, right, hopeless=False))
    return found


def _without_skill(evidence: Evidence) -> list[DetectedMapping]:
    """Tells whether accuracy is certainly next to that of guessing, and whether one answer is the reason."""
    rows = evidence.balanced
    right = evidence.is_right(rows)
    of_class, right_of_class = evidence.by_class(rows, np.ones(len(rows), bool)), evidence.by_class(rows, right)
    guess = float(of_class.max() / len(rows))
    if np.count_nonzero(of_class) < 2 or len(rows) < LEAST:
        return []
    values, counts = np.unique(rows.answer, return_counts=True)
    label, most = int(values[counts.argmax()]), int(counts.max())
    bounds = (
        at_most(int(right.sum()), len(rows), _OF_SKILL),
        _by_class(right_of_class, of_class),
        # Of the images that get the likeliest answer, those of one class are right.
        of_class[evidence.class_of[label]] / len(rows) + 1 - at_least(most, len(rows), _OF_SKILL),
    )
    informed = _above_chance(evidence, rows, right) > _INFORMED
    if min(bounds) >= min(guess + (LITTLE_SKILL if informed else NO_SKILL) * (1 - guess), 3 * guess):
        return []
    outside = int((evidence.class_of[rows.answer] < 0).sum())
    kind: Kind = "chance"
    explained = int(right.sum())
    if most >= NEARLY_ALL * len(rows):
        kind, explained = "one answer", most
    elif outside >= NEARLY_ALL * len(rows):
        kind, explained = "outside", outside
        label = _most_frequent(rows.answer[evidence.class_of[rows.answer] < 0])
    return [
        DetectedMapping(kind, len(rows), int(right.sum()), explained, label=label, guess=guess, hopeless=not informed)
    ]


def _most_frequent(answers: Ints) -> int:
    values, counts = np.unique(answers, return_counts=True)
    return int(values[counts.argmax()])


def _by_class(right: Ints, images: Ints) -> float:
    """Returns an upper bound of accuracy from one for each class: much lower where some classes are always right and
    others never."""
    there = np.flatnonzero(images)
    bounds = [at_most(int(right[k]), int(images[k]), _OF_SKILL / len(there)) for k in there]
    return float(np.average(bounds, weights=images[there]))


def _above_chance(evidence: Evidence, rows: LabelledAnswers, right: Mask) -> float:
    """Returns by how many standard deviations more answers are right than if they were dealt to the images at random
    (Hoeffding 1951)."""
    n = len(rows)
    truth = evidence.by_class(rows, np.ones(n, bool)).astype(np.float64)
    of = evidence.class_of[rows.answer]
    answers = np.bincount(of[of >= 0], minlength=evidence.classes).astype(np.float64)
    mean = float((truth * answers).sum() / n)
    squares = n * mean - float((truth * answers**2 + answers * truth**2).sum()) / n + mean**2
    if squares <= 0:
        return 0.0
    return float((right.sum() - mean) / np.sqrt(squares / max(1, n - 1)))


def _outside(evidence: Evidence) -> list[DetectedMapping]:
    """Tells whether nearly all images are answered with labels that stand for no class of the audit."""
    rows = evidence.balanced
    outside = evidence.class_of[rows.answer] < 0
    if at_least(int(outside.sum()), len(rows), _OF_SKILL) < NEARLY_ALL:
        return []
    right, label = int(evidence.is_right(rows).sum()), _most_frequent(rows.answer[outside])
    return [DetectedMapping("outside", len(rows), right, int(outside.sum()), label=label, hopeless=False)]
