"""`c2b audit-log verify`, `head` and `show`: the log of actions on a shared endpoint, and its integrity."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from c2b_ray.cli import show
from c2b_ray.cli.ledger import AsJson, Config, moment, opened
from c2b_ray.errors import ConfigError
from c2b_ray.report.kit import words

if TYPE_CHECKING:
    from c2b_ray.endpoint.ledger.audit_log import Head

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

    kept = None if head is None else _head(head)
    db = opened(config)
    end = audit_log.head(db)
    broken = audit_log.verify(db, kept)
    if broken is not None:
        show.line(f"broken at entry {broken.seq}: {broken.reason}")
        raise typer.Exit(1)
    contains = "" if kept is None else f"; it contains {kept.seq}:{kept.hash[:12]}…"
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

    entries = audit_log.page(opened(config), limit=limit)
    if as_json:
        show.print_json([vars(entry) for entry in entries])
        return
    table = Table()
    for column in ("entry", "at (UTC)", "who", "what", "of tenant", "to", "more"):
        table.add_column(column, overflow="fold")
    for entry in entries:
        who = (entry.actor, entry.action, entry.tenant_id or "", entry.subject or "", entry.data)
        table.add_row(str(entry.seq), moment(entry.at), *map(escape, who))
    show.out().print(table)


def _head(text: str) -> Head:
    from c2b_ray.endpoint.ledger import audit_log

    match = re.fullmatch(r"(\d{1,18}):([0-9a-f]{64})", text)
    if match is None:
        raise ConfigError("head", f"{text[:100]!r} is not SEQ:HASH, as c2b audit-log head prints it")
    return audit_log.Head(int(match[1]), match[2])
