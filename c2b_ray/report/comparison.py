"""A comparison of two classifiers or models: as one HTML page, and as a terminal shows it.

A kind of run brings the headings, the texts of each row and how the two were compared. This module knows of the table
only its columns `change` and `p_value`, which is null where a row could not be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from c2b_ray.report import words
from c2b_ray.report.blocks import Cell, Cells, Page, Paragraph, Section, Table, TableRow, Terms, Verdict, spec
from c2b_ray.report.redact import names_of
from c2b_ray.report.words import Column, Sentence, Span, Summary

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


DIFFERENCE = (
    Heading("difference", number=True),
    Heading("interval", number=True, small=True),
    Heading("q", number=True),
)
"""The headings of what `difference_texts` returns."""


def no_remark(rows: Rows) -> str:
    return ""


@dataclass(frozen=True)
class Pages:
    """The presentation of a kind's comparisons.

    `kicker`, `title`: the head of the page. `caption`: what the tables show, and in which order. `terms`: how the two
    were compared, with the marks of `blocks.marked` and {alpha}. `titles`: of the changes worse, better and
    undetermined. `texts`: of a row, one for each heading. `remark`: a sentence beneath the tally, or "". `rising`: a
    larger number is worse.
    """

    kicker: str
    title: str
    caption: str
    terms: Sequence[str]
    titles: Mapping[str, str]
    headings: Sequence[Heading]
    texts: Callable[[Mapping[str, Any]], tuple[str, ...]]
    remark: Callable[[Rows], str] = no_remark
    rising: bool = False

    def page(self, names: tuple[str, str], cells: pa.Table, alpha: float) -> str:
        """`names`: A and B; `cells`: the kind's table, in the order to show; `alpha`: of tests and intervals."""
        rows, shown_names = cells.to_pylist(), names_of(names)
        remark = self.remark(rows)
        terms = Terms([text.format(alpha=words.decimal(alpha)) for text in self.terms])
        return Page(
            title=self.title,
            suffix=self.kicker.lower(),
            kicker=self.kicker,
            byline=both(shown_names[names[0]], shown_names[names[1]]),
            head=[Paragraph(_tally_line(rows), "tally"), *([Paragraph(remark, "scale")] if remark else [])],
            sections=(
                *(self._section(change, rows, alpha) for change in MARKS),
                Section("How they were compared", [terms]),
            ),
        ).html()

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

    def _section(self, change: str, rows: Rows, alpha: float) -> Section:
        changed = [row for row in rows if row["change"] == change]
        columns = [Column(_capital(heading.name), heading.number) for heading in self.headings if not heading.small]
        caption = f"{self.caption}; B minus A, with {words.percent(1 - alpha)} intervals"
        lines = [_cells(self.headings, self.texts(row)) for row in changed[:MOST_ROWS]]
        mark = mark_of(change)
        if self.rising:
            mark = replace(mark, sign={"▼": "▲", "▲": "▼"}.get(mark.sign, mark.sign))
        return changes(self.titles[change], mark, caption, columns, lines, len(changed))


def mark_of(change: str) -> Verdict:
    """Returns the sign of a change, for a heading."""
    style, sign, _ = MARKS[change]
    return Verdict(style, sign, "")


def changes(
    title: str, mark: Verdict, caption: str, columns: Sequence[Column], lines: Sequence[Cells | TableRow], count: int
) -> Section:
    """Returns the section of one change; `count`: of all rows, of which `lines` are the first."""
    more = words.further(count, len(lines), "in comparison.parquet")
    table = Table(
        columns, lines, style="open compared", caption=caption, sortable=True, filtered=title, most=40, more=more
    )
    return Section(title, [table if lines else Paragraph("Nothing.")], mark=mark)


def both(name_a: str, name_b: str) -> list[Sentence]:
    """Returns the names of A and B, for the head of a page."""
    return [(Span(f"{side} "), spec(name)) for side, name in (("A", name_a), ("B", name_b))]


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


def _cells(headings: Sequence[Heading], texts: Sequence[str]) -> list[Cell]:
    """Returns the cells of a row: a text of a small heading stands beneath the one before it."""
    cells: list[Cell] = []
    for heading, text in zip(headings, texts, strict=True):
        if heading.small:
            cells[-1] = replace(cells[-1], small=[text])
        else:
            cells.append(Cell(text))
    return cells


def _capital(name: str) -> str:
    return name if name == "q" else name[:1].upper() + name[1:]
