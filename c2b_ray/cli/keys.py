"""`c2b keys create`, `list`, `revoke` and `rotate`: the keys of a shared endpoint's tenants, for its operators.

They write to the ledger directly, so that they can create the first key.
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
from c2b_ray.text import visible

if TYPE_CHECKING:
    from c2b_ray.endpoint.ledger.database import Database
    from c2b_ray.endpoint.ledger.tenants import Key, NewKey

app = typer.Typer(help="Keys of a shared endpoint's tenants.", no_args_is_help=True)

Ref = Annotated[str, typer.Argument(metavar="KEY", help="A key's id, key_…, or its prefix, c2b_XXXXXXXX.")]


@app.command()
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


@app.command("list")
def list_(
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
        table.add_row(*map(escape, (*cells, moment(key.last_used), _end(key))))
    show.out().print(table)


@app.command()
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


@app.command()
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


def _end(key: Key) -> str:
    return f"revoked {moment(key.revoked)}" if key.revoked is not None else moment(key.expires)
