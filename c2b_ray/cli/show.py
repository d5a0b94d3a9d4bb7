"""What a person sees while and after a command runs: progress with rate and time left, and tables.

Progress goes to standard error and only to a terminal; it knows events, not what causes them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from c2b_ray.audits.events import Event

VERDICT_STYLES = {"against": "bold red", "for": "bold green", "undetermined": "yellow", "none": "dim"}


class ProgressBar:
    """A listener of events; a context manager, so that the terminal is left as it was found."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBar:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self._bars.stop()
        return False

    def __call__(self, event: Event) -> None:
        if event.kind == "warning":
            self._bars.console.print(f"warning: {event.step}", markup=False, highlight=False)
            return
        if event.kind == "begin":
            self._tasks[event.step] = self._bars.add_task(event.step, total=None, note="")
            return
        task = self._tasks[event.step]
        if event.kind == "end":
            total = self._bars.tasks[self._bars.task_ids.index(task)].total or 1
            self._bars.update(task, total=total, completed=total, note=f"{event.seconds:.1f} s")
        elif event.progress is not None:
            bad = f", {event.progress.errors} bad" if event.progress.errors else ""
            note = f"{event.progress.rows_per_second:.0f}/s{bad}"
            self._bars.update(task, total=event.progress.total, completed=event.progress.rows, note=note)


def print_json(value: Any) -> None:
    """One line of JSON; what is not known is null."""
    from c2b_ray.report.export import finite  # loads the report's libraries, only when asked

    print(json.dumps(finite(value), ensure_ascii=False, allow_nan=False, default=str))


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
        table.add_row(cost.what, f"{cost.least:,}", f"{cost.most:,}", speed, minutes, cost.note)
    return table


def ranked_table(rows: Sequence[tuple[Mapping[str, Any], int]], most: int) -> Table:
    """The strongest findings: the row of scores that leads each group, already ranked, and how many more it has."""
    table = Table(title=f"Strongest findings ({min(most, len(rows))} of {len(rows)})", title_justify="left")
    for name in ("classifier", "class", "attribute", "value"):
        table.add_column(name, overflow="fold")
    for name in ("right", "φ", "interval of φ", "n"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    table.add_column("alike", justify="right")
    for row, more in rows[:most]:
        style = VERDICT_STYLES[row["verdict"]]
        table.add_row(
            row["classifier"],
            row["target_class"],
            row["attribute"],
            row["bias_class"],
            f"{row['accuracy']:.0%}",
            f"{row['phi']:+.2f}",
            f"{row['phi_low']:+.2f} … {row['phi_high']:+.2f}",
            str(row["n"]),
            f"[{style}]{row['verdict']}[/]",
            f"+{more}" if more else "",
        )
    return table


def out() -> Console:
    """Standard output; wide where it is no terminal, so that no column is lost."""
    return Console(width=None if sys.stdout.isatty() else 140)
