"""`c2b tenants list` and `set`: lists and changes an endpoint's tenants, their weights and quotas, for operators."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import yaml
from rich.markup import escape
from rich.table import Table

from c2b_ray.cli import show
from c2b_ray.cli.ledger import AsJson, Config, moment, opened
from c2b_ray.errors import ConfigError

app = typer.Typer(help="Tenants of a shared endpoint: their weights and quotas.", no_args_is_help=True)


@app.command("list")
def list_(config: Config = None, as_json: AsJson = False) -> None:
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


@app.command("set")
def set_(
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

    changes = dict(map(_change, quota or []))
    tenants.check_name(tenant)
    db = opened(config, create=True)
    tenant_row = tenants.by_name(db, tenant)
    quotas = {**(tenant_row.quotas if tenant_row else {}), **changes}
    quotas = {name: value for name, value in quotas.items() if value is not None}
    if tenant_row is None:
        now = tenants.create(db, tenant, weight=1.0 if weight is None else weight, quotas=quotas)
    else:
        changed = tenants.change(db, tenant_row.id, weight=weight, quotas=quotas if changes else None)
        assert changed is not None
        now = changed
    if as_json:
        show.print_json(vars(now))
        return
    of_tenant = ", ".join(f"{name}={value}" for name, value in sorted(now.quotas.items())) or "the endpoint's defaults"
    show.line(f"{now.name} ({now.id}): weight {now.weight:g}, quotas {of_tenant}")


def _change(text: str) -> tuple[str, Any]:
    """Parses FIELD=VALUE, the value as YAML, which may be a number or a mapping; None restores the default."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ConfigError("quota", f"{text[:100]!r} is not FIELD=VALUE, such as concurrent_jobs=5")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError("quota", f"{text[:100]!r}: the value is not YAML") from error
