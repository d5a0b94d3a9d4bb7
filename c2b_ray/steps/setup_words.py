"""Words what is wrong with a classifier's set-up: what was seen, the likely cause, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from c2b_ray.steps.classify import Classification
from c2b_ray.steps.setup_maps import DetectedMapping

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
