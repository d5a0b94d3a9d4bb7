"""The whole audit of a classifier on one screen: a row per class with its accuracy, its commonest mistake, and the
strongest score of each attribute.

Knows cells, tables of draws and predictions, and words; knows nothing of pages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from c2b_ray.metrics import wilson_interval
from c2b_ray.report.c2b.findings import NAMES, SIGNS
from c2b_ray.report.c2b.ranking import Cell, Group, Key
from c2b_ray.report.kit import words
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.cells import images_of_cells

MOST_CLASSES = 60
LEVELS = (0.1, 0.2, 0.4)
"""The values of |φ| from which findings have stronger colours."""


@dataclass(frozen=True)
class Heat:
    """One cell of the map. `state`: a verdict, or doubt, or empty; `depth`: of its colour, 1 to 4, for findings;
    `description`: all of it in words; `link`: to its details on the page, empty where there are none."""

    state: str
    depth: str
    sign: str
    name: str
    phi: str
    value: str
    description: str
    link: str


EMPTY = Heat("empty", "", "", "no data", words.UNKNOWN, "", "no data", "")


@dataclass(frozen=True)
class ClassRow:
    target_class: str
    images: str
    accuracy: str
    interval: str
    taken_for: str
    taken: str
    heats: tuple[Heat, ...]


@dataclass(frozen=True)
class Overview:
    classifier: str
    tally: str
    attributes: tuple[str, ...]
    rows: tuple[ClassRow, ...]
    more: int


def overviews(
    groups: Sequence[Group],
    names: Mapping[str, str],
    answers: Mapping[str, Mapping[str, Counter[str]]],
    confidence: float,
    links: Mapping[Key, str],
) -> tuple[Overview, ...]:
    """Returns an overview of each classifier, in the order of the groups; classes with the strongest findings first.

    `answers`: of each classifier and class, what its images were taken for, as `taken` counts it; `links`: of the
    groups with details on the page.
    """
    attributes = tuple(dict.fromkeys(group.attribute for group in groups))
    views = []
    for classifier in dict.fromkeys(group.classifier for group in groups):
        of_classifier = {(g.target_class, g.attribute): g for g in groups if g.classifier == classifier}
        classes = list(dict.fromkeys(target for target, _ in of_classifier))
        rows = tuple(
            _row(
                target,
                answers[classifier].get(target, Counter()),
                confidence,
                _heats(target, attributes, of_classifier, links),
            )
            for target in classes[:MOST_CLASSES]
        )
        of = Counter(cell.verdict for group in of_classifier.values() for cell in group.cells)
        tally = f"{words.plural(of['for'] + of['against'], 'finding')}, {words.count(of['undetermined'])} undetermined"
        views.append(Overview(names[classifier], tally, attributes, rows, max(len(classes) - MOST_CLASSES, 0)))
    return tuple(views)


def taken(
    captions: pa.Table, draws: pa.Table, predictions: pa.Table, classifiers: Collection[str]
) -> dict[str, dict[str, Counter[str]]]:
    """Counts, for each classifier and class, the answers on images drawn for the class, each image once."""
    cells = images_of_cells(captions, draws)
    rows = {target: cells.rows_of_class(target) for target in dict.fromkeys(name.target_class for name in cells.names)}
    counts: dict[str, dict[str, Counter[str]]] = {classifier: {} for classifier in classifiers}
    for classifier in predictions["classifier"].unique().to_pylist():
        if classifier in classifiers:
            answers = answers_of(predictions, classifier).to(cells)
            counts[classifier] = {target: answers.names(of_class) for target, of_class in rows.items()}
    return counts


def heat(group: Group | None, link: str = "") -> Heat:
    """Returns the cell that represents a group: its lead; else the undetermined cell with the largest |φ|; else a cell
    that says it is clear."""
    if group is None or all(math.isnan(cell.phi) for cell in group.cells):
        return EMPTY
    known = [cell for cell in group.cells if not math.isnan(cell.phi)]
    open_cells = [cell for cell in known if cell.verdict == "undetermined"]
    cell = group.lead or max(open_cells or known, key=lambda cell: cell.size)
    return heat_of(cell, link, alone=False)


def heat_of(cell: Cell, link: str = "", alone: bool = True) -> Heat:
    """Returns one cell of the map; `alone` where its value is named beside it."""
    state = "doubt" if cell.doubt else cell.verdict if not math.isnan(cell.phi) else "empty"
    sign = "?" if state == "doubt" else SIGNS.get(state, "")
    name = {"doubt": "in doubt", "empty": "no data"}.get(state) or NAMES[state]
    interval = words.signed_range(cell.phi_low, cell.phi_high)
    description = (
        f"{cell.target_class}, {cell.attribute}: {cell.bias_class}: {name}, φ {words.signed(cell.phi)} ({interval})"
    )
    depth = f"d{1 + sum(cell.size >= level for level in LEVELS)}" if cell.is_finding else ""
    value = "" if alone or state == "none" else cell.bias_class
    return Heat(state, depth, sign, name, words.signed(cell.phi), value, description, link)


def _heats(
    target: str, attributes: Sequence[str], of_classifier: Mapping[tuple[str, str], Group], links: Mapping[Key, str]
) -> tuple[Heat, ...]:
    groups = [of_classifier.get((target, attribute)) for attribute in attributes]
    return tuple(heat(group, links.get(group.key, "") if group else "") for group in groups)


def _row(target: str, answers: Counter[str], confidence: float, heats: tuple[Heat, ...]) -> ClassRow:
    images, right = answers.total(), answers[target]
    wrong = sorted((-number, name) for name, number in answers.items() if name != target)
    low, high = wilson_interval(right, images, confidence)
    return ClassRow(
        target_class=target,
        images=words.count(images),
        accuracy=words.percent(right / images if images else math.nan),
        interval=words.percent_range(float(low), float(high)) if images else "",
        taken_for=wrong[0][1] if wrong else "",
        taken=f"{words.count(-wrong[0][0])} of {words.count(images - right)} wrong" if wrong else "",
        heats=heats,
    )
