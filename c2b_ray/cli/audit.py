"""`c2b audit`, `c2b report` and `c2b demo`: run audits and show their reports."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.session import Placement, session
from c2b_ray.errors import ConfigError
from c2b_ray.store.run import Run

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Via = Annotated[
    str,
    typer.Option(
        help="Where models run: here (this process, without Ray), actors (of Ray Data) or serve (Ray Serve); "
        "auto: here for small runs, else actors."
    ),
]


def audit(
    file: Annotated[str | None, typer.Argument(metavar="AUDIT.yaml", help="The audit file.")] = None,
    out: Annotated[str | None, typer.Option(help="The run directory. Default: runs/c2b-<id>.")] = None,
    via: Via = "auto",
    placement: Placement = None,
    as_json: Json = False,
    dry_run: Annotated[
        bool,
        typer.Option("--estimate", "--dry-run", help="Estimate the cost by a short trial of its models, and stop."),
    ] = False,
    print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of an audit file and stop.")] = False,
) -> None:
    """Audit a classifier: find the attributes of an image that make it better or worse."""
    if print_schema:
        from c2b_ray.config import AuditConfig

        show.schema(AuditConfig)
        return
    if file is None:
        raise ConfigError("", "name an audit file; c2b audit --print-schema shows what it holds")
    if dry_run:
        show_estimate(file, via, as_json)
        return
    from c2b_ray.audits.c2b.audit import audit as run_audit

    with progress.shown() as bar:
        run = run_audit(file, out, via, bar, placement)
    show_run(run, as_json)


def show_estimate(file: str, via: str, as_json: bool) -> None:
    from c2b_ray.audits.c2b.estimate import estimate

    costs = estimate(file, via)
    if as_json:
        show.print_json([{**asdict(cost), "seconds": cost.seconds} for cost in costs])
    else:
        show.out().print(show.cost_table(costs))
        _show_facts(file)


def _show_facts(file: str) -> None:
    """Prints the settings of the classifiers, and where each was read; most have told them to the estimate already."""
    from c2b_ray.cli.check import fact_line
    from c2b_ray.config import read_audit
    from c2b_ray.models import catalog

    for name, spec in read_audit(file).specs.items():
        for fact in catalog.described("classifier", spec).facts:
            show.line(f"{name}: {fact_line(fact)}")


def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run directory.")],
    as_json: Json = False,
) -> None:
    """Write a run's report again and show its findings."""
    from c2b_ray.commands.runs import write_report
    from c2b_ray.store.run import load_run

    loaded = load_run(run)
    write_report(loaded)
    show_run(loaded, as_json)


def demo(
    out: Annotated[Path, typer.Option(help="The directory for images, index and run.")] = Path("runs/demo"),
    images: Annotated[int, typer.Option(min=100, help="The number of scenes to render and index.")] = 5000,
    via: Via = "auto",
    placement: Placement = None,
    as_json: Json = False,
) -> None:
    """Audit planted classifiers of the embedded world, from rendering its images to the report."""
    from c2b_ray.commands.demo import demo as run_demo

    with progress.shown() as bar:
        run = run_demo(out, images, session(via, placement, bar))
    show_run(run, as_json)


def show_run(run: Run, as_json: bool) -> None:
    from c2b_ray.commands.runs import summary

    show.summary(summary(run), as_json)
