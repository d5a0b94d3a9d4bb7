"""`c2b backup` and `c2b restore`: copy a shared endpoint's ledger, and its storage if wanted, to a folder and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from c2b_ray.cli import show
from c2b_ray.cli.ledger import Config, opened
from c2b_ray.report.kit import words


def backup(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder.")],
    with_storage: Annotated[
        bool, typer.Option("--with-storage", help="Copy runs and uploads too; else the copy names their location.")
    ] = False,
    config: Config = None,
) -> None:
    """Copy a consistent snapshot of a shared endpoint's ledger while the endpoint runs.

    The copy holds hashes of keys and secrets of webhooks: protect it like the database.
    """
    from c2b_ray.config.endpoint import read_endpoint
    from c2b_ray.endpoint.operate.backup import backup as copy

    manifest = copy(opened(config), read_endpoint(config), out, with_storage=with_storage)
    rows = sum(table["rows"] for table in manifest["tables"].values())
    storage = manifest["storage"]
    files = f"; the storage stays at {storage['root']}"
    if storage["copied"]:
        files = f" and {words.plural(storage['files'], 'file')} of the storage"
    show.line(f"{words.plural(rows, 'row')} copied to {out}{files}")
    show.line(f"keep the end of the audit log elsewhere: {manifest['audit_head']}")


def restore(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A folder that `c2b backup` made.")],
    with_storage: Annotated[
        bool, typer.Option("--with-storage", help="Restore runs and uploads too, into an empty storage.")
    ] = False,
    config: Config = None,
) -> None:
    """Restore the ledger into an empty database, SQLite or PostgreSQL; stop API, dispatcher and runners first.

    Jobs that were running when the copy was made are queued again, and resume their runs.
    """
    from c2b_ray.config.endpoint import read_endpoint
    from c2b_ray.endpoint.operate.backup import restore as take

    manifest = take(opened(config, create=True), read_endpoint(config), source, with_storage=with_storage)
    rows = sum(table["rows"] for table in manifest["tables"].values())
    last = int(manifest["audit_head"].partition(":")[0])
    show.line(f"{words.plural(rows, 'row')} restored; the audit log is intact up to entry {words.count(last)}")
