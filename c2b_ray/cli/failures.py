"""`c2b failures`: the captions that make a classifier fail, and how often."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.audit import Json, Via, show_run
from c2b_ray.cli.session import RUN, Placement, RunsByDefault, session
from c2b_ray.cli.tracking import Log, log_run, trackers
from c2b_ray.errors import ConfigError

if TYPE_CHECKING:
    from c2b_ray.audits.kit.costs import Cost

app = typer.Typer(help="Find the captions that make a classifier fail.", no_args_is_help=True, cls=RunsByDefault)


@app.command(RUN)
def run(
    file: Annotated[str | None, typer.Argument(metavar="FAILURES.yaml", help="The failures file.")] = None,
    out: Annotated[str | None, typer.Option(help="The run directory. Default: runs/failures-<id>.")] = None,
    via: Via = "auto",
    placement: Placement = None,
    log: Log = None,
    as_json: Json = False,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", "--dry-run", help="Estimate the cost by a short trial of its models, and stop."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Start at once, without an estimate of the cost.")] = False,
    print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of a failures file and stop.")] = False,
) -> None:
    """Find the captions that make a classifier fail; `c2b failures FAILURES.yaml` is enough."""
    if print_schema:
        from c2b_ray.audits.failures.config import FailuresConfig

        show.schema(FailuresConfig)
        return
    if file is None:
        raise ConfigError("", "name a failures file; c2b failures --print-schema shows what it holds")
    if estimate:
        _show_estimate(file, via, as_json)
        return
    costs = _show_estimate(file, via, as_json) if not yes and not as_json else []
    from c2b_ray.audits.failures.audit import find
    from c2b_ray.audits.failures.config import read_failures_config

    logs = trackers(log)
    with progress.shown() as bar:
        result = find(read_failures_config(file), out, session(via, placement, bar), costs)
    show_run(result, as_json)
    log_run(result, logs)


@app.command()
def ask(
    directory: Annotated[str, typer.Argument(metavar="RUN", help="The directory of a finished run.")],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="A caption that names a label: a fly on a leaf.")],
    draws: Annotated[int, typer.Option(min=100, help="The most images, those of the baseline included.")] = 20_000,
    target: Annotated[str | None, typer.Option(help="A wrong label to test for, besides any failure.")] = None,
    via: Via = "auto",
    as_json: Json = False,
) -> None:
    """Test whether the classifier fails more often on images of your sentence; the result is added to the run."""
    from c2b_ray.audits.failures.ask import ask as ask_run
    from c2b_ray.audits.failures.report.transfers import BEFORE, answer_lines

    with progress.shown() as bar:
        answered = ask_run(directory, sentence, draws, target, via, bar)
    rows = [row for row in answered.rows.to_pylist() if row["stage"] == "confirmation"]
    if as_json:
        show.print_json(rows)
        return
    if not answered.is_new:
        show.line(BEFORE)
    for text in answer_lines(rows):
        show.line(text)


def _show_estimate(file: str, via: str, as_json: bool) -> list[Cost]:
    from c2b_ray.audits.failures.estimate import estimate

    costs = estimate(file, via)
    if as_json:
        show.print_json([{**asdict(cost), "seconds": cost.seconds} for cost in costs])
    else:
        show.out().print(show.cost_table(costs))
    return costs
