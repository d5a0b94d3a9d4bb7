"""`c2b prompts`: natural prompts that expose a text-to-image model's hidden bias."""

from __future__ import annotations

from typing import Annotated

import typer

from c2b_ray.audits.audit import audit_named
from c2b_ray.cli import progress, show
from c2b_ray.cli.audit import Json, Via
from c2b_ray.cli.audit_command import command_of
from c2b_ray.cli.progress import RUN, Placement, RunsByDefault, session

app = typer.Typer(
    help="Find natural prompts that expose a text-to-image model's hidden bias.", no_args_is_help=True,
    cls=RunsByDefault,
)  # fmt: skip


app.command(RUN)(command_of(audit_named("prompts")))


@app.command()
def heads(
    file: Annotated[str, typer.Argument(metavar="PROMPTS.yaml", help="The prompts file.")],
    out: Annotated[str, typer.Option(help="The folder of the heads; name it as `heads.files` of other runs.")],
    via: Via = "auto",
    placement: Placement = None,
    as_json: Json = False,
) -> None:
    """Train linear heads on the generators' activations, and print their accuracy at each denoising step."""
    from c2b_ray.audits.prompts.config import read_prompts_config
    from c2b_ray.audits.prompts.heads import heads_alone
    from c2b_ray.audits.prompts.summary import heads_summary

    with progress.shown() as bar:
        table = heads_alone(read_prompts_config(file), out, session(via, placement, bar))
    show.summary(heads_summary(table), as_json)
