"""`c2b clip-bias`: measures how biased CLIP models are, and whether models built on them inherit the bias."""

from __future__ import annotations

from typing import Annotated

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.audit import Json, Via, show_run
from c2b_ray.cli.session import Placement, session
from c2b_ray.cli.tracking import Log, log_run, trackers
from c2b_ray.errors import ConfigError


def clip_bias(
    file: Annotated[str | None, typer.Argument(metavar="CLIP_BIAS.yaml", help="The file of the run.")] = None,
    out: Annotated[str | None, typer.Option(help="The run directory. Default: runs/clip-bias-<id>.")] = None,
    via: Via = "auto",
    placement: Placement = None,
    reuse: Annotated[
        str | None, typer.Option(metavar="RUN", help="An earlier run, whose embeddings are reused.")
    ] = None,
    log: Log = None,
    as_json: Json = False,
    print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of such a file and stop.")] = False,
) -> None:
    """Measure the social bias of CLIP models, globally and locally, and whether it transfers downstream."""
    if print_schema:
        from c2b_ray.audits.clip_bias.config import ClipBiasConfig

        show.schema(ClipBiasConfig)
        return
    if file is None:
        raise ConfigError("", "name a file; c2b clip-bias --print-schema shows what it holds")
    from c2b_ray.audits.clip_bias.audit import measure
    from c2b_ray.audits.clip_bias.config_file import read_clip_bias_config

    logs = trackers(log)
    with progress.shown() as bar:
        run = measure(read_clip_bias_config(file), out, session(via, placement, bar), reuse)
    show_run(run, as_json)
    log_run(run, logs)
