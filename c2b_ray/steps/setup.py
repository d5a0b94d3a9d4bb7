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


def detected(setup: Classification, answers: LabelledAnswers, is_table: bool = False) -> list[DetectedMapping]:
    """Returns what is wrong with a classifier's set-up, by its answers; nothing where they do not show it.

    `is_table`: the answers come from a table of predictions, of which a perfect one is suspicious.
    """
    mappings: list[DetectedMapping] = []
    if len(answers) == 0:
        return mappings
    evidence = Evidence(setup, answers)
    if len(setup.classes) > 1:
        mappings = other_meaning(evidence) or exchanged(evidence)
        mappings = mappings or _without_skill(evidence)
    mappings = mappings or _outside_share(evidence)
    right = int(evidence.is_right(answers).sum())
    if is_table and len(setup.classes) > 1 and right == len(answers) >= LEAST_PERFECT:
        mappings.append(DetectedMapping("perfect", len(answers), right, right, hopeless=False))
    return mappings


def _without_skill(evidence: Evidence) -> list[DetectedMapping]:
    """Tells whether accuracy is certainly next to that of guessing, and whether one answer is the reason."""
    rows = evidence.balanced
    right = evidence.is_right(rows)
    images_of_class, right_of_class = evidence.by_class(rows, np.ones(len(rows), bool)), evidence.by_class(rows, right)
    guess = float(images_of_class.max() / len(rows))
    if np.count_nonzero(images_of_class) < 2 or len(rows) < LEAST:
        return []
    values, counts = np.unique(rows.answer, return_counts=True)
    label, largest = int(values[counts.argmax()]), int(counts.max())
    bounds = (
        at_most(int(right.sum()), len(rows), _OF_SKILL),
        _by_class(right_of_class, images_of_class),
        # Of the images that get the likeliest answer, those of one class are right.
        images_of_class[evidence.class_of[label]] / len(rows) + 1 - at_least(largest, len(rows), _OF_SKILL),
    )
    informed = _above_chance(evidence, rows, right) > _INFORMED
    if min(bounds) >= min(guess + (LITTLE_SKILL if informed else NO_SKILL) * (1 - guess), 3 * guess):
        return []
    outside = int((evidence.class_of[rows.answer] < 0).sum())
    kind: Kind = "chance"
    explained = int(right.sum())
    if largest >= NEARLY_ALL * len(rows):
        kind, explained = "one answer", largest
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
    present = np.flatnonzero(images)
    bounds = [at_most(int(right[k]), int(images[k]), _OF_SKILL / len(present)) for k in present]
    return float(np.average(bounds, weights=images[present]))


def _above_chance(evidence: Evidence, rows: LabelledAnswers, right: Mask) -> float:
    """Returns by how many standard deviations more answers are right than if they were dealt to the images at random
    (Hoeffding 1951)."""
    n = len(rows)
    truth = evidence.by_class(rows, np.ones(n, bool)).astype(np.float64)
    answered_class = evidence.class_of[rows.answer]
    answers = np.bincount(answered_class[answered_class >= 0], minlength=evidence.classes).astype(np.float64)
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


def setup_finding(
    fault: DetectedMapping, setup: Classification, labelled: bool = True, is_table: bool = False
) -> SetupFinding:
    """`labelled`: the images' classes are known, not those that captions drew them for. `is_table`: the answers come
    from a table of predictions, which has neither weights nor a normalisation."""
    seen, cause, remedy = _WORDS[fault.kind](fault, setup)
    if is_table and fault.kind in _OF_MODELS:
        cause, remedy = _OF_TABLES
    if not labelled:
        cause = f"{cause} {_DRAWN}"
    name = setup.classifier
    return SetupFinding(
        classifier=name, kind=fault.kind, seen=seen, cause=cause, remedy=remedy, hopeless=fault.hopeless
    )


def sentences(finding: SetupFinding, of_several: bool = False) -> str:
    """Returns a finding as text; `of_several`: the run has other classifiers, so that it is named."""
    name = f"{finding['classifier']}: " if of_several else ""
    return f"{name}{finding['seen']} {finding['cause']} {finding['remedy']}"


def _share(count: int, total: int) -> str:
    percent = 100 * count / max(1, total)
    needs_decimal = 0 < percent < 1 or 99 < percent < 100
    return f"{count:,} of {total:,} ({percent:.{1 if needs_decimal else 0}f} %)"


def _answers(fault: DetectedMapping) -> str:
    return (
        f"Only {_share(fault.right, fault.images)} of the answers are right"
        if fault.right
        else (f"None of {fault.images:,} answers is right")
    )


def _label(position: int, setup: Classification) -> str:
    if position < 0:
        return "no single label"
    return repr(setup.labels[position]) if position < len(setup.labels) else f"label {position}"


def _shifted(fault: DetectedMapping, setup: Classification) -> tuple[str, str, str]:
    places = abs(fault.places)
    shift = f"{places:,} place{'s' if places > 1 else ''} {'after' if fault.places > 0 else 'before'} the right one"
    cause = "The list of label names and the classifier's outputs begin at different places"
    if places == 1:
        cause += ": often one of them has an output for the background first, as 1,001 outputs for 1,000 classes have"
    return (
        f"{_answers(fault)}, but {_share(fault.explained, fault.images)} name the label {shift} in the list of labels.",
        f"{cause}.",
        "Give a name for every output, in their order (`labels=FILE`), or numbers in `label_map`.",
    )


def _sorted(fault: DetectedMapping, setup: Classification) -> tuple[str, str, str]:
    return (
        f"{_answers(fault)}, but {_share(fault.explained, fault.images)} would be if the outputs were in another order "
        "than the label names: sorted as text where these are not, or by number where these are sorted as text.",
        "Libraries that read folders number the classes by their sorted names (1, 10, 2).",
        "Give the names in the order of the outputs (`labels=FILE`).",
    )


def _pairs(fault: DetectedMapping, setup: Classification) -> str:
    examples = [f"{setup.classes[number]} is answered {_label(label, setup)}" for number, label in fault.pairs[:_PAIRS]]
    unlisted = len(fault.pairs) - len(examples)
    return ", ".join(examples) + (f" and so on for {unlisted:,} more" if unlisted else "")


def _reordered(fault: DetectedMapping, setup: Classification) -> tuple[str, str, str]:
    return (
        f"{_answers(fault)}, but {_share(fault.explained, fault.images)} are one and the same other label for each "
        f"class: {_pairs(fault, setup)}.",
        "The classifier tells the classes apart, under other names: the label names are in another order than the "
        "outputs, or `label_map` gives a class other labels than those that the classifier uses for it.",
        f"Give the names in the order of the outputs (`labels=FILE`), or mend `label_map`; {_NAMES_CHECKED}.",
    )


def _exchanged(fault: DetectedMapping, setup: Classification) -> tuple[str, str, str]:
    pairs: list[tuple[str, str]] = []
    for number, label in fault.pairs:
        pair = (setup.classes[number], _label(label, setup).strip("'\""))
        if pair[::-1] not in pairs:
            pairs.append(pair)
    examples = "; ".join(f"{a!r} and {b!r}" for a, b in pairs[:_PAIRS])
    always = "always " if fault.explained == fault.images else ""
    return (
        f"{examples} are {always}taken for each other: {_share(fault.explained, fault.images)} of their images are "
        f"answered with the other one's label, {_share(fault.right, fault.images)} with their own.",
        "Two names stand in each other's place: in the classifier's label names, in `label_map`, or in the images' "
        "own labels.",
        f"Exchange them (`labels=FILE`, `label_map`), or mend the images' labels; {_NAMES_CHECKED}.",
    )


def _one_answer(fault: DetectedMapping, setup: Classification) -> tuple[str, str, str]:
    return (
        f"{_share(fault.explained, fault.images)} of the images, of {len(setup.classes):,} classes, get the same "
        f"answer: {_label(fault.label, setup)}.",
        f"A classifier answers so whose input is not what it was trained on: {_INPUT}.",
        "State the preprocessing in the classifier's spec (`mean`, `std`, …) and check the file of its weights; "
        f"{_NAMES_CHECKED}.",
    )


def _outside(fault: DetectedMapping, setup: Classification) -> tuple[str, str, str]:
    return (
        f"{_share(fault.explained, fault.images)} of the images are answered with labels that stand for none of the "
        f"audit's classes, most often {_label(fault.label, setup)}.",
        "Either other labels stand for these classes, or the names are in another order than the outputs, or the "
        "images are not what the classifier was trained on.",
        f"Name all labels of each class in `label_map`; {_NAMES_CHECKED}.",
    )


def _chance(fault: DetectedMapping, setup: Classification) -> tuple[str, str, str]:
    return (
        f"{_share(fault.right, fault.images)} of the answers are right, no more than guessing gives: the same answer "
        f"for every image would be right for {100 * fault.guess:.0f} %.",
        f"The likely causes are {_INPUT}.",
        f"Check the classifier's spec and the file of its weights; {_NAMES_CHECKED}.",
    )


def _perfect(fault: DetectedMapping, setup: Classification) -> tuple[str, str, str]:
    return (
        f"All {fault.images:,} answers of the table of predictions are right.",
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


_OF_MODELS = ("chance", "one answer")
"""What a model's input or weights would explain."""
_OF_TABLES = (
    "The likely causes are another column than that of the answers, names in the table that mean other classes, or "
    "rows that belong to other images.",
    "Look at some rows of the table of predictions beside the classes of their images, and name the column of the "
    "answers (`?prediction=COLUMN`).",
)


def hopeless(findings: Sequence[SetupFinding], classifiers: Sequence[str]) -> bool:
    """Tells whether nothing can be learned about any of the classifiers."""
    return set(classifiers) <= {finding["classifier"] for finding in findings if finding["hopeless"]}
