"""`c2b models`: the schemes of model specs, and what is read from where for one of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from c2b_ray.cli import show
from c2b_ray.errors import ConfigError, nearest

if TYPE_CHECKING:
    from c2b_ray.models.spec_options import SchemeOptions


def models(
    scheme: Annotated[
        str | None,
        typer.Argument(metavar="[SCHEME]", help="A scheme such as onnx: what is read from where, its options."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the schemes of model specs by role, and the world's models; or what is read from where for one scheme."""
    from c2b_ray.models.catalog import schemes
    from c2b_ray.world.zoo import names

    schemes_of_role = schemes()
    if scheme is not None:
        _scheme(scheme.partition(":")[0], schemes_of_role, as_json)
        return
    world = [f"world:{name}" for name in names()]
    if as_json:
        show.print_json({"schemes": schemes_of_role, "world": world})
        return
    width = max(map(len, schemes_of_role)) + 2
    for role, names_of_role in schemes_of_role.items():
        print(f"{role:<{width}}{', '.join(f'{name}:…' for name in names_of_role)}")
    print("\n".join(["", "the embedded world:", *(f"  {name}" for name in world)]))
    print("\nc2b models SCHEME, such as c2b models onnx, says what is read from where.")


def _scheme(scheme: str, schemes_of_role: dict[str, list[str]], as_json: bool) -> None:
    from c2b_ray.models.spec_options import TABLES

    roles = [role for role, names in schemes_of_role.items() if scheme in names]
    if not roles:
        all_schemes = {name for names in schemes_of_role.values() for name in names}
        raise ConfigError("SCHEME", f"no role has the scheme {scheme!r}; {nearest(scheme, all_schemes)}")
    tables = {role: TABLES.get((role, scheme)) for role in roles}
    if as_json:
        show.print_json({role: None if table is None else asdict(table) for role, table in tables.items()})
        return
    for role, table in tables.items():
        show.line(f"{role} {scheme}:…")
        if table is None:
            show.line("  nothing more is listed; an unknown option is refused, with those that are known")
        else:
            _table(table)
        show.line("")


def _table(table: SchemeOptions) -> None:
    if table.reads:
        show.line("  what is read from where, in this order:")
        width = max(len(setting) for setting, _, _ in table.reads) + 2
        for setting, order, otherwise in table.reads:
            show.line(f"    {setting:<{width}}{order}; if nothing states it: {otherwise}")
    if table.options:
        show.line("  options:")
        width = max(map(len, table.options)) + 3
        for name, meaning in table.options.items():
            show.line(f"    {name + '=':<{width}}{meaning}")
    for refused in table.refuses:
        show.line(f"  refused: {refused}")
