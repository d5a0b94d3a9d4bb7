"""A comparison of two classifiers or models: as one HTML page, and as a terminal shows it.

A kind of run brings the headings, the texts of each row and a template that explains the comparison. This module knows
of the table only its columns `change` and `p_value`, which is null where a row could not be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from c2b_ray.report import words
from c2b_ray.report.page import render
from c2b_ray.report.redact import names_of
from c2b_ray.report.words import Column, Summary

MOST_ROWS, MOST_LINES = 200, 15
LONGEST = 60  # characters of a text on a terminal
MARKS = {"worse": ("against", "▼", "bad"), "better": ("for", "▲", "good"), "undetermined": ("undetermined", "◇", "")}
"""The page's style and sign of each change, and the terminal's mark."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Heading:
    """A column heading. `number`: aligned to the right. `small`: the page shows it beneath the preceding column.
    `page_only`: omitted in a terminal, which has no room for it."""

    name: str
    number: bool = False
    small: bool = False
    page_only: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell of the page's table."""

    heading: Heading
    text: str
    beneath: str


@dataclass(frozen=True)
class Section:
    style: str
    sign: str
    title: str
    rows: tuple[tuple[Cell, ...], ...]
    more: int


@dataclass(frozen=True)
class View:
    name_a: str
    name_b: str
    tally: str
    remark: str
    headings: tuple[Heading, ...]
    sections: tuple[Section, ...]
    alpha: str
    interval_name: str


def no_remark(rows: Rows) -> str:
    return ""


@dataclass(frozen=True)
class Pages:
    """The presentation of a kind's comparisons.

    `template`: extends kind_comparison.html.j2. `titles`: of the changes worse, better and undetermined. `texts`: of a
    row, one for each heading. `remark`: a sentence beneath the tally, or "". `rising`: a larger number is worse.
    """

    template: str
    titles: Mapping[str, str]
    headings: tuple[Heading, ...]
    texts: Callable[[Mapping[str, Any]], tuple[str, ...]]
    remark: Callable[[Rows], str] = no_remark
    rising: bool = False

    def page(self, names: tuple[str, str], cells: pa.Table, alpha: float) -> str:
        """`names`: A and B; `cells`: the kind's table, in the order to show; `alpha`: of tests and intervals."""
        rows, shown_names = cells.to_pylist(), names_of(names)
        view = View(
            name_a=shown_names[names[0]],
            name_b=shown_names[names[1]],
            tally=_tally_line(rows),
            remark=self.remark(rows),
            headings=tuple(heading for heading in self.headings if not heading.small),
            sections=tuple(self._section(change, rows) for change in MARKS),
            alpha=words.decimal(alpha),
            interval_name=words.percent(1 - alpha),
        )
        return render(self.template, view)

    def summaries(self, names: tuple[str, str], cells: pa.Table) -> list[Summary]:
        """Returns summaries of what is worse and what is better; below the last, the number of rows by change."""
        rows, shown_names = cells.to_pylist(), names_of(names)
        columns_shown = [i for i, heading in enumerate(self.headings) if not heading.page_only]
        columns = [Column(self.headings[i].name, self.headings[i].number) for i in columns_shown]
        result = [Summary("", columns, [], [], [f"A: {shown_names[names[0]]}", f"B: {shown_names[names[1]]}"])]
        for change in ("worse", "better"):
            changed = [row for row in rows if row["change"] == change]
            texts = [self.texts(row) for row in changed[:MOST_LINES]]
            lines = [tuple(words.shortened(row_texts[i], LONGEST) for i in columns_shown) for row_texts in texts]
            title = words.shown_of(self.titles[change], len(lines), len(changed))
            result.append(Summary(title, columns, lines, [MARKS[change][2]] * len(lines), []))
        note = self.remark(rows)
        return [*result, Summary("", columns, [], [], [_tally_line(rows), *([note] if note else [])])]

    def _section(self, change: str, rows: Rows) -> Section:
        changed = [row for row in rows if row["change"] == change]
        style, sign, _ = MARKS[change]
        return Section(
            style,
            {"▼": "▲", "▲": "▼"}.get(sign, sign) if self.rising else sign,
            self.titles[change],
            tuple(_cells(self.headings, self.texts(row)) for row in changed[:MOST_ROWS]),
            max(len(changed) - MOST_ROWS, 0),
        )


def tally(rows: Rows) -> dict[str, int]:
    """Counts the rows by change, and those that could not be compared."""
    counts = Counter(row["change"] if row["p_value"] is not None else "not compared" for row in rows)
    return {name: counts[name] for name in (*MARKS, "not compared")}


def difference_texts(row: Mapping[str, Any], signed: Callable[[float], str] = words.signed) -> tuple[str, str, str]:
    """Returns the texts of a row's `difference`, of its interval and of its `q_value`; of a row that could not be
    compared, that they are unknown. `signed`: formats a difference in the unit of the kind's values."""
    if row["p_value"] is None:
        return words.UNKNOWN, "", words.UNKNOWN
    interval = f"{signed(row['difference_low'])} to {signed(row['difference_high'])}"
    return signed(row["difference"]), interval, words.small_probability(row["q_value"])


def _tally_line(rows: Rows) -> str:
    return ", ".join(f"{words.count(count)} {name}" for name, count in tally(rows).items())


def _cells(headings: Sequence[Heading], texts: Sequence[str]) -> tuple[Cell, ...]:
    pairs = list(zip(headings, texts, strict=True))
    following = [text if heading.small else "" for heading, text in pairs[1:]] + [""]
    return tuple(
        Cell(heading, text, small) for (heading, text), small in zip(pairs, following, strict=True) if not heading.small
    )
