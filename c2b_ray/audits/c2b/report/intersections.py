"""Intersections of two attributes: findings as sentences, and a matrix for each pair and class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from c2b_ray.audits.c2b.report.findings import ADVERBS, NAMES, ONE_CAPTION, SIGNS, sign_of
from c2b_ray.audits.c2b.report.ranking import FINDINGS, on_one_caption
from c2b_ray.report import words
from c2b_ray.report.blocks import (
    Block,
    Cell,
    Details,
    Findings,
    FoundRow,
    Paragraph,
    Section,
    Table,
    spec,
)
from c2b_ray.report.words import Column, Sentence, Span

MOST_MATRICES = 24
MOST_SENTENCES = 20
MOST_DOUBTS = 8
MOST_SHADOWS = 6
Row = Mapping[str, Any]


def strongest(rows: Sequence[Row]) -> list[Row]:
    """Returns the findings, largest |interaction| first."""
    return sorted((row for row in rows if row["verdict"] in FINDINGS), key=lambda row: -abs(row["interaction"]))


def intersections_section(table: pa.Table, names: Mapping[str, str], tau: float, confidence: float) -> list[Section]:
    """Returns the section, largest |interaction| first: findings as sentences, and a matrix for each pair and class,
    those with a finding before the others. Nothing where no pair was examined."""
    rows = table.to_pylist()
    if not rows:
        return []
    line = (
        f"{_line(rows)} A finding is a cell whose accuracy is further than ±{words.decimal(tau)} from what its two "
        "values, each taken alone, would make it."
    )
    blocks: list[Block] = [Paragraph(line)]
    if findings := strongest(rows):
        more = words.further(len(findings), MOST_SENTENCES, "in the run’s intersections.parquet")
        told = [_found_row(row, rows, names, confidence) for row in findings[:MOST_SENTENCES]]
        blocks.append(Findings(told, more=more))
    blocks += [Paragraph(doubt, "beneath") for doubt in _doubts(rows)]
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["classifier"], row["target_class"], row["attribute"]), []).append(row)
    ordered = sorted(groups.values(), key=_strength)
    matrices = [_matrix(group, names, confidence) for group in ordered[:MOST_MATRICES]]
    blocks.append(Details("Every pair of values, as tables", matrices, open=len(matrices) <= 2))
    if left_out := len(ordered) - len(matrices):
        more = f"And {words.count(left_out)} more pairs and classes, in the run’s intersections.parquet."
        blocks.append(Paragraph(more, "beneath"))
    return [Section("Intersections", blocks, "intersections", "Intersections")]


def _strength(group: Sequence[Row]) -> tuple[float, float]:
    sizes = [abs(row["interaction"]) if _known(row) else -1.0 for row in group]
    of_findings = [size for size, row in zip(sizes, group, strict=True) if row["verdict"] in FINDINGS]
    return -max(of_findings, default=-1.0), -max(sizes)


def _known(row: Row) -> bool:
    return row["interaction"] is not None and row["interaction"] == row["interaction"]


def _line(rows: Sequence[Row]) -> str:
    verdicts = [row["verdict"] for row in rows]
    findings = sum(verdict in FINDINGS for verdict in verdicts)
    empty = sum(row["n"] == 0 for row in rows)
    note = f" {words.plural(empty, 'cell has', 'cells have')} no image." if empty else ""
    shadows = sum(row["folded_into"] is not None for row in rows)
    if shadows:
        note += (
            f" {words.plural(shadows, 'more cell stood', 'more cells stood')} out only because of a finding in the "
            "same table (see shadows, below)."
        )
    return (
        f"{words.plural(len(rows), 'cell')} of two values at once: {words.plural(findings, 'finding')}, "
        f"{words.count(verdicts.count('none'))} clear, "
        f"{words.count(verdicts.count('undetermined'))} undetermined.{note}"
    )


def _doubts(rows: Sequence[Row]) -> tuple[str, ...]:
    """Returns the reasons why cells are in doubt, each once with its number of cells."""
    reasons = Counter(row["doubt"] for row in rows if row["doubt"] is not None)
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    sentences = [f"{words.plural(n, 'cell')} in doubt: {reason}." for reason, n in ordered[:MOST_DOUBTS]]
    further = sum(n for _, n in ordered[MOST_DOUBTS:])
    return (
        *sentences,
        *([f"{words.plural(further, 'cell')} more in doubt, in the run’s intersections.parquet."] if further else []),
    )


def _beneath(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    same_columns = ("classifier", "target_class", "attribute")
    same_pair = [other for other in rows if all(other[key] == row[key] for key in same_columns)]
    shadows = [other["bias_class"] for other in same_pair if other["folded_into"] == row["bias_class"]]
    lines = []
    if shadows:
        shadow_names = "; ".join(f"“{name}”" for name in shadows[:MOST_SHADOWS])
        remainder = f" and {words.count(len(shadows) - MOST_SHADOWS)} more" if len(shadows) > MOST_SHADOWS else ""
        lines.append(f"Its shadows, which are as expected once this cell is set aside: {shadow_names}{remainder}.")
    if {len({other[name] for other in same_pair}) for name in ("value_a", "value_b")} == {2}:
        lines.append("With two values each, the numbers are the same for all four cells: the likeliest one is named.")
    if row["basis"] == "captions":
        lines.append("This rests on what the captions say: nobody checked that the images show both values.")
    elif row["basis"] == "verifier":
        lines.append("This rests on the verifier’s word: it was not calibrated on both attributes.")
    return tuple(lines)


def _found_row(row: Row, rows: Sequence[Row], names: Mapping[str, str], confidence: float) -> FoundRow:
    told = sentence(row, names[row["classifier"]], confidence)
    return FoundRow(row["verdict"], SIGNS[row["verdict"]], told, _beneath(row, rows))


def sentence(row: Row, classifier: str, confidence: float) -> Sentence:
    both_values = f"{row['attribute_a']} is {row['value_a']} and {row['attribute_b']} is {row['value_b']}"
    evidence = (
        f" than the two alone explain: {words.percent(row['accuracy'])} right where they would leave "
        f"{words.percent(row['expected'])} ({words.signed(row['interaction'])}, "
        f"{words.percent(confidence)} interval {words.signed_range(row['interaction_low'], row['interaction_high'])}, "
        f"{words.plural(row['n'], 'image')}{f', {ONE_CAPTION}' if _one_caption(row) else ''})."
    )
    return (
        Span(f"{classifier} recognises {words.article(row['target_class'])}"),
        Span(row["target_class"], strong=True),
        Span(f" {ADVERBS[row['verdict']]} when "),
        Span(both_values, strong=True),
        Span(evidence),
    )


def _one_caption(row: Row) -> bool:
    return on_one_caption(row["captions"], row["caption_spread"])


def _matrix(group: Sequence[Row], names: Mapping[str, str], confidence: float) -> Table:
    """Returns a pair of attributes for one class and classifier: values of the first attribute down, of the second
    across."""
    first = group[0]
    target, down, across, classifier = (
        first["target_class"], first["attribute_a"], first["attribute_b"], names[first["classifier"]]
    )  # fmt: skip
    columns = list(dict.fromkeys(row["value_b"] for row in group))
    cells = {(row["value_a"], row["value_b"]): _matrix_cell(row) for row in group}
    interval = f"accuracy; interaction with its {words.percent(confidence)} interval; φ"
    return Table(
        [Column(f"{down} \\ {across}"), *(Column(name, number=True) for name in columns)],
        [
            (value, *(cells[value, column] for column in columns))
            for value in dict.fromkeys(row["value_a"] for row in group)
        ],
        name=f"{target} by {down} and {across}, {classifier}",
        style="matrix",
        caption=(
            Span(target, strong=True),
            Span(f" by {down} and {across}"),
            *((Span(", "), spec(classifier)) if len(names) > 1 else ()),
            Span(f": {interval}"),
        ),
    )


def _matrix_cell(row: Row) -> Cell:
    note = _note(row)
    interaction = words.signed(row["interaction"])
    interval = words.signed_range(row["interaction_low"], row["interaction_high"])
    return Cell(
        words.percent(row["accuracy"]),
        small=(
            (*sign_of(row["verdict"]), Span(f" {interaction}", style=f"verdict {row['verdict']}")),
            interval if interval != interaction else "",
            f"φ {words.signed(row['phi'])}",
            _mark(row),
        ),
        style=row["verdict"],
        title=f"{NAMES[row['verdict']]}, {words.plural(row['n'], 'image')}{f'; {note}' if note else ''}",
    )


def _mark(row: Row) -> str:
    if row["doubt"] is not None:
        return "in doubt"
    if row["folded_into"] is not None:
        return "shadow"
    return ONE_CAPTION if row["verdict"] in FINDINGS and _one_caption(row) else ""


def _note(row: Row) -> str:
    if row["doubt"] is not None:
        return f"in doubt: {row['doubt']}"
    return f"a shadow of {row['folded_into']}" if row["folded_into"] is not None else ""
