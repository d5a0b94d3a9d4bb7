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
        bool,
        typer.Option(
            "--estimate",
            "--dry-run",
            help="Print the most images and minutes of each part, by a short trial, and stop.",
        ),
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
    from c2b_ray.audits.prompts.estimate import estimate

    config = read_prompts_config(file)
    cost = estimate(config)
    images, seconds = cost.images, cost.seconds
    columns = [Column("part"), Column("most images", number=True), Column("most time", number=True)]
    rows = [(name, words.count(count), f"{seconds[name] / 60:.1f} min") for name, count in images.items()]
    reads = "; a search reads activations, which cost less than images" if config.guide == "heads" else ""
    total = f"At most {words.plural(sum(images.values()), 'image')}{reads}."
    minutes = words.count(round(sum(seconds.values()) / 60))
    speed = f"At most {minutes} minutes of one process, at {cost.seconds_an_image:.2g} s an image in a short trial."
    counts = {"images_at_most": images, "total": sum(images.values()), "most_seconds": seconds}
    shown = Summary("Images to generate", columns, rows, [""] * len(rows), [total, speed], to_json=counts)
    show.summary(shown, as_json)
