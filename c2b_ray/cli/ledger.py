"""Commands of a shared endpoint's operators: `c2b audit-log`, `backup`, `restore`, `tenants` and `keys`.

They read and write the ledger directly, so that they can create the first key.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.markup import escape
from rich.table import Table

from c2b_ray.cli import show
from c2b_ray.errors import ConfigError, InputError
from c2b_ray.extras import needed_by
from c2b_ray.report import words
from c2b_ray.text import visible

if TYPE_CHECKING:
    from c2b_ray.endpoint.ledger.audit_log import Head
    from c2b_ray.endpoint.ledger.database import Database
    from c2b_ray.endpoint.ledger.tenants import Key, NewKey


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


# `c2b tenants list` and `set`: lists and changes an endpoint's tenants, their weights and quotas, for operators.


tenants_app = typer.Typer(help="Tenants of a shared endpoint: their weights and quotas.", no_args_is_help=True)


@tenants_app.command("list")
def list_tenants(config: Config = None, as_json: AsJson = False) -> None:
    """List tenants, with the quotas that differ from the defaults."""
    from c2b_ray.endpoint.ledger import tenants

    rows = tenants.every(opened(config))
    if as_json:
        show.print_json([vars(tenant) for tenant in rows])
        return
    table = Table()
    for column in ("tenant", "id", "weight", "own quotas", "created"):
        table.add_column(column, overflow="fold")
    for tenant in rows:
        quotas = ", ".join(f"{name}={value}" for name, value in sorted(tenant.quotas.items()))
        table.add_row(*map(escape, (tenant.name, tenant.id, f"{tenant.weight:g}", quotas, moment(tenant.created))))
    show.out().print(table)


@tenants_app.command("set")
def set_tenant(
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="A name; a new name creates a tenant.")],
    weight: Annotated[
        float | None, typer.Option(help="Its share of the machines, relative to other tenants' weights.")
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE", help="A field of `quotas` in the endpoint's file; FIELD= restores the default."
        ),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Set a tenant's weight and quotas; others stay. Replicas of the API apply a change within two seconds."""
    from c2b_ray.endpoint.ledger import tenants

    changes = dict(map(_quota_change, quota or []))
    tenants.check_name(tenant)
    db = opened(config, create=True)
    tenant_row = tenants.by_name(db, tenant)
    quotas = {**(tenant_row.quotas if tenant_row else {}), **changes}
    quotas = {name: value for name, value in quotas.items() if value is not None}
    if tenant_row is None:
        now = tenants.create(db, tenant, weight=1.0 if weight is None else weight, quotas=quotas)
        print(f"created the tenant {tenant}", file=sys.stderr)
    else:
        changed = tenants.change(db, tenant_row.id, weight=weight, quotas=quotas if changes else None)
        assert changed is not None
        now = changed
    if as_json:
        show.print_json(vars(now))
        return
    of_tenant = ", ".join(f"{name}={value}" for name, value in sorted(now.quotas.items())) or "the endpoint's defaults"
    show.line(f"{now.name} ({now.id}): weight {now.weight:g}, quotas {of_tenant}")


def _quota_change(text: str) -> tuple[str, Any]:
    """Parses FIELD=VALUE, the value as YAML, which may be a number or a mapping; None restores the default."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ConfigError("quota", f"{text[:100]!r} is not FIELD=VALUE, such as concurrent_jobs=5")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError("quota", f"{text[:100]!r}: the value is not YAML") from error


# `c2b keys create`, `list`, `revoke` and `rotate`: the keys of a shared endpoint's tenants, for its operators.


keys_app = typer.Typer(help="Keys of a shared endpoint's tenants.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="KEY", help="A key's id, key_…, or its prefix, c2b_XXXXXXXX.")]


@keys_app.command()
def create(
    tenant: Annotated[str, typer.Option(help="The key's tenant; a new name creates a tenant.")],
    name: Annotated[str, typer.Option(help="The key's purpose, such as nightly-ci.")] = "default",
    scopes: Annotated[str, typer.Option(help="Its permissions: submit, read, admin.")] = "submit,read",
    expires: Annotated[str | None, typer.Option(help="How long it works, such as 90d.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it; it cannot be shown again, since the ledger keeps only its hash."""
    from c2b_ray.endpoint.ledger import tenants

    lifetime = None if expires is None else seconds("expires", expires)
    scope_names = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    tenants.check_name(tenant)
    tenants.check_key(name, scope_names, lifetime)
    db = opened(config, create=True)
    owner = tenants.by_name(db, tenant)
    if owner is None:
        owner = tenants.create(db, tenant)
        print(f"created the tenant {tenant}", file=sys.stderr)
    _print_new(tenants.create_key(db, owner.id, name, scope_names, lifetime), as_json)


@keys_app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Option(help="Only keys of this tenant.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List keys, including those that no longer work."""
    from c2b_ray.endpoint.ledger import tenants

    db = opened(config)
    names = {owner.id: owner.name for owner in tenants.every(db)}
    if tenant is not None and tenant not in names.values():
        raise ConfigError("tenant", f"there is no tenant {tenant[:100]!r}")
    rows = [(names[key.tenant_id], key) for key in tenants.list_keys(db, None)]
    rows = [row for row in rows if tenant in (None, row[0])]
    if as_json:
        show.print_json([_fields(key) | {"tenant": name} for name, key in rows])
        return
    table = Table()
    for column in ("key", "begins with", "tenant", "name", "scopes", "created", "last used", "ends"):
        table.add_column(column, overflow="fold")
    for name, key in rows:
        cells = (key.id, f"c2b_{key.prefix}", name, key.name, ", ".join(key.scopes), moment(key.created))
        end = f"revoked {moment(key.revoked)}" if key.revoked is not None else moment(key.expires)
        table.add_row(*map(escape, (*cells, moment(key.last_used), end)))
    show.out().print(table)


@keys_app.command()
def revoke(key: Ref, config: Config = None) -> None:
    """Revoke a key; it may work for two more seconds at replicas of the API that have just checked it.

    In a terminal it asks first: a key that was revoked cannot be brought back.
    """
    from c2b_ray.endpoint.ledger import tenants

    db = opened(config)
    existing = _existing(db, key)
    if sys.stdin.isatty():
        last_use = f"last used {moment(existing.last_used)} UTC" if existing.last_used is not None else "never used"
        typer.confirm(
            f"Revoke {existing.id}, named {visible(existing.name)}, {last_use}? No one can use it again", abort=True
        )
    revoked = tenants.revoke_key(db, None, existing.id)
    assert revoked is not None
    show.line(f"{revoked.id} was revoked at {moment(revoked.revoked)} UTC")


@keys_app.command()
def rotate(
    key: Ref,
    grace: Annotated[str, typer.Option(help="How long the old key still works.")] = "24h",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Replace a key by a new one and print it; it cannot be shown again. The old key works a while longer."""
    from c2b_ray.endpoint.ledger import tenants

    grace_s = seconds("grace", grace)
    db = opened(config)
    new = tenants.rotate_key(db, None, _existing(db, key).id, grace_s)
    assert new is not None
    _print_new(new, as_json)


def _existing(db: Database, ref: str) -> Key:
    from c2b_ray.endpoint.ledger import tenants

    prefix = ref.removeprefix("c2b_").partition("_")[0]  # a whole key is accepted, and its secret is never shown
    for key in tenants.list_keys(db, None):
        if ref == key.id or prefix == key.prefix:
            return key
    raise InputError("there is no such key; c2b keys list shows them")


def _print_new(new: NewKey, as_json: bool) -> None:
    """Prints the key alone on standard output, for scripts; not by `show`, which hides credentials."""
    if as_json:
        show.print_json(_fields(new.key) | {"text": new.text})
        return
    print(f"{new.key.id}; the key is shown only once:", file=sys.stderr, flush=True)
    print(new.text)


def _fields(key: Key) -> dict[str, Any]:
    return vars(key) | {"scopes": list(key.scopes)}
