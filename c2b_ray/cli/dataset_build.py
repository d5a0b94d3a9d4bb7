"""`c2b dataset build` and `c2b dataset verify`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.session import Placement, session
from c2b_ray.errors import ConfigError
from c2b_ray.report.kit import words
from c2b_ray.text import visible

if TYPE_CHECKING:
    from c2b_ray.commands.dataset.build import Built

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def build(
    file: Annotated[str | None, typer.Argument(metavar="CONFIG.yaml", help="The dataset file.")] = None,
    out: Annotated[str | None, typer.Option(help="The dataset's directory, local or on s3://.")] = None,
    via: Annotated[
        str, typer.Option(help="Where models run: here, actors (of Ray) or serve; auto: here for small datasets.")
    ] = "auto",
    placement: Placement = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The port of counters for Prometheus during the build.")
    ] = None,
    as_json: Json = False,
    dry_run: Annotated[
        bool,
        typer.Option("--estimate", "--dry-run", help="Estimate the cost by a short trial of its models, and stop."),
    ] = False,
    print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of a dataset file and stop.")] = False,
) -> None:
    """Draw images of captions and keep those that a classifier fails on; if interrupted, run it again to resume."""
    if print_schema:
        from c2b_ray.config.dataset import DatasetConfig

        show.schema(DatasetConfig)
        return
    if file is not None and dry_run:
        _print_costs(file, as_json)
        return
    if file is None or out is None:
        raise ConfigError("", "name a dataset file and --out DIR; c2b dataset build --print-schema shows the fields")
    from c2b_ray.commands.dataset.build import build as run_build
    from c2b_ray.config.dataset_file import read_dataset_config

    with progress.shown() as bar:
        built = run_build(read_dataset_config(file), out, session(via, placement, bar), metrics_port)
    if as_json:
        show.print_json(asdict(built))
        return
    _tell(built)


def _tell(built: Built) -> None:
    dropped = ", ".join(f"{words.count(count)} {reason}" for reason, count in built.drops.items()) or "none"
    kept = f"{words.count(built.rows)} of {words.plural(built.draws, 'image')}"
    show.line(f"{kept} in {words.plural(built.shards, 'shard')} at {built.out}; dropped: {dropped}")
    for name, count in built.without_value.items():
        show.line(f"left out of the table, without {name}: {words.plural(count, 'row')}")
    if built.repeated["tasks"]:
        show.line(f"repeated after deaths or interrupts: {words.plural(built.repeated['tasks'], 'task')}")


def _print_costs(file: str, as_json: bool) -> None:
    from c2b_ray.commands.dataset.preflight import estimate

    costs = estimate(file)
    if as_json:
        show.print_json([{**asdict(cost), "seconds": cost.seconds} for cost in costs])
    else:
        show.out().print(show.cost_table(costs, "build"))


def verify(
    dataset: Annotated[str, typer.Argument(metavar="DIR", help="A dataset of failures, local or on s3://.")],
    as_json: Json = False,
) -> None:
    """Check that every shard matches the manifest, ids are unique and images decode; exit 1 if not."""
    from c2b_ray.commands.dataset.verify import verify as run_verify

    with progress.shown() as bar:
        verified = run_verify(dataset, bar)
    if as_json:
        show.print_json(asdict(verified))
    else:
        for line in (*verified.problems, *verified.notes):
            print(visible(line))
        result = words.plural(len(verified.problems), "problem") if verified.problems else "intact"
        rows = f"{words.plural(verified.rows, 'row')} of {words.plural(verified.draws, 'draw')}"
        show.line(f"{dataset}: {result}; {rows} in {words.plural(verified.shards, 'shard')}")
        if verified.problems:
            show.line("run the same c2b dataset build again: it rebuilds what is damaged or missing")
    if verified.problems:
        raise typer.Exit(1)
