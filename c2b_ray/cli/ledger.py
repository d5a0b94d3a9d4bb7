"""The ledger for operators' commands, and the formats of ids and times on the command line."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from c2b_ray.cli import show
from c2b_ray.errors import ConfigError
from c2b_ray.report import words

if TYPE_CHECKING:
    from c2b_ray.endpoint.ledger.audit_log import Head
    from c2b_ray.endpoint.ledger.database import Database


Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="ENDPOINT.yaml",
        help="The endpoint's file or folder. Default: this folder, if an endpoint is in it, or its c2b-endpoint.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PERIOD = re.compile(rf"(\d{{1,9}})([{''.join(_UNITS)}])")


def opened(config: str | None, *, create: bool = False) -> Database:
    """Opens the endpoint's ledger, which must be at this version's revision; `create`: creates missing tables.

    Raises ConfigError for a missing database file. Where it creates one, it says so: in a wrong folder no endpoint
    would use it.
    """
    from c2b_ray.config.endpoint import read_endpoint
    from c2b_ray.endpoint.ledger import migrations
    from c2b_ray.endpoint.ledger.database import Database
    from c2b_ray.extras import needed_by

    url = read_endpoint(config).database_url
    path = url.removeprefix("sqlite:///")
    is_new = path != url and not Path(path).is_file()
    if is_new and not create:
        raise ConfigError("database", f"{path}: there is no ledger; name the endpoint's file or folder with --config")
    with needed_by("the endpoint's ledger"):
        db = Database(url)
        if create:
            migrations.prepare(db)
        migrations.require_current(db)
    if is_new:
        print(f"made a new ledger, {path}; an endpoint with another one does not know it", file=sys.stderr)
    return db


def seconds(field: str, text: str) -> float:
    """Returns the seconds of a period such as 90d, 12h, 30m or 45s."""
    match = _PERIOD.fullmatch(text)
    if match is None:
        raise ConfigError(field, f"{text[:50]!r} is not a period such as 90d, 12h, 30m or 45s")
    return float(match[1]) * _UNITS[match[2]]


def moment(timestamp: float | None) -> str:
    """Formats a time in UTC, to the second; "" for None."""
    return "" if timestamp is None else datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M:%S")


# `c2b backup` and `c2b restore`: copy a shared endpoint's ledger, and its storage if wanted, to a folder and back.


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


# `c2b audit-log verify`, `head` and `show`: the log of actions on a shared endpoint, and its integrity.


app = typer.Typer(help="The append-only log of actions on a shared endpoint.", no_args_is_help=True)


@app.command()
def verify(
    head: Annotated[
        str | None, typer.Option(metavar="SEQ:HASH", help="A head that was kept elsewhere; the log must contain it.")
    ] = None,
    config: Config = None,
) -> None:
    """Check the chain of hashes; exit status 1 if it is broken.

    Without a head that was kept elsewhere, the check cannot detect that someone with write access to the database
    recomputed all hashes from some entry on.
    """
    from c2b_ray.endpoint.ledger import audit_log

    known_head = None if head is None else _head(head)
    db = opened(config)
    end = audit_log.head(db)
    broken = audit_log.verify(db, known_head)
    if broken is not None:
        show.line(f"broken at entry {broken.seq}: {broken.reason}")
        raise typer.Exit(1)
    contains = "" if known_head is None else f"; it contains {known_head.seq}:{known_head.hash[:12]}…"
    entries = words.plural(end.seq, "entry", "entries")
    show.line(f"the chain of {entries} is intact{contains}")
    show.line(f"keep this head elsewhere: {end.seq}:{end.hash}")


@app.command()
def head(config: Config = None) -> None:
    """Print the end of the log, SEQ:HASH; keep it where nobody who can change the database can change it."""
    from c2b_ray.endpoint.ledger import audit_log

    end = audit_log.head(opened(config))
    print(f"{end.seq}:{end.hash}")


@app.command("show")
def show_(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The number of latest entries.")] = 50,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Print the latest entries, the newest first."""
    from c2b_ray.endpoint.ledger import audit_log

    db = opened(config)
    entries, total = audit_log.page(db, limit=limit), audit_log.head(db).seq
    if as_json:
        show.print_json([vars(entry) for entry in entries])
        return
    table = Table()
    for column in ("entry", "at (UTC)", "who", "what", "of tenant", "to", "more"):
        table.add_column(column, overflow="fold")
    for entry in entries:
        cells = (entry.actor, entry.action, entry.tenant_id or "", entry.subject or "", entry.data)
        table.add_row(str(entry.seq), moment(entry.at), *map(escape, cells))
    show.out().print(table)
    if len(entries) < total:
        show.line(f"the latest {words.count(len(entries))} of {words.plural(total, 'entry', 'entries')}; --limit N")


def _head(text: str) -> Head:
    from c2b_ray.endpoint.ledger import audit_log

    match = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text)
    if match is None:
        raise ConfigError("head", f"{text[:100]!r} is not SEQ:HASH, as c2b audit-log head prints it")
    return audit_log.Head(int(match[1]), match[2])
