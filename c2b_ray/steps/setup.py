"""Detects a classifier that is wrong because it was set up wrongly: from which class each image has, and its answer.

A wrong order of label names, a wrong label map, missing weights or a wrong normalisation make nearly all answers wrong
in the same way. Each claim is an exact test: at most one right set-up in a thousand is called hopeless, whatever the
classifier's accuracy. A map from answers to classes is chosen on a third of the images, and tested on the others, so
that the search among all maps does not count as evidence. It knows numbers of classes and labels, not their words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

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
    found = found or _outside_share(evidence)
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


def _outside_share(evidence: Evidence) -> list[DetectedMapping]:
    """Tells whether nearly all images are answered with labels that stand for no class of the audit."""
    rows = evidence.balanced
    outside = evidence.class_of[rows.answer] < 0
    if at_least(int(outside.sum()), len(rows), _OF_SKILL) < NEARLY_ALL:
        return []
    right, label = int(evidence.is_right(rows).sum()), _most_frequent(rows.answer[outside])
    return [DetectedMapping("outside", len(rows), right, int(outside.sum()), label=label, hopeless=False)]


# Words what is wrong with a classifier's set-up: what was seen, the likely cause, and the remedy.


_PAIRS = 3
_NAMES_CHECKED = "c2b check shows the names of the labels beside its answers to three pictures"
_INPUT = (
    "another normalisation, scale or order of colours (BGR) than the weights were trained with, a head that was never "
    "trained, or names in another order than the outputs"
)


class SetupFinding(TypedDict):
    """A row of `setup` in a run's manifest. `hopeless`: nothing can be learned about the classifier from such
    answers."""

    classifier: str
    kind: str
    seen: str
    cause: str
    remedy: str
    hopeless: bool


_DRAWN = "Nobody looked whether these images show the classes that they were drawn for: look at some of them first."


def setup_finding(found: DetectedMapping, asking: Classification, labelled: bool = True) -> SetupFinding:
    """`labelled`: the images' classes are known, not those that captions drew them for."""
    seen, cause, remedy = _WORDS[found.kind](found, asking)
    if not labelled:
        cause = f"{cause} {_DRAWN}"
    name = asking.classifier
    return SetupFinding(
        classifier=name, kind=found.kind, seen=seen, cause=cause, remedy=remedy, hopeless=found.hopeless
    )


def sentences(finding: SetupFinding, of_several: bool = False) -> str:
    """Returns a finding as text; `of_several`: the run has other classifiers, so that it is named."""
    name = f"{finding['classifier']}: " if of_several else ""
    return f"{name}{finding['seen']} {finding['cause']} {finding['remedy']}"


def _share(count: int, of: int) -> str:
    percent = 100 * count / max(1, of)
    few = 0 < percent < 1 or 99 < percent < 100
    return f"{count:,} of {of:,} ({percent:.{1 if few else 0}f} %)"


def _answers(found: DetectedMapping) -> str:
    return (
        f"Only {_share(found.right, found.images)} of the answers are right"
        if found.right
        else (f"None of {found.images:,} answers is right")
    )


def _label(position: int, asking: Classification) -> str:
    if position < 0:
        return "no single label"
    return repr(asking.labels[position]) if position < len(asking.labels) else f"label {position}"


def _shifted(found: DetectedMapping, asking: Classification) -> tuple[str, str, str]:
    places = abs(found.places)
    where = f"{places:,} place{'s' if places > 1 else ''} {'after' if found.places > 0 else 'before'} the right one"
    cause = "The list of label names and the classifier's outputs begin at different places"
    if places == 1:
        cause += ": often one of them has an output for the background first, as 1,001 outputs for 1,000 classes have"
    return (
        f"{_answers(found)}, but {_share(found.explained, found.images)} name the label {where} in the list of labels.",
        f"{cause}.",
        "Give a name for every output, in their order (`labels=FILE`), or numbers in `label_map`.",
    )


def _sorted(found: DetectedMapping, asking: Classification) -> tuple[str, str, str]:
    return (
        f"{_answers(found)}, but {_share(found.explained, found.images)} would be if the outputs were in another order "
        "than the label names: sorted as text where these are not, or by number where these are sorted as text.",
        "Libraries that read folders number the classes by their sorted names (1, 10, 2).",
        "Give the names in the order of the outputs (`labels=FILE`).",
    )


def _pairs(found: DetectedMapping, asking: Classification) -> str:
    listed = [f"{asking.classes[number]} is answered {_label(label, asking)}" for number, label in found.pairs[:_PAIRS]]
    more = len(found.pairs) - len(listed)
    return ", ".join(listed) + (f" and so on for {more:,} more" if more else "")


def _reordered(found: DetectedMapping, asking: Classification) -> tuple[str, str, str]:
    return (
        f"{_answers(found)}, but {_share(found.explained, found.images)} are one and the same other label for each "
        f"class: {_pairs(found, asking)}.",
        "The classifier tells the classes apart, under other names: the label names are in another order than the "
        "outputs, or `label_map` gives a class other labels than those that the classifier uses for it.",
        f"Give the names in the order of the outputs (`labels=FILE`), or mend `label_map`; {_NAMES_CHECKED}.",
    )


def _exchanged(found: DetectedMapping, asking: Classification) -> tuple[str, str, str]:
    pairs: list[tuple[str, str]] = []
    for number, label in found.pairs:
        pair = (asking.classes[number], _label(label, asking).strip("'\""))
        if pair[::-1] not in pairs:
            pairs.append(pair)
    named = "; ".join(f"{a!r} and {b!r}" for a, b in pairs[:_PAIRS])
    always = "always " if found.explained == found.images else ""
    return (
        f"{named} are {always}taken for each other: {_share(found.explained, found.images)} of their images are "
        f"answered with the other one's label, {_share(found.right, found.images)} with their own.",
        "Two names stand in each other's place: in the classifier's label names, in `label_map`, or in the images' "
        "own labels.",
        f"Exchange them (`labels=FILE`, `label_map`), or mend the images' labels; {_NAMES_CHECKED}.",
    )


def _one_answer(found: DetectedMapping, asking: Classification) -> tuple[str, str, str]:
    return (
        f"{_share(found.explained, found.images)} of the images, of {len(asking.classes):,} classes, get the same "
        f"answer: {_label(found.label, asking)}.",
        f"A classifier answers so whose input is not what it was trained on: {_INPUT}.",
        "State the preprocessing in the classifier's spec (`mean`, `std`, …) and check the file of its weights; "
        f"{_NAMES_CHECKED}.",
    )


def _outside(found: DetectedMapping, asking: Classification) -> tuple[str, str, str]:
    return (
        f"{_share(found.explained, found.images)} of the images are answered with labels that stand for none of the "
        f"audit's classes, most often {_label(found.label, asking)}.",
        "Either other labels stand for these classes, or the names are in another order than the outputs, or the "
        "images are not what the classifier was trained on.",
        f"Name all labels of each class in `label_map`; {_NAMES_CHECKED}.",
    )


def _chance(found: DetectedMapping, asking: Classification) -> tuple[str, str, str]:
    return (
        f"{_share(found.right, found.images)} of the answers are right, no more than guessing gives: the same answer "
        f"for every image would be right for {100 * found.guess:.0f} %.",
        f"The likely causes are {_INPUT}.",
        f"Check the classifier's spec and the file of its weights; {_NAMES_CHECKED}.",
    )


def _perfect(found: DetectedMapping, asking: Classification) -> tuple[str, str, str]:
    return (
        f"All {found.images:,} answers of the table of predictions are right.",
        "Its column of answers may be a copy of the true classes.",
        "Name the column of the classifier's answers in the table, if it has another one.",
    )


_WORDS = {
    "shifted": _shifted,
    "sorted": _sorted,
    "reordered": _reordered,
    "exchanged": _exchanged,
    "one answer": _one_answer,
    "outside": _outside,
    "chance": _chance,
    "perfect": _perfect,
}


def hopeless(findings: Sequence[SetupFinding], classifiers: Sequence[str]) -> bool:
    """Tells whether nothing can be learned about any of the classifiers."""
    return set(classifiers) <= {one["classifier"] for one in findings if one["hopeless"]}
