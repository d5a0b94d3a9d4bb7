"""The trackers that runs are logged to, by the text of `--log`: `mlflow:URI|EXPERIMENT` or `wandb:ENTITY/PROJECT`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Protocol

from c2b_ray.audits.gate import Check
from c2b_ray.audits.tracking.record import Record, record
from c2b_ray.errors import ConfigError, nearest
from c2b_ray.extras import needed_by
from c2b_ray.storage.run import Run, load_run
from c2b_ray.text import without_credentials

OPTION = "--log"


class Tracker(Protocol):
    """A tracker that runs are logged to."""

    def log(self, record: Record) -> str:
        """Logs a run, or again what was logged of it before; returns where it is to be seen. Raises ServiceError where
        the tracker refuses it or does not answer."""
        ...


TRACKERS: Mapping[str, str] = MappingProxyType(
    {"mlflow": "c2b_ray.audits.tracking.mlflow:connect", "wandb": "c2b_ray.audits.tracking.wandb:connect"}
)
"""A scheme → its function, (the text behind the colon) → `Tracker`."""


def tracker(to: str) -> Tracker:
    """Returns the tracker that a text of `--log` names, connected as far as it can be.

    Raises ConfigError for a text of another form, InputError for a missing package, ServiceError where the tracker does
    not answer.
    """
    scheme, colon, name = to.partition(":")
    if scheme not in TRACKERS or not colon:
        hint = "; write mlflow:URI|EXPERIMENT or wandb:PROJECT"
        raise ConfigError(OPTION, f"{without_credentials(to)!r} is no tracker; {nearest(scheme, TRACKERS)}{hint}")
    with needed_by(f"{OPTION} {scheme}"):
        connect: Callable[[str], Tracker] = resolve_name(TRACKERS[scheme])
        return connect(name)


def log(run: str | Path | Run, to: str | Tracker, checks: Sequence[Check] = ()) -> str:
    """Logs a finished run: its settings, numbers, table, report, and the checks of gates; returns where it is to be
    seen.

    `to`: as for `tracker`. A run that was logged there before is brought up to date. Raises RunError for a run that is
    not finished, and the errors of `tracker` and `Tracker.log`.
    """
    loaded = run if isinstance(run, Run) else load_run(run)
    connected = tracker(to) if isinstance(to, str) else to
    return connected.log(record(loaded, checks))
