"""A job as the ledger hands it out, and what goes into it. It knows no database."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from c2b_ray.endpoint.ledger import tables
from c2b_ray.errors import C2BError, InputError

State = Literal["queued", "running", "finished", "failed", "cancelled"]
OPEN: tuple[State, ...] = ("queued", "running")
ENDED: tuple[State, ...] = ("finished", "failed", "cancelled")


class FencedError(C2BError):
    """Another runner has the job, or it has ended: this one's work on it no longer counts. Stop it."""


class IdempotencyConflictError(InputError):
    """An Idempotency-Key was used before, with another body. `job_id`: the job that it was used for."""

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


@dataclass(frozen=True)
class Job:
    """A row of `jobs`. Times are seconds since 1970; counts of a stage are None before the first is known.

    `fence` grows with each claim. `attempt`: runners that died of the slice under way. `slices`: how often it yielded.
    """

    id: str
    tenant_id: str
    key_id: str | None
    kind: str
    name: str | None
    config: dict[str, Any]
    resolved: dict[str, Any]
    state: State
    created: float
    started: float | None
    ended: float | None
    stage: str | None
    done: int | None
    total: int | None
    rate: float | None
    seconds_left: float | None
    images: int
    model_seconds: float
    bytes: int
    attempt: int
    slices: int
    fence: int
    owner: str | None
    lease_until: float | None
    lease_seconds: float | None
    granted: float | None
    yield_requested: bool
    cancel_requested: bool
    not_before: float | None
    failure: dict[str, Any] | None
    run_path: str | None
    classifier_hash: str | None
    deleted: float | None

    @property
    def ended_for_good(self) -> bool:
        return self.state in ENDED


COLUMNS = [tables.jobs.c[column.name] for column in fields(Job)]
"""In the order of `Job`'s fields: `Job(*row)`."""


@dataclass(frozen=True)
class NewJob:
    """A job to submit. `config` as it was submitted, `resolved` as it will run: both JSON.

    `body_hash`: of the request's body, compared where its `idempotency_key` was used before. `images`, `models`: what
    the job is expected to ask about and to run, as far as known; quotas are checked for them.
    """

    kind: str
    config: dict[str, Any]
    resolved: dict[str, Any]
    name: str | None = None
    idempotency_key: str | None = None
    body_hash: str = ""
    images: int = 0
    models: tuple[str, ...] = ()
    not_before: float | None = None


@dataclass(frozen=True)
class Claim:
    """A job, and the number that each of its runner's commits must name."""

    job: Job
    fence: int


@dataclass(frozen=True)
class Orders:
    """The answer to a runner that renews its lease."""

    cancel: bool
    yield_: bool


@dataclass(frozen=True)
class Progress:
    """Where a run stands. `images` and `model_seconds` (by model) are what was used since the last report; `bytes` is
    what the run holds on the store now, None where that was not looked at; `advanced`: whether it gained rows there, so
    that deaths before count no more."""

    stage: str | None = None
    done: int | None = None
    total: int | None = None
    rate: float | None = None
    seconds_left: float | None = None
    images: dict[str, int] = field(default_factory=dict)
    model_seconds: dict[str, float] = field(default_factory=dict)
    bytes: int | None = None
    advanced: bool = False


@dataclass(frozen=True)
class Failure:
    """Why a job failed, as its owner reads it."""

    title: str
    detail: str = ""
    field: str | None = None
    location: str | None = None


@dataclass(frozen=True)
class Filters:
    """Which jobs a list holds; None is any."""

    state: State | None = None
    kind: str | None = None
    name: str | None = None
    classifier_hash: str | None = None


@dataclass(frozen=True)
class Page:
    """Jobs, the latest first. `next`: what to ask with for those that follow, None at the end."""

    items: list[Job]
    next: tuple[float, str] | None
