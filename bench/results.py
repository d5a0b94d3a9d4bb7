"""Writes RESULTS.md from results.csv, a line a measurement.

    python bench/results.py            # take in new rows, write RESULTS.md
    python bench/results.py --check    # exit status 1 if RESULTS.md is not what results.csv gives

To add a row, write a line into results.csv (section, what, asked, reached, command, machine, date). Or put a row of the
four cells `| what | asked | reached | command, machine, date |` anywhere into RESULTS.md and run this script: it moves
the row to results.csv, into the section `Latest`. A row of two branches that both changed RESULTS.md is added so:

    git diff BASE BRANCH -- bench/RESULTS.md | grep '^+|' | cut -c2- >> bench/RESULTS.md; python bench/results.py
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

HERE = Path(__file__).parent
TABLE, PAGE = HERE / "results.csv", HERE / "RESULTS.md"
LATEST = "Latest"
CELLS_BY_HAND = 4
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
MACHINE = re.compile(r"(?:one |1 )?(?:NVIDIA )?(H[12]00)\b|\b(\d+ cores)\b")

HEAD = """\
# Results

Each row is a measurement that its command repeats. `python bench/results.py` writes this page from `results.csv`. A
measurement that is repeated replaces its row, and a number that fell short of what was asked is marked **not reached**.
`–`: nothing was asked.

- **2 cores**: two cores of an AMD EPYC (AVX-512), 24 GiB, no GPU, Linux, Python 3.11. Other work ran beside most rows:
  CPU seconds compare, wall times are upper bounds.
- **H200**: one NVIDIA H200, 16 cores of an Intel Xeon, torch 2.11 for CUDA 13, Python 3.12; JPEGs of 500 × 375 and
  59 kB (`bench/photos.py`).
- **Planted biases**: true φ is measured on 40,000 scenes rendered for it, with seeds that neither training nor audits
  use. Audits see 24,000 scenes. A strong cell is one whose true |φ| is at least 0.15.
"""


@dataclass(frozen=True)
class Row:
    """A measurement. `machine` is explained at the top of RESULTS.md; `date` is when it was taken last."""

    section: str
    what: str
    asked: str
    reached: str
    command: str
    machine: str
    date: str


COLUMNS = tuple(field.name for field in fields(Row))


def read_table(path: Path = TABLE) -> list[Row]:
    """Raises ValueError that names the line whose cells do not fit."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.reader(file)
        if tuple(next(lines, ())) != COLUMNS:
            raise ValueError(f"{path.name}, line 1: expected the columns {', '.join(COLUMNS)}")
        rows = []
        for cells in lines:
            if len(cells) != len(COLUMNS) or not all(cells) or not DATE.fullmatch(cells[-1]):
                expected = f"{len(COLUMNS)} filled cells, the last a date (2026-11-27)"
                raise ValueError(f"{path.name}, line {lines.line_num}: {cells}; expected {expected}")
            rows.append(Row(*cells))
    return rows


def write_table(rows: list[Row], path: Path = TABLE) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS, *map(astuple, rows)])


def page(rows: list[Row]) -> str:
    """RESULTS.md: a table for each section, sections in the order in which they come first."""
    lines = [HEAD]
    for section in dict.fromkeys(row.section for row in rows):
        lines += [f"## {section}", "", _line(COLUMNS[1:]), "|" + "---|" * (len(COLUMNS) - 1)]
        lines += [_line(astuple(row)[1:]) for row in rows if row.section == section]
        lines.append("")
    return "\n".join(lines)


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def rows_by_hand(text: str) -> list[Row]:
    """The rows of four cells in `text`; machine and date are those that the row names, which it may name anywhere.

    Raises ValueError where a row names no date.
    """
    rows = []
    for line in text.splitlines():
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]
        if len(cells) != CELLS_BY_HAND or cells[0] == "what" or set(cells[0]) <= {"-", ":"}:
            continue
        what, asked, reached, command = cells
        date, machine = (find.search(f"{command} {what}") for find in (DATE, MACHINE))
        if date is None:
            raise ValueError(f"The row {what[:60]!r} names no date; write it into its last cell (2026-11-27)")
        for part in (DATE, MACHINE):
            command = part.sub("", command)
        command = re.sub(r"[,;]\s*(?=[,;)]|$)|(?<=\()\s*[,;]\s*", "", command)
        command = re.sub(r"[,;]?\s*\(\s*\)", "", command).strip(" ,;")
        rows.append(
            Row(
                LATEST,
                what,
                asked,
                reached,
                command,
                machine[machine.lastindex or 0] if machine else "2 cores",
                date.group(),
            )
        )
    return rows


def joined(rows: list[Row], new: list[Row]) -> list[Row]:
    """`rows` with `new`: one that measures the same as an older row takes its place, the others come last."""
    of = {row.what: row for row in rows}
    for row in new:
        of[row.what] = replace(row, section=of[row.what].section) if row.what in of else row
    return list(of.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit status 1 if RESULTS.md is out of date"
    )
    check = parser.parse_args().check
    rows, written = read_table(), PAGE.read_text(encoding="utf-8")
    if check and written != page(rows):
        print("bench/RESULTS.md is not what bench/results.csv gives; run python bench/results.py", file=sys.stderr)
        return 1
    if not check:
        rows = joined(rows, rows_by_hand(written))
        write_table(rows)
        PAGE.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
