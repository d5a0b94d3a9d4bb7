"""Jobs as the ledger returns them, and the values that its functions take. It knows no database."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from c2b_ray.endpoint.ledger import tables
from c2b_ray.errors import C2BError, InputError

State = Literal["queued", "running", "finished", "failed", "cancelled"]
ENDED: tuple[State, ...] = ("finished", "failed", "cancelled")


class FencedError(C2BError):
    """Another runner has the job, or the job has ended: this runner's work no longer counts and must stop."""


class IdempotencyConflictError(InputError):
    """An Idempotency-Key was used before, with another body. `job_id`: the job of that request."""

    def __init__(self, message: str, job_id: str) -> None:
        super().__init__(message)
        self.job_id = job_id


@dataclass(frozen=True)
class Job:
    """A row of `jobs`. Times are seconds since 1970; counts of a stage are None until the first is known.

    `fence` grows with each claim. `attempt`: the number of runners that died during the current slice. `slices`: how
    often the job yielded.
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
"""The columns in the order of `Job`'s fields: `Job(*row)`."""


@dataclass(frozen=True)
class NewJob:
    """A job to submit. `config`: as submitted; `resolved`: as it will run. Both are JSON.

    `body_hash`: the hash of the request's body; it must be equal when an `idempotency_key` is used again. `images`,
    `models`: the images that the job is expected to use and the models that it runs, as far as known, for the check of
    quotas.
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
    """A claimed job, and the fence that each commit of its runner must name."""

    job: Job
    fence: int


@dataclass(frozen=True)
class LeaseReply:
    """The answer to a runner that renews its lease: whether it should cancel the job, or yield."""

    cancel: bool
    yield_: bool


@dataclass(frozen=True)
class Progress:
    """A runner's report of its progress.

    `images` and `model_seconds`, by model: the use since the last report. `images_stage`: the stage in which the last
    of these images were answered, which may have ended. `bytes`: the size of the run on the store; None if it was not
    measured. `advanced`: whether the run gained rows on the store, which sets the count of died runners to 0.
    """

    stage: str | None = None
    done: int | None = None
    total: int | None = None
    rate: float | None = None
    seconds_left: float | None = None
    images: dict[str, int] = field(default_factory=dict)
    model_seconds: dict[str, float] = field(default_factory=dict)
    bytes: int | None = None
    advanced: bool = False
    images_stage: str | None = None


@dataclass(frozen=True)
class Failure:
    """Why a job failed, in words for its owner."""

    title: str
    detail: str = ""
    field: str | None = None
    location: str | None = None


@dataclass(frozen=True)
class Filters:
    """Filters of a list of jobs. None means any. `classifier_hash`: of one classifier of a job, or of all of them."""

    state: State | None = None
    kind: str | None = None
    name: str | None = None
    classifier_hash: str | None = None


@dataclass(frozen=True)
class Page:
    """Jobs, latest first. `next`: the cursor of the next page; None at the end."""

    items: list[Job]
    next: tuple[float, str] | None
