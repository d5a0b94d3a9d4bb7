"""What a person sees after a command has run: lines, tables and JSON, in which no name acts on the terminal.

Names may look like rich's markup: whoever puts one into a line or table escapes it. It knows rows, not where they come
from.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from c2b_ray.text import visible, visible_json, without_credentials

if TYPE_CHECKING:
    from c2b_ray.report.c2b.ranking import Group

_BASES = {"captions": "unverified captions", "verifier": "the verifier's word"}
VERDICT_STYLES = {"against": "bold red", "for": "bold green"}


def print_json(value: Any) -> None:
    """One line of JSON; what is not known is null."""
    from c2b_ray.report.c2b.export import finite  # loads the report's libraries, only when asked

    print(visible_json(json.dumps(finite(value), ensure_ascii=False, allow_nan=False, default=str)))


def cost_table(costs: Sequence[Any]) -> Table:
    """What an audit would cost: a line per kind of work; seconds are of one model in one process."""
    table = Table(title="What this audit would take", title_justify="left")
    table.add_column("what", overflow="fold")
    for name in ("at least", "at most", "a second", "minutes"):
        table.add_column(name, justify="right")
    table.add_column("", overflow="fold")
    for cost in costs:
        minutes = "" if cost.seconds is None else f"{cost.seconds[0] / 60:.1f} to {cost.seconds[1] / 60:.1f}"
        speed = "" if cost.per_second is None else f"{cost.per_second:,.0f}"
        table.add_row(escape(cost.what), f"{cost.least:,}", f"{cost.most:,}", speed, minutes, escape(cost.note))
    return table


def ranked_table(groups: Sequence[tuple[Group, Sequence[Group]]], most: int) -> Table:
    """The strongest findings: the lead of each group, already ranked, and how many more the page tells with it."""
    table = Table(title=f"Strongest findings ({min(most, len(groups))} of {len(groups)})", title_justify="left")
    for name in ("classifier", "class", "attribute", "value"):
        table.add_column(name, overflow="fold")
    for name in ("right", "φ", "interval of φ", "n"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    table.add_column("more", justify="right")
    for group, alike in groups[:most]:
        cell = group.lead
        if cell is None:
            continue
        style = VERDICT_STYLES[cell.verdict]
        more = sum(other.found for one in (group, *alike) for other in one.cells) - 1
        table.add_row(
            *(escape(name) for name in (cell.classifier, cell.target_class, cell.attribute, cell.bias_class)),
            f"{cell.accuracy:.0%}",
            f"{cell.phi:+.2f}",
            f"{cell.phi_low:+.2f} … {cell.phi_high:+.2f}",
            str(cell.n),
            f"[{style}]{cell.verdict}[/]{_rests(cell.basis)}",
            f"+{more}" if more else "",
        )
    return table


def _rests(basis: str) -> str:
    """What a finding rests on, where on less than labels or a calibrated verifier."""
    return f" [dim]on {_BASES[basis]}[/]" if basis in _BASES else ""


class _Console(Console):
    """A console that shows control characters in names rather than send them to the terminal, and no credentials."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(without_credentials(text)), **options)


def out() -> Console:
    """Standard output; wide where it is no terminal, so that no column is lost."""
    return _Console(width=None if sys.stdout.isatty() else 140, emoji=False)


def line(text: str) -> None:
    """One line as it is, however long."""
    out().print(text, soft_wrap=True, markup=False, highlight=False)
