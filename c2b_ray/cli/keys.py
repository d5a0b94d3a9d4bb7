"""`c2b keys create`, `list`, `revoke` and `rotate`: the keys of a shared endpoint's tenants, for its operators.

They write to the ledger itself, so that the first key can be made before anybody has one.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from c2b_ray.cli import show
from c2b_ray.cli.ledger import AsJson, Config, moment, opened, seconds
from c2b_ray.errors import ConfigError, InputError

if TYPE_CHECKING:
    from c2b_ray.endpoint.ledger.database import Database
    from c2b_ray.endpoint.ledger.keys import Key, NewKey

app = typer.Typer(help="Keys of a shared endpoint's tenants.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="KEY", help="A key's id, key_…, or its prefix, c2b_XXXXXXXX.")]


@app.command()
def create(
    tenant: Annotated[str, typer.Option(help="Whose key it is; a tenant of a new name is made.")],
    name: Annotated[str, typer.Option(help="What it is for, such as nightly-ci.")] = "default",
    scopes: Annotated[str, typer.Option(help="What it may do: submit, read, admin.")] = "submit,read",
    expires: Annotated[str | None, typer.Option(help="After which time it stops working, such as 90d.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print it, this once: the ledger keeps only its hash."""
    from c2b_ray.endpoint.ledger import keys, tenants

    lasts = None if expires is None else seconds("expires", expires)
    wanted = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    tenants.check_name(tenant)
    keys.check(name, wanted, lasts)
    db = opened(config, create=True)
    whose = tenants.by_name(db, tenant)
    if whose is None:
        whose = tenants.create(db, tenant)
        print(f"the tenant {tenant} is new", file=sys.stderr)
    _print_new(keys.create(db, whose.id, name, wanted, lasts), as_json)


@app.command("list")
def list_(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show keys, also those that work no more."""
    from c2b_ray.endpoint.ledger import keys, tenants

    db = opened(config)
    names = {whose.id: whose.name for whose in tenants.every(db)}
    if tenant is not None and tenant not in names.values():
        raise ConfigError("tenant", f"there is no tenant {tenant[:100]!r}")
    rows = [(names[key.tenant_id], key) for key in keys.listed(db, None)]
    rows = [row for row in rows if tenant in (None, row[0])]
    if as_json:
        show.print_json([_fields(key) | {"tenant": name} for name, key in rows])
        return
    table = Table()
    for column in ("key", "begins with", "tenant", "name", "scopes", "made", "last used", "stops"):
        table.add_column(column, overflow="fold")
    for name, key in rows:
        cells = (key.id, f"c2b_{key.prefix}", name, key.name, ", ".join(key.scopes), moment(key.created))
        table.add_row(*map(escape, (*cells, moment(key.last_used), _end(key))))
    show.out().print(table)


@app.command()
def revoke(key: Ref, config: Config = None) -> None:
    """End a key; replicas of the API that have just seen it honour this within two seconds."""
    from c2b_ray.endpoint.ledger import keys

    db = opened(config)
    revoked = keys.revoke(db, None, _existing(db, key).id)
    assert revoked is not None
    show.line(f"{revoked.id} works no more, since {moment(revoked.revoked)} UTC")


@app.command()
def rotate(
    key: Ref,
    grace: Annotated[str, typer.Option(help="How long the old one still works.")] = "24h",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make a key in the place of another, which works for a while longer; print the new one, this once."""
    from c2b_ray.endpoint.ledger import keys

    lasts = seconds("grace", grace)
    db = opened(config)
    new = keys.rotate(db, None, _existing(db, key).id, lasts)
    assert new is not None
    _print_new(new, as_json)


def _existing(db: Database, ref: str) -> Key:
    from c2b_ray.endpoint.ledger import keys

    prefix = ref.removeprefix("c2b_").partition("_")[0]  # a whole key, too: nothing of its secret is shown again
    for key in keys.listed(db, None):
        if ref == key.id or prefix == key.prefix:
            return key
    raise InputError("there is no such key; c2b keys list shows them")


def _print_new(new: NewKey, as_json: bool) -> None:
    """The key alone on standard output, for a script to keep; not through a console, which hides what looks like it."""
    if as_json:
        show.print_json(_fields(new.key) | {"text": new.text})
        return
    print(f"{new.key.id}; it is shown this once:", file=sys.stderr, flush=True)
    print(new.text)


def _fields(key: Key) -> dict[str, Any]:
    return vars(key) | {"scopes": list(key.scopes)}


def _end(key: Key) -> str:
    return f"revoked {moment(key.revoked)}" if key.revoked is not None else moment(key.expires)
