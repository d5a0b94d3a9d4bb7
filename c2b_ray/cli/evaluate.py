"""`c2b evaluate`: compares detected biases with ground truth."""

from __future__ import annotations

from typing import Annotated

import typer

from c2b_ray.cli import progress, show
from c2b_ray.cli.audit import Json, Via, show_run
from c2b_ray.cli.session import Placement
from c2b_ray.cli.tracking import Log, log_run, trackers
from c2b_ray.errors import ConfigError


def evaluate(
    file: Annotated[str | None, typer.Argument(metavar="EVALUATE.yaml", help="The evaluation file.")] = None,
    out: Annotated[str | None, typer.Option(help="The run directory. Default: runs/evaluate-<id>.")] = None,
    via: Via = "auto",
    placement: Placement = None,
    log: Log = None,
    as_json: Json = False,
    print_schema: Annotated[bool, typer.Option(help="Print the JSON schema of an evaluation file and stop.")] = False,
) -> None:
    """Compare detected biases with ground truth, beside the baseline B2T; if interrupted, run it again to resume."""
    if print_schema:
        from c2b_ray.audits.evaluate.config import EvaluateConfig

        show.schema(EvaluateConfig)
        return
    if file is None:
        raise ConfigError("", "name an evaluation file; c2b evaluate --print-schema shows what it holds")
    from c2b_ray.audits.evaluate.evaluate import evaluate as run_evaluate

    logs = trackers(log)
    with progress.shown() as bar:
        run = run_evaluate(file, out, via, bar, placement)
    show_run(run, as_json)
    log_run(run, logs)
