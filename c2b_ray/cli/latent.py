"""`c2b latent`: searches a generator's latent space for unknown directions that change the classifier's answer."""

from __future__ import annotations

from typing import Annotated

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.audit import Json, show_run
from c2b_ray.cli.session import Placement, session
from c2b_ray.cli.tracking import Log, log_run, trackers
from c2b_ray.errors import ConfigError


def latent(
    file: Annotated[str | None, typer.Argument(metavar="LATENT.yaml", help="The file of the search.")] = None,
    out: Annotated[str | None, typer.Option(help="The run directory. Default: runs/latent-<id>.")] = None,
    via: Annotated[
        str,
        typer.Option(help="Where searches run: here (this process) or actors (one Ray task each); auto: here if few."),
    ] = "auto",
    placement: Placement = None,
    log: Log = None,
    as_json: Json = False,
    print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of such a file and stop.")] = False,
) -> None:
    """Search a generator's latent space for directions that bias a classifier."""
    if print_schema:
        from c2b_ray.config.latent import LatentConfig

        show.schema(LatentConfig)
        return
    if file is None:
        raise ConfigError("", "name a file; c2b latent --print-schema shows what it holds")
    from c2b_ray.audits.latent.audit import find_directions
    from c2b_ray.config.latent_file import read_latent_config

    logs = trackers(log)
    with progress.shown() as bar:
        run = find_directions(read_latent_config(file), out, session(via, placement, bar))
    show_run(run, as_json)
    log_run(run, logs)
