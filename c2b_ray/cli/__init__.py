"""`c2b`: parse, call, print.

Exit status: 0 done, 1 a gate that failed or a failure that is not the user's, 2 bad input, 130 interrupted (the same
command resumes).
What a command answers goes to standard output, everything else to standard error.
"""

from __future__ import annotations

import os
import sys

import typer

from c2b_ray.cli import ask, audit, compare, export, index, models, serve, world
from c2b_ray.errors import C2BError, InputError, StorageError

INTERRUPTED = 130

app = typer.Typer(
    help="Finds where an image classifier fails, from one sentence about its task and no labelled data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("demo")(audit.demo)
app.command("audit")(audit.audit)
app.command("report")(audit.report)
app.command("ask")(ask.ask)
app.command("compare")(compare.compare)
app.command("gate")(compare.gate)
app.command("export")(export.export)
app.add_typer(index.app, name="index")
app.command("models")(models.models)
app.add_typer(world.app, name="world")
app.command("serve")(serve.serve)


def main() -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # below it, gRPC tells of every process that is started
    try:
        app()
    except (InputError, StorageError) as error:
        _fail(f"error: {error}", 2)
    except C2BError as error:
        _fail(f"error: {error}", 1)
    except SystemExit as done:
        if done.code == INTERRUPTED:  # typer makes a silent exit of a KeyboardInterrupt
            _fail("interrupted; the same command goes on from here", INTERRUPTED)
        raise


def _fail(message: str, status: int) -> None:
    print(message, file=sys.stderr, flush=True)
    sys.exit(status)
