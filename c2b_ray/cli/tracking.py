"""`--log` of commands that make or judge a run: connects to trackers before the work, and logs the run after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from c2b_ray.cli import show
from c2b_ray.errors import ServiceError
from c2b_ray.storage.run import Run

if TYPE_CHECKING:
    from c2b_ray.audits.gate import Check
    from c2b_ray.audits.tracking import Tracker

Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="TRACKER",
        help="Log the finished run, with its numbers, table and report: 'mlflow:URI|EXPERIMENT' or "
        "wandb:ENTITY/PROJECT. Repeatable.",
    ),
]


def trackers(to: Sequence[str] | None) -> list[Tracker]:
    """Connects to the trackers of `--log`, so that a wrong name or a missing package is known before the work."""
    if not to:
        return []
    from c2b_ray.audits.tracking import tracker

    return [tracker(name) for name in to]


def log_run(run: Run, to: Sequence[Tracker], checks: Sequence[Check] = ()) -> None:
    """Logs a run and says where, on standard error. Raises ServiceError, which says how to log it again."""
    if not to:
        return
    from c2b_ray.audits.tracking import log

    for target in to:
        try:
            show.note(f"logged: {log(run, target, checks)}")
        except ServiceError as error:
            raise ServiceError(f"{error}; the run is whole: c2b report {run.path} --log … logs it again") from error
