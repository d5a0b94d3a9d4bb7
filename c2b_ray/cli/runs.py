"""`c2b runs`: the runs in a folder, of every kind, in the terminal or as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from c2b_ray.cli import show
from c2b_ray.report import words
from c2b_ray.text import without_credentials

if TYPE_CHECKING:
    from c2b_ray.storage.run_list import ListedRun

MOST_ROWS = 50
STYLES = {"unreadable": "red", "failed": "red", "running": "yellow"}


def runs(
    folder: Annotated[str, typer.Argument(metavar="[DIR]", help="A folder or s3:// URI that holds runs.")] = "runs",
    html: Annotated[
        str | None,
        typer.Option(metavar="OUT", help="Write an index page, a file or a folder for index.html, to any web server."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all runs.")] = False,
) -> None:
    """List runs of all kinds, the newest first: what each is of, its state, and its result in a line.

    The page of --html links to the reports, and shows the findings of each classifier by date.
    """
    from c2b_ray.audits.runs import write_index
    from c2b_ray.storage.run_list import list_runs

    listed = write_index(folder, html) if html else list_runs(folder)
    if as_json:
        show.print_json({"folder": folder, "page": html, "runs": [_for_programs(run) for run in listed]})
        return
    _print(listed)
    if html:
        show.line(f"page: {html}")


def _for_programs(run: ListedRun) -> dict[str, object]:
    return {**asdict(run), "problem": without_credentials(run.problem)}


def _print(listed: Sequence[ListedRun]) -> None:
    if not listed:
        show.line("no run here; c2b audit audit.yaml --out runs/NAME makes one")
        return
    table = Table(title=words.plural(len(listed), "run"), title_justify="left")
    for name in ("run", "date", "kind", "state", "of", "result"):
        table.add_column(name, overflow="fold", no_wrap=name == "date")
    for run in listed[:MOST_ROWS]:
        of = ", ".join(dict.fromkeys(run.classifiers.values()))
        result = ". ".join(filter(None, (run.headline, run.problem)))
        cells = (run.name, run.date[:10], run.kind, run.state, of, result)
        table.add_row(*map(escape, cells), style=STYLES.get(run.state))
    show.out().print(table)
    if len(listed) > MOST_ROWS:
        show.line(f"and {words.count(len(listed) - MOST_ROWS)} older ones, which --json and --html list")
