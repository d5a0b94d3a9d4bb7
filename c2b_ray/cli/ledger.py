"""The ledger for operators' commands, and the formats of ids and times on the command line."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from c2b_ray.errors import ConfigError

if TYPE_CHECKING:
    from c2b_ray.endpoint.ledger.database import Database

Config = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="ENDPOINT.yaml",
        help="The endpoint's file. Default: an endpoint in the folder c2b-endpoint.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PERIOD = re.compile(rf"(\d{{1,9}})([{''.join(_UNITS)}])")


def opened(config: str | None, *, create: bool = False) -> Database:
    """Opens the endpoint's ledger, which must be at this version's revision; `create`: creates missing tables.

    ConfigError for a missing database file, or a word where one is created: in a wrong folder, no endpoint knows it.
    """
    from c2b_ray.config.endpoint import read_endpoint
    from c2b_ray.endpoint.ledger import migrations
    from c2b_ray.endpoint.ledger.database import Database
    from c2b_ray.extras import needed_by

    url = read_endpoint(config).database_url
    path = url.removeprefix("sqlite:///")
    is_new = path != url and not Path(path).is_file()
    if is_new and not create:
        raise ConfigError("database", f"{path}: there is no ledger; name the endpoint's file with --config")
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


def moment(at: float | None) -> str:
    """Formats a time in UTC, to the second; "" for None."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
