"""Prints the results of commands: lines, tables and JSON, in which no name can control the terminal.

Names may look like rich's markup: callers that put one into a line or table escape it. It knows rows, not their
source.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from c2b_ray.report.kit import words
from c2b_ray.text import finite, visible, visible_json, without_credentials

if TYPE_CHECKING:
    from pydantic import BaseModel

    from c2b_ray.report.kit.summary import Summary

MARK_STYLES = {"bad": "red", "good": "green"}


def json_line(value: Any) -> str:
    """Returns one line of JSON, without its end; unknown values are null."""
    return visible_json(json.dumps(finite(value), ensure_ascii=False, allow_nan=False, default=str))


def print_json(value: Any) -> None:
    print(json_line(value))


def cost_table(costs: Sequence[Any], of: str = "audit") -> Table:
    """Returns a table of the estimated cost, a line per kind of work; seconds are for one model in one process."""
    table = Table(title=f"Estimated cost of this {of}", title_justify="left")
    table.add_column("work", overflow="fold")
    for name in ("at least", "at most", "per second", "minutes"):
        table.add_column(name, justify="right")
    table.add_column("", overflow="fold")
    for cost in costs:
        minutes = "" if cost.seconds is None else f"{cost.seconds[0] / 60:.1f} to {cost.seconds[1] / 60:.1f}"
        speed = "" if cost.per_second is None else words.count(round(cost.per_second))
        table.add_row(
            escape(cost.what), words.count(cost.least), words.count(cost.most), speed, minutes, escape(cost.note)
        )
    return table


def summary(shown: Summary, as_json: bool) -> None:
    """Prints a run's summary on standard output, as a table and lines or as one JSON object."""
    if as_json:
        print_json(shown.to_json)
        return
    for text in shown.first:
        out().print(text, style="red", soft_wrap=True, markup=False, highlight=False)
    if shown.rows:
        out().print(summary_table(shown))
    for text in shown.lines:
        line(text)
    if shown.report:
        line(f"report: {shown.report}")


def summary_table(shown: Summary) -> Table:
    table = Table(title=shown.title, title_justify="left")
    for column in shown.columns:
        table.add_column(column.name, justify="right" if column.number else "left", overflow="fold")
    for row, mark in zip(shown.rows, shown.marks, strict=True):
        table.add_row(*map(escape, row), style=MARK_STYLES.get(mark))
    return table


class _Console(Console):
    """A console that shows control characters instead of sending them to the terminal, and hides credentials."""

    def on_broken_pipe(self) -> None:
        """Leaves what follows unwritten, and ends the command as `print` does."""
        raise BrokenPipeError(errno.EPIPE, "nobody reads the output")

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(without_credentials(text)), **options)


def out() -> Console:
    """Returns a console on standard output; a wide one if that is no terminal, so that no column is lost."""
    return _Console(width=None if sys.stdout.isatty() else 140, emoji=False)


def schema(config: type[BaseModel]) -> None:
    """Prints the JSON schema of a file."""
    print(json.dumps(config.model_json_schema(), indent=2, ensure_ascii=False))


def note(text: str) -> None:
    """Prints one line on standard error: what a command found, beside its result."""
    console = _Console(stderr=True, width=None if sys.stderr.isatty() else 140, emoji=False)
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def line(text: str) -> None:
    """Prints one line without breaking it."""
    out().print(text, soft_wrap=True, markup=False, highlight=False)
