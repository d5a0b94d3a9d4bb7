"""The tables of the ledger, and the rows of `jobs` as dataclasses. `migrations` changes a database between revisions.

Ids are random texts with a prefix (job_…, key_…, tenant_…). Times are seconds since 1970 in UTC, by the database's
clock. A day is the text YYYY-MM-DD, in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from c2b_ray.errors import C2BError, InputError

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_NO, _ZERO = text("false"), text("0")
_COUNTED = BigInteger().with_variant(Integer, "sqlite")
"""A key that the database counts up; SQLite does so for INTEGER only."""

tenants = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("weight", Double, nullable=False, server_default=text("1")),
    Column("quotas", JSON, nullable=False),
    Column("created", Double, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False, index=True),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False, unique=True),
    Column("hash", Text, nullable=False),
    Column("scopes", JSON, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double),
    Column("revoked", Double),
    Column("last_used", Double),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("key_id", Text),
    Column("kind", Text, nullable=False),
    Column("name", Text),
    Column("config", JSON, nullable=False),
    Column("resolved", JSON, nullable=False),
    Column("state", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("started", Double),
    Column("ended", Double),
    Column("stage", Text),
    Column("done", BigInteger),
    Column("total", BigInteger),
    Column("rate", Double),
    Column("seconds_left", Double),
    Column("images", BigInteger, nullable=False, server_default=_ZERO),
    Column("model_seconds", Double, nullable=False, server_default=_ZERO),
    Column("bytes", BigInteger, nullable=False, server_default=_ZERO),
    Column("attempt", Integer, nullable=False, server_default=_ZERO),
    Column("slices", Integer, nullable=False, server_default=_ZERO),
    Column("fence", BigInteger, nullable=False, server_default=_ZERO),
    Column("owner", Text),
    Column("lease_until", Double),
    Column("lease_seconds", Double),
    Column("granted", Double),
    Column("yield_requested", Boolean, nullable=False, server_default=_NO),
    Column("cancel_requested", Boolean, nullable=False, server_default=_NO),
    Column("not_before", Double),
    Column("failure", JSON(none_as_null=True)),
    Column("run_path", Text),
    Column("classifier_hash", Text),
    Column("deleted", Double),
)
Index("ix_jobs_tenant_created", jobs.c.tenant_id, jobs.c.created, jobs.c.id)
Index("ix_jobs_tenant_classifier", jobs.c.tenant_id, jobs.c.classifier_hash, jobs.c.created)
OPEN = text("state IN ('queued', 'running')")
Index("ix_jobs_open", jobs.c.tenant_id, jobs.c.state, postgresql_where=OPEN, sqlite_where=OPEN)
"""An index of the few jobs that wait or run, which runners and the dispatcher read each second. A database uses such an
index only if its condition stands literally in the query, so queries add `OPEN` to their conditions."""

STORED = text("bytes > 0")
Index("ix_jobs_stored", jobs.c.tenant_id, jobs.c.bytes, postgresql_where=STORED, sqlite_where=STORED)

job_classifiers = Table(
    "job_classifiers",
    metadata,
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("hash", Text, nullable=False, index=True),
    PrimaryKeyConstraint("job_id", "hash"),
)
"""The hash of each classifier of a job that has several; `jobs.classifier_hash` is that of all of them."""

idempotency = Table(
    "idempotency",
    metadata,
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("body_hash", Text, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("created", Double, nullable=False, index=True),
    PrimaryKeyConstraint("tenant_id", "key"),
)

events = Table(
    "events",
    metadata,
    Column("id", _COUNTED, primary_key=True, autoincrement=True),
    Column("job_id", ForeignKey("jobs.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("data", JSON, nullable=False),
    Column("at", Double, nullable=False),
    Index("ix_events_job_id_id", "job_id", "id"),
    sqlite_autoincrement=True,
)

usage = Table(
    "usage",
    metadata,
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("key_id", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("day", Text, nullable=False),
    Column("images", BigInteger, nullable=False, server_default=_ZERO),
    Column("model_seconds", Double, nullable=False, server_default=_ZERO),
    Column("requests", BigInteger, nullable=False, server_default=_ZERO),
    PrimaryKeyConstraint("tenant_id", "day", "model", "key_id"),
)

buckets = Table(
    "buckets",
    metadata,
    Column("name", Text, primary_key=True),
    Column("tokens", Double, nullable=False),
    Column("updated", Double, nullable=False),
)

ended_sessions = Table(
    "ended_sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("until", Double, nullable=False),
)

uploads = Table(
    "uploads",
    metadata,
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("sha256", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("name", Text),
    Column("meta", JSON, nullable=False),
    Column("created", Double, nullable=False),
    PrimaryKeyConstraint("tenant_id", "sha256"),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("until", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("fence", BigInteger, nullable=False),
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False, index=True),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("created", Double, nullable=False),
)

_PENDING = text("state = 'pending'")
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("webhook_id", ForeignKey("webhooks.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("job_id", Text, nullable=False, index=True),
    Column("event_id", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=_ZERO),
    Column("next_at", Double, nullable=False),
    Column("last_error", Text),
    Index("ix_deliveries_pending", "next_at", postgresql_where=_PENDING, sqlite_where=_PENDING),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("tenant_id", Text),
    Column("action", Text, nullable=False),
    Column("subject", Text),
    Column("data", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Index("ix_audit_log_tenant", "tenant_id", "seq"),
)

audit_head = Table(
    "audit_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
)
"""One row: the head of the audit log. Its lock makes transactions append one after the other."""


# Jobs as the ledger returns them, and the values that its functions take.


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


COLUMNS = [jobs.c[column.name] for column in fields(Job)]
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
    """A page of jobs. `next`: the cursor of the next page, a value of the column that the list is sorted by and an id;
    None at the end."""

    items: list[Job]
    next: tuple[Any, str] | None
