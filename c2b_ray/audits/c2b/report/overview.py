"""The whole audit of a classifier on one screen: a row per class with its accuracy, its commonest mistake, and the
strongest score of each attribute.

Knows cells, tables of draws and predictions, and words; knows nothing of pages.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.audits.c2b.report.findings import ADVERBS, NAMES, ONE_CAPTION, SIGNS, caveats_of
from c2b_ray.audits.c2b.report.method import shown
from c2b_ray.audits.c2b.report.ranking import FINDINGS, Cell, Group, Key
from c2b_ray.report import words
from c2b_ray.stats import wilson_interval
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.cells import images_of_cells
from c2b_ray.steps.classify import BELOW

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
    with_phi = [cell for cell in group.cells if not math.isnan(cell.phi)]
    open_cells = [cell for cell in with_phi if cell.verdict == "undetermined"]
    cell = group.lead or max(open_cells or with_phi, key=lambda cell: cell.size)
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
    wrong = sorted((-number, name) for name, number in answers.items() if name not in (target, BELOW))
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


# Findings over all classes, a sentence for each value of an attribute, with its classes beneath.


MOST_POOLED_CLASSES = 12
MOST_FINDINGS = 24
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Pooled:
    """`classes`: φ of the value for each class, strongest first."""

    attribute: str
    value: str
    verdict: str
    sign: str
    sentence: str
    classes: str


@dataclass(frozen=True)
class PooledView:
    """`present` tells whether values were pooled over several classes; `line` counts findings."""

    present: bool
    line: str
    findings: tuple[Pooled, ...]
    more: int


def pooled_view(table: pa.Table, cells: Sequence[Cell], names: Mapping[str, str], confidence: float) -> PooledView:
    """Returns the view, largest |φ| first."""
    rows = table.to_pylist()
    findings = strongest_pooled(rows)
    return PooledView(
        present=bool(rows),
        line=_line(rows),
        findings=tuple(_pooled(row, cells, names, confidence) for row in findings[:MOST_FINDINGS]),
        more=max(len(findings) - MOST_FINDINGS, 0),
    )


def strongest_pooled(rows: Sequence[Row]) -> list[Row]:
    """Returns the findings, largest |φ| first."""
    return sorted((row for row in rows if row["verdict"] in FINDINGS), key=lambda row: -abs(row["phi"]))


def pooled_sentence(row: Row, name: str, confidence: float) -> str:
    """Returns a finding over all classes in one sentence."""
    interval = words.signed_range(row["phi_low"], row["phi_high"])
    return (
        f"Over {words.plural(row['classes'], 'class', 'classes')}, {name} does {ADVERBS[row['verdict']]} when "
        f"{row['attribute']} is {row['bias_class']} (φ{words.FIXED}{words.signed(row['phi'])}, "
        f"{words.percent(confidence)} interval {interval}, {words.plural(row['n'], 'image')}{_caveats(row)})."
    )


def _caveats(row: Row) -> str:
    """Returns what weakens the evidence: one caption drew the images of a cell, so there is one for each class."""
    caveats = caveats_of(row["basis"], row["captions"], row["caption_spread"])
    return "".join(f", {caveat}{' a class' if caveat == ONE_CAPTION else ''}" for caveat in caveats)


def _line(rows: Sequence[Row]) -> str:
    verdicts = [row["verdict"] for row in rows]
    classifiers = len({row["classifier"] for row in rows})
    per_classifier = f" for each of {words.count(classifiers)} classifiers" if classifiers > 1 else ""
    values = len({(row["attribute"], row["bias_class"]) for row in rows})
    findings = sum(verdict in FINDINGS for verdict in verdicts)
    return (
        f"Each value over all classes together, {words.plural(values, 'value')}{per_classifier}: "
        f"{words.plural(findings, 'finding')}, {words.count(verdicts.count('none'))} clear, "
        f"{words.count(verdicts.count('undetermined'))} undetermined."
    )


def _pooled(row: Row, cells: Sequence[Cell], names: Mapping[str, str], confidence: float) -> Pooled:
    value = (row["classifier"], row["attribute"].lower(), row["bias_class"].lower())
    of_value = [c for c in cells if (c.classifier, c.attribute.lower(), c.bias_class.lower()) == value and c.size >= 0]
    of_value.sort(key=lambda cell: (cell.phi if row["verdict"] == "against" else -cell.phi, cell.target_class))
    listed = [
        f"{cell.target_class} {words.signed(cell.phi)} {SIGNS[cell.verdict]}" for cell in of_value[:MOST_POOLED_CLASSES]
    ]
    further = (
        f" and {words.count(len(of_value) - MOST_POOLED_CLASSES)} more" if len(of_value) > MOST_POOLED_CLASSES else ""
    )
    return Pooled(
        attribute=row["attribute"],
        value=row["bias_class"],
        verdict=row["verdict"],
        sign=SIGNS[row["verdict"]],
        sentence=pooled_sentence(row, names[row["classifier"]], confidence),
        classes=f"{', '.join(listed)}{further}",
    )


# All findings in one table: a row per cell in which any classifier has a finding, a column per classifier.


MOST_ROWS = 150
MOST_NAMED = 3  # classifiers whose names stand across


@dataclass(frozen=True)
class VersusRow:
    """A row of the table. `entries`: one per classifier; `interval` to `q` only with a single classifier. `verdicts`:
    the verdicts that occur."""

    target_class: str
    attribute: str
    value: str
    verdicts: str
    entries: tuple[Heat, ...]
    interval: str = ""
    accuracy: str = ""
    others: str = ""
    images: str = ""
    q: str = ""


@dataclass(frozen=True)
class Versus:
    classifiers: tuple[str, ...]
    turned: bool
    rows: tuple[VersusRow, ...]
    more: int


def versus(groups: Sequence[Group], names: Mapping[str, str], links: Mapping[Key, str]) -> Versus:
    """Returns the table, ordered by the strongest finding of any classifier; `links`: of the groups with details on the
    page."""
    classifiers = list(dict.fromkeys(group.classifier for group in groups))
    cells: dict[tuple[str, str, str], dict[str, Cell]] = {}
    link_of = {}
    for group in groups:
        for cell in group.cells:
            cells.setdefault((cell.target_class, cell.attribute, cell.bias_class), {})[cell.classifier] = cell
        link_of[group.key] = links.get(group.key, "")
    # Of each class, attribute and value in which any classifier has a finding: the cell of every classifier.
    rows = [
        (key, cell_of_classifier)
        for key, cell_of_classifier in cells.items()
        if any(cell.is_finding for cell in cell_of_classifier.values())
    ]
    rows.sort(key=lambda row: (-max(cell.weight for cell in row[1].values() if cell.is_finding), row[0]))
    return Versus(
        classifiers=tuple(names[classifier] for classifier in classifiers),
        turned=len(classifiers) > MOST_NAMED,
        rows=tuple(
            _versus_row(key, [cell_of_classifier.get(name) for name in classifiers], link_of)
            for key, cell_of_classifier in rows[:MOST_ROWS]
        ),
        more=max(len(rows) - MOST_ROWS, 0),
    )


def _versus_row(key: tuple[str, str, str], cells: Sequence[Cell | None], links: Mapping[Key, str]) -> VersusRow:
    entries = tuple(
        EMPTY if cell is None else heat_of(cell, links[cell.classifier, cell.target_class, cell.attribute])
        for cell in cells
    )
    verdicts = "\n".join(dict.fromkeys(cell.verdict for cell in cells if cell is not None))
    only = cells[0] if len(cells) == 1 else None
    if only is None:
        return VersusRow(*key, verdicts, entries)
    return VersusRow(
        *key,
        verdicts,
        entries,
        interval=words.signed_range(only.phi_low, only.phi_high),
        accuracy=shown(only.metric, only.accuracy),
        others=shown(only.metric, only.others),
        images=words.count(only.n),
        q=words.small_probability(only.q_value),
    )
