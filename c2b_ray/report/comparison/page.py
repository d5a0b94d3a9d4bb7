"""A comparison as one HTML page: what got worse, what got better, and what is undetermined.

Knows the columns of `schemas.COMPARISON` and the report's style sheet; knows nothing of how the numbers came about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from c2b_ray.report.c2b.findings import ONE_CAPTION
from c2b_ray.report.c2b.ranking import on_one_caption
from c2b_ray.report.comparison.disagreements import SideBySide, side_by_side
from c2b_ray.report.kit import words
from c2b_ray.report.kit.gallery import Shelf
from c2b_ray.report.kit.page import render
from c2b_ray.report.kit.redact import clean, names_of
from c2b_ray.steps.cells import CellName
from c2b_ray.steps.sides import Disagreement

MOST_ROWS = 200
SECTIONS = {
    "worse": ("against", "▼", "Got worse"),
    "better": ("for", "▲", "Got better"),
    "undetermined": ("undetermined", "◇", "Undetermined"),
}


@dataclass(frozen=True)
class Row:
    target_class: str
    attribute: str
    value: str
    accuracy_a: str
    accuracy_b: str
    difference: str
    interval: str
    phi_difference: str
    phi_interval: str
    q: str
    images: str
    caveat: str


@dataclass(frozen=True)
class Section:
    style: str
    sign: str
    title: str
    rows: tuple[Row, ...]
    more: int


@dataclass(frozen=True)
class ComparisonView:
    title: str
    name_a: str
    name_b: str
    tally: str
    scale: str
    left_out: str
    one_caption: str
    pooled: tuple[str, ...]
    sections: tuple[Section, ...]
    sides: tuple[SideBySide, ...]
    tau: str
    alpha: str
    interval_name: str


def comparison_page(
    title: str,
    classifiers: tuple[str, str],
    tables: tuple[pa.Table, pa.Table],
    levels: tuple[float, float],
    disagreements: Mapping[CellName, Disagreement] | None = None,
    shelf: Shelf | None = None,
) -> str:
    """`tables`: of `schemas.COMPARISON` and `schemas.COMPARISON_POOLED`; `levels`: tau and alpha; `disagreements`: the
    images that one side alone got right, of the cells that changed, and `shelf`: what they look like."""
    view = comparison_view(title, classifiers, tables, *levels)
    names = (view.name_a, view.name_b)
    sides = side_by_side(tables[0], tables[1], disagreements or {}, names, shelf or Shelf({}, {}))
    return render("comparison.html.j2", replace(view, sides=sides))


def comparison_view(
    title: str, classifiers: tuple[str, str], tables: tuple[pa.Table, pa.Table], tau: float, alpha: float
) -> ComparisonView:
    cells, pooled = tables
    rows = cells.to_pylist()
    names = names_of(classifiers)
    return ComparisonView(
        title=clean(title),
        name_a=names[classifiers[0]],
        name_b=names[classifiers[1]],
        tally=tally(rows),
        scale=f"{words.plural(len(rows), 'cell')}, {words.plural(sum(row['n'] for row in rows), 'pair')} of answers.",
        left_out=left_out(rows),
        one_caption=one_caption_line(rows),
        pooled=tuple(pooled_lines(pooled.to_pylist())),
        sections=tuple(_section(change, rows) for change in SECTIONS),
        sides=(),
        tau=words.decimal(tau),
        alpha=words.decimal(alpha),
        interval_name=words.percent(1 - alpha),
    )


def tally(rows: Sequence[Mapping[str, Any]]) -> str:
    of = Counter(row["change"] for row in rows)
    return (
        f"{words.count(of['worse'])} worse, {words.count(of['better'])} better, {words.count(of['same'])} the same, "
        f"{words.count(of['undetermined'])} undetermined"
    )


def pooled_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns one sentence for each value that changed over all classes together, the largest difference first."""
    changed = [row for row in rows if row["change"] in ("worse", "better")]
    changed.sort(key=lambda row: -abs(row["difference"]))
    return [
        f"Over {words.plural(row['classes'], 'class', 'classes')}, {row['attribute']}: {row['bias_class']} got "
        f"{row['change']}: difference {words.signed(row['difference'])} "
        f"({words.signed_range(row['difference_low'], row['difference_high'])}, "
        f"q {words.small_probability(row['q_value'])}, {words.plural(row['n'], 'image')}"
        f"{f', {ONE_CAPTION} a class' if _on_one_caption(row) else ''})."
        for row in changed
    ]


def left_out(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a sentence with the number of images that did not count; empty where all did."""
    names = ("unshared", "unanswered", "refused", "repeats")
    unshared, unanswered, refused, repeats = (sum(row[name] or 0 for row in rows) for name in names)
    parts = []
    if unshared:
        parts.append(f"{words.count(unshared)} that only one of the two drew")
    if unanswered:
        parts.append(f"{words.count(unanswered)} that one of them did not answer")
    if refused:
        parts.append(f"{words.count(refused)} in which the verifier did not see class and value")
    if repeats:
        parts.append(f"{words.plural(repeats, 'near-duplicate')}")
    return f"Left out, counted cell by cell: {words.listed(parts)}." if parts else ""


def one_caption_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns what changes of cells with one caption mean; empty where any cell shows how captions differ."""
    if not any(_on_one_caption(row) for row in rows):
        return ""
    return (
        "One caption drew the images of each cell: a change may be of that caption alone, and no interval holds how "
        "much captions differ. Give each cell two captions or more (captions_per_cell)."
    )


def _on_one_caption(row: Mapping[str, Any]) -> bool:
    return on_one_caption(row["captions"], row["caption_spread"])


def by_change(rows: Sequence[Mapping[str, Any]], change: str) -> list[Mapping[str, Any]]:
    """Returns the cells of that change, largest difference first, those without a number last."""
    chosen = [row for row in rows if row["change"] == change]
    return sorted(chosen, key=lambda row: (row["n"] == 0, -abs(row["difference"]) if row["n"] else 0.0))


def _section(change: str, rows: Sequence[Mapping[str, Any]]) -> Section:
    chosen = by_change(rows, change)
    return Section(*SECTIONS[change], tuple(_row(row) for row in chosen[:MOST_ROWS]), max(len(chosen) - MOST_ROWS, 0))


def _row(row: Mapping[str, Any]) -> Row:
    return Row(
        target_class=row["target_class"],
        attribute=row["attribute"],
        value=row["bias_class"],
        accuracy_a=words.percent(row["accuracy_a"]),
        accuracy_b=words.percent(row["accuracy_b"]),
        difference=words.signed(row["difference"]),
        interval=words.signed_range(row["difference_low"], row["difference_high"]),
        phi_difference=words.signed(row["phi_difference"]),
        phi_interval=words.signed_range(row["phi_difference_low"], row["phi_difference_high"]),
        q=words.small_probability(row["q_value"]),
        images=words.count(row["n"]),
        caveat=ONE_CAPTION if row["change"] in ("worse", "better") and _on_one_caption(row) else "",
    )
