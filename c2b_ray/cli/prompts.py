"""`c2b prompts`: natural prompts that expose a text-to-image model's hidden bias."""

from __future__ import annotations

from typing import Annotated

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.audit import Json, Via, show_run
from c2b_ray.cli.session import RUN, Placement, RunsByDefault, session
from c2b_ray.cli.tracking import Log, log_run, trackers
from c2b_ray.errors import ConfigError
from c2b_ray.report import words
from c2b_ray.report.summary import Column, Summary

app = typer.Typer(
    help="Find natural prompts that expose a text-to-image model's hidden bias.", no_args_is_help=True,
    cls=RunsByDefault,
)  # fmt: skip


@app.command(RUN)
def run(
    file: Annotated[str | None, typer.Argument(metavar="PROMPTS.yaml", help="The prompts file.")] = None,
    out: Annotated[str | None, typer.Option(help="The run directory. Default: runs/prompts-<id>.")] = None,
    via: Via = "auto",
    placement: Placement = None,
    log: Log = None,
    as_json: Json = False,
    estimate: Annotated[
        bool, typer.Option("--estimate", "--dry-run", help="Print the most images that each part generates, and stop.")
    ] = False,
    print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of a prompts file and stop.")] = False,
) -> None:
    """Search for prompts that bring about a value without naming it; `c2b prompts PROMPTS.yaml` is enough."""
    if print_schema:
        from c2b_ray.audits.prompts.config import PromptsConfig

        show.schema(PromptsConfig)
        return
    if file is None:
        raise ConfigError("", "name a prompts file; c2b prompts --print-schema shows what it holds")
    if estimate:
        _show_estimate(file, as_json)
        return
    from c2b_ray.audits.prompts.audit import find
    from c2b_ray.audits.prompts.config import read_prompts_config

    logs = trackers(log)
    with progress.shown() as bar:
        result = find(read_prompts_config(file), out, session(via, placement, bar))
    show_run(result, as_json)
    log_run(result, logs)


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
    from c2b_ray.audits.prompts.report.summary import heads_summary

    with progress.shown() as bar:
        table = heads_alone(read_prompts_config(file), out, session(via, placement, bar))
    show.summary(heads_summary(table), as_json)


def _show_estimate(file: str, as_json: bool) -> None:
    from c2b_ray.audits.prompts.config import read_prompts_config
    from c2b_ray.audits.prompts.preflight import checked, images_by_part

    config = checked(read_prompts_config(file), "auto")
    parts = images_by_part(config)
    columns = [Column("part"), Column("most images", number=True)]
    rows = [(name, words.count(count)) for name, count in parts.items()]
    images = words.plural(sum(parts.values()), "image")
    reads = "; a search reads activations, which cost less than images" if config.guide == "heads" else ""
    total = f"At most {images}{reads}."
    counts = {"images_at_most": parts, "total": sum(parts.values())}
    show.summary(Summary("Images to generate", columns, rows, [""] * len(rows), [total], to_json=counts), as_json)
