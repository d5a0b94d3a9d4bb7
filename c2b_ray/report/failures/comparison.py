"""A comparison of two classifiers by their failures: as one HTML page, and as a terminal shows it.

Knows the columns of `schemas.FAILURES_COMPARISON`; knows nothing of how the numbers came about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.report.kit import words
from c2b_ray.report.kit.page import render
from c2b_ray.report.kit.redact import clean, names_of
from c2b_ray.report.kit.summary import Column, Summary

MOST_ROWS, MOST_LINES = 200, 15
LONGEST = 60  # characters of a caption on a terminal
SECTIONS = {
    "worse": ("against", "▼", "Fails more often"),
    "better": ("for", "▲", "Fails less often"),
    "undetermined": ("undetermined", "◇", "Undetermined"),
}
COLUMNS = (
    *(Column(name) for name in ("label", "taken for", "caption")),
    *(Column(name, number=True) for name in ("A", "B", "difference", "interval", "q")),
)


@dataclass(frozen=True)
class Row:
    label: str
    target: str
    caption: str
    rate_a: str
    rate_b: str
    difference: str
    interval: str
    times: str
    q: str
    verdicts: str


@dataclass(frozen=True)
class Section:
    style: str
    sign: str
    title: str
    rows: tuple[Row, ...]
    more: int


@dataclass(frozen=True)
class View:
    name_a: str
    name_b: str
    tally: str
    alone: str
    sections: tuple[Section, ...]
    alpha: str
    interval_name: str


def page(classifiers: tuple[str, str], cells: pa.Table, alpha: float) -> str:
    rows, names = cells.to_pylist(), names_of(classifiers)
    view = View(
        name_a=names[classifiers[0]],
        name_b=names[classifiers[1]],
        tally=tally_line(rows),
        alone=alone_line(rows),
        sections=tuple(_section(change, rows) for change in SECTIONS),
        alpha=words.decimal(alpha),
        interval_name=words.percent(1 - alpha),
    )
    return render("failures_comparison.html.j2", view)


def summaries(classifiers: tuple[str, str], cells: pa.Table) -> list[Summary]:
    """What got worse and what got better; beneath the last, how many."""
    rows, names = cells.to_pylist(), names_of(classifiers)
    result = [Summary("", COLUMNS, [], [], [f"A: {names[classifiers[0]]}", f"B: {names[classifiers[1]]}"])]
    for change, mark in (("worse", "bad"), ("better", "good")):
        chosen = [row for row in rows if row["change"] == change]
        shown = [_row(row, LONGEST) for row in chosen[:MOST_LINES]]
        cells_of = [
            (one.label, one.target, one.caption, one.rate_a, one.rate_b, one.difference, one.interval, one.q)
            for one in shown
        ]
        title = f"{SECTIONS[change][2]} ({len(shown)} of {len(chosen)})"
        result.append(Summary(title, COLUMNS, cells_of, [mark] * len(shown), []))
    lines = [tally_line(rows), *([alone] if (alone := alone_line(rows)) else [])]
    return [*result, Summary("", COLUMNS, [], [], lines)]


def tally(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
    of = Counter(row["change"] for row in rows if row["difference"] is not None)
    return {name: of[name] for name in SECTIONS}


def tally_line(rows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{words.count(count)} {name}" for name, count in tally(rows).items())


def alone_line(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many captions only one of the two was measured on, and how many of these are findings."""
    parts = []
    for side in "ab":
        alone = [row for row in rows if row["difference"] is None and row[f"draws_{side}"]]
        findings = sum(row[f"verdict_{side}"] == "failure" for row in alone)
        if alone:
            counted = f"{words.plural(len(alone), 'hypothesis', 'hypotheses')} of {side.upper()} alone"
            parts.append(f"{counted} ({words.plural(findings, 'finding')})")
    return f"Not compared: {words.listed(parts)}." if parts else ""


def _section(change: str, rows: Sequence[Mapping[str, Any]]) -> Section:
    chosen = [row for row in rows if row["change"] == change]
    return Section(*SECTIONS[change], tuple(_row(row) for row in chosen[:MOST_ROWS]), max(len(chosen) - MOST_ROWS, 0))


def _signed(difference: float) -> str:
    return f"{'+' if difference >= 0 else '−'}{words.rate(abs(difference))}"


def _row(row: Mapping[str, Any], longest: int = 400) -> Row:
    is_known = row["difference"] is not None
    verdicts = (row[f"verdict_{side}"] for side in "ab")
    return Row(
        label=clean(row["label"]),
        target="any label" if row["target"] is None else clean(row["target"]),
        caption=words.shortened(clean(row["caption"]), longest),
        rate_a=words.rate(row["rate_a"]) if row["draws_a"] else words.UNKNOWN,
        rate_b=words.rate(row["rate_b"]) if row["draws_b"] else words.UNKNOWN,
        difference=_signed(row["difference"]) if is_known else words.UNKNOWN,
        interval=(f"{_signed(row['difference_low'])} to {_signed(row['difference_high'])}" if is_known else ""),
        times=words.times(row["ratio"]) if is_known else words.UNKNOWN,
        q=words.small_probability(row["q_value"]) if is_known else words.UNKNOWN,
        verdicts=" → ".join("not tested" if one is None else one.replace("_", " ") for one in verdicts),
    )
