"""`c2b backup` and `c2b restore`: a shared endpoint's ledger, and its storage where wanted, in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from c2b_ray.cli import show
from c2b_ray.cli.ledger import Config, opened


def backup(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new folder.")],
    with_storage: Annotated[
        bool, typer.Option("--with-storage", help="Copy runs and uploads too; else the copy names where they are.")
    ] = False,
    config: Config = None,
) -> None:
    """Copy a shared endpoint's ledger, as it is at one moment, while it works.

    The copy holds hashes of keys and secrets of webhooks: keep it as you keep the database.
    """
    from c2b_ray.config.endpoint import read_endpoint
    from c2b_ray.endpoint.operate.backup import backup as copy

    manifest = copy(opened(config), read_endpoint(config), out, with_storage=with_storage)
    rows = sum(table["rows"] for table in manifest["tables"].values())
    storage = manifest["storage"]
    files = f", {storage['files']} files of the storage" if storage["copied"] else f"; the storage is {storage['root']}"
    show.line(f"{rows} rows are in {out}{files}")
    show.line(f"end of the audit log, to keep elsewhere: {manifest['audit_head']}")


def restore(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A folder that `c2b backup` made.")],
    with_storage: Annotated[
        bool, typer.Option("--with-storage", help="Restore runs and uploads too, into an empty storage.")
    ] = False,
    config: Config = None,
) -> None:
    """Make the ledger anew, in an empty database, SQLite or PostgreSQL; stop API, dispatcher and runners first.

    Jobs that ran when the copy was made are queued again, and go on from their runs.
    """
    from c2b_ray.config.endpoint import read_endpoint
    from c2b_ray.endpoint.operate.backup import restore as take

    manifest = take(opened(config, create=True), read_endpoint(config), source, with_storage=with_storage)
    rows = sum(table["rows"] for table in manifest["tables"].values())
    show.line(f"{rows} rows are restored; the audit log is whole, through {manifest['audit_head'].partition(':')[0]}")
