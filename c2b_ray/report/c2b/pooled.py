"""Findings over all classes, a sentence for each value of an attribute, with its classes beneath.

Knows rows of `schemas.POOLED`, cells and words; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.report.c2b.findings import ADVERBS, ONE_CAPTION, SIGNS, caveats_of
from c2b_ray.report.c2b.ranking import FINDINGS, Cell
from c2b_ray.report.kit import words

MOST_CLASSES = 12
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
    known = caveats_of(row["basis"], row["captions"], row["caption_spread"])
    return "".join(f", {caveat}{' a class' if caveat == ONE_CAPTION else ''}" for caveat in known)


def _line(rows: Sequence[Row]) -> str:
    verdicts = [row["verdict"] for row in rows]
    classifiers = len({row["classifier"] for row in rows})
    each = f" for each of {words.count(classifiers)} classifiers" if classifiers > 1 else ""
    values = len({(row["attribute"], row["bias_class"]) for row in rows})
    findings = sum(verdict in FINDINGS for verdict in verdicts)
    return (
        f"Each value over all classes together, {words.plural(values, 'value')}{each}: "
        f"{words.plural(findings, 'finding')}, {words.count(verdicts.count('none'))} clear, "
        f"{words.count(verdicts.count('undetermined'))} undetermined."
    )


def _pooled(row: Row, cells: Sequence[Cell], names: Mapping[str, str], confidence: float) -> Pooled:
    value = (row["classifier"], row["attribute"].lower(), row["bias_class"].lower())
    of_value = [c for c in cells if (c.classifier, c.attribute.lower(), c.bias_class.lower()) == value and c.size >= 0]
    of_value.sort(key=lambda cell: (cell.phi if row["verdict"] == "against" else -cell.phi, cell.target_class))
    listed = [f"{cell.target_class} {words.signed(cell.phi)} {SIGNS[cell.verdict]}" for cell in of_value[:MOST_CLASSES]]
    rest = f" and {words.count(len(of_value) - MOST_CLASSES)} more" if len(of_value) > MOST_CLASSES else ""
    return Pooled(
        attribute=row["attribute"],
        value=row["bias_class"],
        verdict=row["verdict"],
        sign=SIGNS[row["verdict"]],
        sentence=pooled_sentence(row, names[row["classifier"]], confidence),
        classes=f"{', '.join(listed)}{rest}",
    )
