"""All findings in one table: a row per cell in which any classifier has a finding, a column per classifier.

Knows cells and words; knows nothing of pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from c2b_ray.report.c2b.overview import EMPTY, Heat, heat_of
from c2b_ray.report.c2b.ranking import Cell, Group, Key
from c2b_ray.report.kit import words

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
    rows = [(at, of) for at, of in cells.items() if any(cell.is_finding for cell in of.values())]
    rows.sort(key=lambda row: (-max(cell.weight for cell in row[1].values() if cell.is_finding), row[0]))
    return Versus(
        classifiers=tuple(names[classifier] for classifier in classifiers),
        turned=len(classifiers) > MOST_NAMED,
        rows=tuple(_row(at, [of.get(name) for name in classifiers], link_of) for at, of in rows[:MOST_ROWS]),
        more=max(len(rows) - MOST_ROWS, 0),
    )


def _row(at: tuple[str, str, str], cells: Sequence[Cell | None], links: Mapping[Key, str]) -> VersusRow:
    entries = tuple(
        EMPTY if cell is None else heat_of(cell, links[cell.classifier, cell.target_class, cell.attribute])
        for cell in cells
    )
    verdicts = "\n".join(dict.fromkeys(cell.verdict for cell in cells if cell is not None))
    only = cells[0] if len(cells) == 1 else None
    if only is None:
        return VersusRow(*at, verdicts, entries)
    return VersusRow(
        *at,
        verdicts,
        entries,
        interval=words.signed_range(only.phi_low, only.phi_high),
        accuracy=words.percent(only.accuracy),
        others=words.percent(only.others),
        images=words.count(only.n),
        q=words.small_probability(only.q_value),
    )
