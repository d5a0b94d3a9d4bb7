"""The commands of `c2b`, and the exit statuses of their errors."""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from c2b_ray import __version__
from c2b_ray.audits.audit import audit_named
from c2b_ray.cli import (
    audit,
    audit_command,
    check,
    compare,
    dataset,
    doctor,
    endpoint,
    examples,
    failures,
    index,
    keys,
    ledger,
    models,
    prompts,
    remote,
    serve,
    show,
    tenants,
    world,
)
from c2b_ray.cli import doctor as init
from c2b_ray.cli import show as runs
from c2b_ray.errors import C2BError, InputError, StorageError
from c2b_ray.extras import needed_by
from c2b_ray.text import visible, without_credentials

app = typer.Typer(
    help="Finds where an image classifier fails, from one sentence about its task and no labelled data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
app.command("demo")(audit.demo)
app.command("init")(init.init)
app.command("audit")(audit.audit)
app.command("check")(check.check)
app.command("report")(audit.report)
app.command("runs")(runs.runs)
app.command("ask")(show.ask)
app.command("compare")(compare.compare)
app.command("gate")(compare.gate)
app.command("export")(show.export)
app.add_typer(failures.app, name="failures")
app.add_typer(prompts.app, name="prompts")
app.add_typer(dataset.app, name="dataset")
for name in ("evaluate", "latent", "clip-bias"):
    app.command(name)(audit_command.command_of(audit_named(name)))
app.add_typer(index.app, name="index")
app.add_typer(remote.app, name="remote")
app.command("models")(models.models)
app.add_typer(world.app, name="world")
app.command("doctor")(doctor.doctor)
app.command("serve")(serve.serve)
app.add_typer(endpoint.app, name="endpoint")
app.add_typer(tenants.app, name="tenants")
app.add_typer(keys.app, name="keys")
app.add_typer(ledger.app, name="audit-log")
app.command("backup")(ledger.backup)
app.command("restore")(ledger.restore)
audit_command.add_of_other_packages(app)
examples.add_to(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"c2b-ray {__version__}")
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Finds where an image classifier fails, from one sentence about its task and no labelled data."""


_OF_THE_ENDPOINT = ("endpoint", "tenants", "keys", "audit-log", "backup", "restore")
"""Commands that read the ledger, or write it: all their packages come with one extra."""


def run() -> None:
    name = next(iter(sys.argv[1:]), "")
    try:
        with needed_by(f"c2b {name}", install="'c2b-ray[endpoint]'" if name in _OF_THE_ENDPOINT else None):
            app()
    except (InputError, StorageError) as error:
        _fail(error, 2)
    except C2BError as error:
        _fail(error, 1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        _fail(StorageError(f"the output cannot be written: {error.strerror}"), 2)


def _fail(error: C2BError, status: int) -> None:
    print(f"error: {visible(without_credentials(str(error)))}", file=sys.stderr, flush=True)
    sys.exit(status)
