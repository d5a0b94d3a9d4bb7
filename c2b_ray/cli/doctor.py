"""`c2b doctor`: what this machine has for audits, and the command that mends each lack."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from c2b_ray.cli import show

MARKS = {"ok": "[green]ok[/]", "note": "[yellow]note[/]", "broken": "[bold red]broken[/]"}


def doctor(
    runs: Annotated[
        str, typer.Option("--runs", metavar="DIR", help="Where runs will go: a folder, or an s3:// URI.")
    ] = "runs",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what this machine has for audits, and the command that mends each lack; exit 1 where an audit cannot run.

    Looks at Python, packages and extras, GPUs and what uses them, the model hub, Ray, cores, memory, shared memory,
    open files and the place of runs. A note is about what only some users want, or what is tight.
    """
    from c2b_ray.audits.doctor import examine, is_sound

    rows = examine(runs)
    if as_json:
        show.print_json({"sound": is_sound(rows), "rows": [asdict(row) for row in rows]})
    else:
        width = max(len(row.subject) for row in rows)
        for row in rows:
            show.out().print(
                f"{MARKS[row.state]}{' ' * (6 - len(row.state))}  {row.subject:<{width}}  {escape(row.text)}",
                soft_wrap=True,
                highlight=False,
            )
            if row.remedy:
                show.out().print(f"{'':<{width + 10}}→ {escape(row.remedy)}", soft_wrap=True, highlight=False)
    if not is_sound(rows):
        raise typer.Exit(1)
