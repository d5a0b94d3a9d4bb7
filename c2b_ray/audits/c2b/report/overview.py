"""The whole audit of a classifier on one screen: a row per class with its accuracy, its commonest mistake, and the
strongest score of each attribute; findings over all classes; and every cell with a finding."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.report.findings import ADVERBS, NAMES, ONE_CAPTION, SIGNS, caveats_of, key_of, value_cell
from c2b_ray.audits.c2b.report.method import shown
from c2b_ray.audits.c2b.report.ranking import FINDINGS, Cell, Group, Key
from c2b_ray.audits.c2b.scoring.clusters import Clusters, effective_answers
from c2b_ray.names import normalise
from c2b_ray.report import blocks, words
from c2b_ray.report.blocks import Article, Block, Details, Findings, FoundRow, Paragraph, Table, TableRow
from c2b_ray.report.words import Column, Span
from c2b_ray.stats.intervals import share_interval
from c2b_ray.steps.answers import answers_of
from c2b_ray.steps.cells import CellImages, images_of_cells
from c2b_ray.steps.classify import BELOW
from c2b_ray.steps.draw import Ints
from c2b_ray.steps.duplicates import Distinct

MOST_CLASSES = 60
MOST_OPEN = 12
"""Classes of a map that is not folded."""
LEVELS = (0.1, 0.2, 0.4)
"""The values of |φ| from which findings have stronger colours."""


def overview_article(
    groups: Sequence[Group],
    names: Mapping[str, str],
    answers: Mapping[str, Mapping[str, Taken]],
    confidence: float,
    links: Mapping[Key, str],
) -> list[Article]:
    """Returns a map of each classifier, in the order of the groups: a row for each class, those with the strongest
    findings first, with its accuracy, its commonest mistake and a cell for each attribute. Nothing without groups.

    `answers`: of each classifier and class, what its images were taken for, as `taken` counts it; `links`: of the
    groups with details on the page.
    """
    if not groups:
        return []
    maps = {
        classifier: _map([g for g in groups if g.classifier == classifier], groups, names, answers, confidence, links)
        for classifier in dict.fromkeys(group.classifier for group in groups)
    }
    contents: list[Block] = [
        Paragraph(_LEGEND.format(words.percent(confidence)), "legend"),
        Paragraph(_KEY, "legend key"),
    ]
    if len(maps) == 1 and all(len(one.rows) <= MOST_OPEN for one in maps.values()):
        return [Article("Classes and attributes", [*contents, *maps.values()], "overview")]
    for i, (classifier, one) in enumerate(maps.items()):
        verdicts = Counter(cell.verdict for g in groups if g.classifier == classifier for cell in g.cells)
        findings = words.plural(verdicts["for"] + verdicts["against"], "finding")
        tally = f" {findings}, {words.count(verdicts['undetermined'])} undetermined"
        summary = (Span(names[classifier], True, "spec"), Span(tally, style="muted"))
        contents.append(Details(summary, [one], open=i < 2 and len(one.rows) <= MOST_OPEN // 2))
    return [Article("Classes and attributes", contents, "overview")]


_LEGEND = (
    "Of each class: its accuracy over the images drawn for it, copies once, with its {} interval (Wilson), what it is "
    "most often taken for, and for each attribute the value with the strongest φ."
)
_KEY = (
    key_of("against"), Span(" "), key_of("for"), Span(" "),
    Span(f"{SIGNS['undetermined']}{words.FIXED}undetermined", style="swatch undetermined"), Span(" "),
    Span(f"?{words.FIXED}in doubt", True, "swatch doubt"), Span(" "),
    Span(f"{SIGNS['none']}{words.FIXED}clear: every value", style="verdict none"),
)  # fmt: skip


def _map(
    of_classifier: Sequence[Group],
    groups: Sequence[Group],
    names: Mapping[str, str],
    answers: Mapping[str, Mapping[str, Taken]],
    confidence: float,
    links: Mapping[Key, str],
) -> Table:
    classifier = of_classifier[0].classifier
    attributes = list(dict.fromkeys(group.attribute for group in groups))
    by_name = {(group.target_class, group.attribute): group for group in of_classifier}
    classes = list(dict.fromkeys(group.target_class for group in of_classifier))
    rows: list[list[str | blocks.Cell | blocks.Bar]] = []
    for target in classes[:MOST_CLASSES]:
        in_row = [by_name.get((target, attribute)) for attribute in attributes]
        heats = [heat(group, links.get(group.key, "") if group else "") for group in in_row]
        rows.append(
            [target, *_taken(target, answers[classifier].get(target, Taken(Counter(), 0.0)), confidence), *heats]
        )
    columns = [
        Column("Class"),
        Column("Accuracy", number=True),
        Column("Most often taken for"),
        *(Column(attribute, number=True) for attribute in attributes),
    ]
    return Table(
        columns,
        rows,
        name=f"Classes and attributes of {names[classifier]}",
        style="heat",
        sortable=len(rows) > 2,
        more=f"And {words.count(len(classes) - MOST_CLASSES)} more classes." if len(classes) > MOST_CLASSES else "",
    )


class Taken(NamedTuple):
    """What the images of a class were taken for. `effective`: the number of independent images that tell as much of its
    accuracy."""

    names: Counter[str]
    effective: float


def taken(
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    classifiers: Collection[str],
    distinct: Distinct | None = None,
    clusters: Clusters | None = None,
    confidence: float = 0.95,
) -> dict[str, dict[str, Taken]]:
    """Counts, for each classifier and class, the answers on images drawn for the class, each picture once."""
    cells = images_of_cells(captions, draws)
    rows = _rows_of_classes(cells, distinct)
    of_row = None if clusters is None else clusters.of(cells)
    counts: dict[str, dict[str, Taken]] = {classifier: {} for classifier in classifiers}
    for classifier in predictions["classifier"].unique().to_pylist():
        if classifier in classifiers:
            answers = answers_of(predictions, classifier).to(cells)
            for target, of_class in rows.items():
                names = answers.names(of_class)
                independent = (
                    float(names.total()) if of_row is None else effective_answers(answers, of_class, of_row, confidence)
                )
                counts[classifier][target] = Taken(names, independent)
    return counts


def effective_of_all(
    captions: pa.Table,
    draws: pa.Table,
    predictions: pa.Table,
    distinct: Distinct,
    clusters: Clusters,
    confidence: float,
) -> dict[str, float]:
    """Returns for each classifier the number of independent images that tell as much of its accuracy over all classes,
    each picture once, for each image that there is; 1 at most."""
    cells = images_of_cells(captions, draws)
    rows = np.concatenate([*_rows_of_classes(cells, distinct).values(), np.zeros(0, np.int64)])
    of_row, shares = clusters.of(cells), {}
    for classifier in predictions["classifier"].unique().to_pylist():
        answers = answers_of(predictions, classifier).to(cells)
        answered = int(answers.answered[rows].sum())
        shares[classifier] = effective_answers(answers, rows, of_row, confidence) / max(answered, 1)
    return shares


def _rows_of_classes(cells: CellImages, distinct: Distinct | None) -> dict[str, Ints]:
    """Returns a row of each picture of each class: the first by its id, as in a cell."""
    pictures = np.arange(len(cells.ids)) if distinct is None else distinct.pictures(cells.ids)
    result = {}
    for target in cells.groups_of_class:
        rows = cells.rows_of_class(target)
        rows = rows[cells.ids.alphabetical(cells.image[rows])]
        _, first = np.unique(pictures[cells.image[rows]], return_index=True)
        result[target] = rows[first]
    return result


def heat(group: Group | None, link: str = "") -> blocks.Cell:
    """Returns the cell that represents a group on the map: its lead; else the undetermined cell with the largest |φ|;
    else a cell that says it is clear."""
    if group is None or all(math.isnan(cell.phi) for cell in group.cells):
        return EMPTY
    with_phi = [cell for cell in group.cells if not math.isnan(cell.phi)]
    open_cells = [cell for cell in with_phi if cell.verdict == "undetermined"]
    cell = group.lead or max(open_cells or with_phi, key=lambda cell: cell.size)
    return heat_of(cell, link, alone=False)


def heat_of(cell: Cell, link: str = "", alone: bool = True) -> blocks.Cell:
    """Returns one cell of the map, coloured by its verdict and, if it is a finding, by the size of φ; `alone` where its
    value is named beside it; `link`: the id of its details, "" where there are none."""
    state = "doubt" if cell.doubt else cell.verdict if not math.isnan(cell.phi) else "empty"
    sign = "?" if state == "doubt" else SIGNS.get(state, "")
    name = {"doubt": "in doubt", "empty": "no data"}.get(state) or NAMES[state]
    interval = words.signed_range(cell.phi_low, cell.phi_high)
    description = (
        f"{cell.target_class}, {cell.attribute}: {cell.bias_class}: {name}, φ {words.signed(cell.phi)} ({interval})"
    )
    depth = f" d{1 + sum(cell.size >= level for level in LEVELS)}" if cell.is_finding else ""
    value = "" if alone or state == "none" else cell.bias_class
    return _heat_cell(f"{state}{depth}", sign, name, words.signed(cell.phi), value, description, link)


def _heat_cell(
    state: str, sign: str, name: str, phi: str, value: str = "", description: str = "", link: str = ""
) -> blocks.Cell:
    return blocks.Cell(
        (Span(sign, style="sign mark"), Span(name, style="unseen"), Span(f" {phi}")),
        [value],
        title=description,
        link=f"#{link}" if link else "",
        shade=state,
    )


EMPTY = _heat_cell("empty", "", "no data", words.UNKNOWN, description="no data")


def _taken(target: str, answers: Taken, confidence: float) -> tuple[blocks.Cell, blocks.Cell]:
    """Returns a class's accuracy, and what it is most often taken for."""
    images, right = answers.names.total(), answers.names[target]
    wrong = sorted((-number, name) for name, number in answers.names.items() if name not in (target, BELOW))
    share = right / images if images else math.nan
    low, high = share_interval(share, answers.effective, confidence)
    accuracy = words.percent(share)
    interval = words.percent_range(low, high) if images else ""
    number = words.plural(images, "image")
    mistake = blocks.Cell(style="taken")
    if wrong:
        part = f"{words.count(-wrong[0][0])} of {words.count(images - right)} wrong"
        mistake = blocks.Cell(wrong[0][1], [part], "taken")
    return blocks.Cell(accuracy, [interval, number]), mistake


# Findings over all classes, a sentence for each value of an attribute, with its classes beneath.


MOST_POOLED_CLASSES = 12
MOST_FINDINGS = 24
Row = Mapping[str, Any]


def pooled_article(
    table: pa.Table, cells: Sequence[Cell], names: Mapping[str, str], confidence: float
) -> list[Article]:
    """Returns findings over all classes, largest |φ| first, each with its classes beneath; nothing where no value was
    pooled over several classes."""
    rows = table.to_pylist()
    if not rows:
        return []
    findings = strongest_pooled(rows)
    more = words.further(len(findings), MOST_FINDINGS, "in the run’s pooled.parquet")
    repeated = repeated_findings(cells)
    told = [_pooled_row(row, cells, names, confidence, repeated) for row in findings[:MOST_FINDINGS]]
    line = Paragraph(_line(rows), "intro")
    return [Article("Over all classes", [line, *([Findings(told, more=more)] if told else [])], "pooled")]


def strongest_pooled(rows: Sequence[Row]) -> list[Row]:
    """Returns the findings, largest |φ| first; of two that are equally large, as those of an attribute of two values
    are, the one against."""
    findings = (row for row in rows if row["verdict"] in FINDINGS)
    return sorted(findings, key=lambda row: (-round(abs(row["phi"]), 9), row["verdict"] != "against"))


def repeated_findings(cells: Sequence[Cell]) -> dict[tuple[str, str, str], str]:
    """Returns by classifier, attribute and value what all its findings of single classes repeat: the attribute and
    value that leads their groups, where it is of another attribute, and the same one."""
    findings = [cell for cell in cells if cell.is_finding]
    leads = {(cell.classifier, cell.target_class, cell.group): cell for cell in findings if not cell.group_reason}
    told: dict[tuple[str, str, str], set[str]] = {}
    for cell in findings:
        lead = leads.get((cell.classifier, cell.target_class, cell.group), cell)
        name = "" if lead.attribute == cell.attribute else f"{lead.attribute}: {lead.bias_class}"
        told.setdefault((cell.classifier, cell.attribute, cell.bias_class), set()).add(name)
    return {value: next(iter(names)) for value, names in told.items() if len(names) == 1 and "" not in names}


def pooled_sentence(
    row: Row, name: str, confidence: float, repeated: Mapping[tuple[str, str, str], str] = MappingProxyType({})
) -> str:
    """Returns a finding over all classes in one sentence. `repeated`: as `repeated_findings` returns it."""
    other = repeated.get((row["classifier"], row["attribute"], row["bias_class"]))
    same = f"; of each class it says the same as {other}" if other else ""
    interval = words.signed_range(row["phi_low"], row["phi_high"])
    return (
        f"Over {words.plural(row['classes'], 'class', 'classes')}, {name} does {ADVERBS[row['verdict']]} when "
        f"{row['attribute']} is {row['bias_class']} (φ{words.FIXED}{words.signed(row['phi'])}, "
        f"{words.percent(confidence)} interval {interval}, {words.plural(row['n'], 'image')}{_caveats(row)}){same}."
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


def _pooled_row(
    row: Row,
    cells: Sequence[Cell],
    names: Mapping[str, str],
    confidence: float,
    repeated: Mapping[tuple[str, str, str], str],
) -> FoundRow:
    """Returns a finding, with φ of the value for each class beneath, strongest first."""
    value = (row["classifier"], normalise(row["attribute"]), normalise(row["bias_class"]))
    of_value = [c for c in cells if (c.classifier, normalise(c.attribute), normalise(c.bias_class)) == value]
    of_value = [c for c in of_value if c.size >= 0]
    of_value.sort(key=lambda cell: (cell.phi if row["verdict"] == "against" else -cell.phi, cell.target_class))
    listed = [
        f"{cell.target_class} {words.signed(cell.phi)} {SIGNS[cell.verdict]}" for cell in of_value[:MOST_POOLED_CLASSES]
    ]
    further = (
        f" and {words.count(len(of_value) - MOST_POOLED_CLASSES)} more" if len(of_value) > MOST_POOLED_CLASSES else ""
    )
    sentence = pooled_sentence(row, names[row["classifier"]], confidence, repeated)
    return FoundRow(row["verdict"], SIGNS[row["verdict"]], sentence, [f"{', '.join(listed)}{further}"])


# All findings in one table: a row per cell in which any classifier has a finding, a column per classifier.


MOST_ROWS = 150
MOST_NAMED = 3  # classifiers whose names stand across


def found_cells(
    groups: Sequence[Group], names: Mapping[str, str], links: Mapping[Key, str], measured: str
) -> list[Details]:
    """Returns a table of the cells with a finding, ordered by the strongest finding of any classifier, with a column
    for each classifier, or several for a single one; nothing without a finding. `links`: of the groups with details on
    the page; `measured`: the metric, as a heading."""
    classifiers = list(dict.fromkeys(group.classifier for group in groups))
    cells: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for group in groups:
        for cell in group.cells:
            cells.setdefault((cell.target_class, cell.attribute, cell.bias_class), {})[cell.classifier] = cell
    # Of each class, attribute and value in which any classifier has a finding: the cell of every classifier.
    with_findings = [
        (key, cell_of_classifier)
        for key, cell_of_classifier in cells.items()
        if any(cell.is_finding for cell in cell_of_classifier.values())
    ]
    if not with_findings:
        return []
    with_findings.sort(key=lambda row: (-max(cell.weight for cell in row[1].values() if cell.is_finding), row[0]))
    numbers = ("φ", "Interval", measured, "Others", "Images", "q")
    turned = "turn " if len(classifiers) > MOST_NAMED else ""
    columns = (
        [
            Column(names[name], number=True, heading=(Span(names[name], style=f"{turned}spec", title=names[name]),))
            for name in classifiers
        ]
        if len(classifiers) > 1
        else [Column(name, number=True) for name in numbers]
    )
    title = "Every cell with a finding"
    table = Table(
        [Column("Class"), Column("Attribute: value"), *columns],
        [
            _found_cell(key, [by_classifier.get(name) for name in classifiers], links)
            for key, by_classifier in with_findings[:MOST_ROWS]
        ],
        name="Cells with a finding",
        style="versus",
        caption=f"{title}, φ as each classifier has it" if len(classifiers) > 1 else title,
        sortable=True,
        filtered="findings",
        more=words.further(len(with_findings), MOST_ROWS, "in the run’s scores.parquet"),
    )
    return [Details(f"{title}, as a table", [table], open=len(table.rows) <= 10)]


def _found_cell(key: tuple[str, str, str], cells: Sequence[Cell | None], links: Mapping[Key, str]) -> TableRow:
    target, attribute, value = key
    entries = [
        EMPTY if cell is None else heat_of(cell, links.get((cell.classifier, target, attribute), "")) for cell in cells
    ]
    verdicts = "\n".join(dict.fromkeys(cell.verdict for cell in cells if cell is not None))
    of_one: list[str] = []
    if len(cells) == 1 and (only := cells[0]) is not None:
        of_one = [
            words.signed_range(only.phi_low, only.phi_high),
            shown(only.metric, only.accuracy),
            shown(only.metric, only.others),
            words.count(only.n),
            words.small_probability(only.q_value),
        ]
    data = {"class": target, "attribute": attribute, "verdict": verdicts}
    return TableRow([target, value_cell(attribute, value), *entries, *of_one], data=data)
