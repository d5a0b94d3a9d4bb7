"""The final checks of bench/endpoint_chaos.py: the ledger, the storage, and the records of its clients."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from c2b_ray.endpoint.ledger import audit_log, tables
from c2b_ray.endpoint.ledger.database import Database
from c2b_ray.endpoint.ledger.jobs import NOTE
from c2b_ray.errors import C2BError
from c2b_ray.storage.run import finished

TERMINAL = ("finished", "failed", "cancelled")
SLACK_S = 1.0


@dataclass(frozen=True)
class Check:
    """`wrong`: the cases that fail; the check passes where there are none. `of`: the number of cases."""

    name: str
    wrong: list[Any]
    of: int

    def line(self) -> str:
        report = {"check": self.name, "ok": not self.wrong, "wrong": len(self.wrong), "of": self.of}
        return json.dumps({**report, "examples": self.wrong[:5]} if self.wrong else report)


@dataclass
class Down:
    """The spans in which each API replica was down: from its kill until it answered again."""

    spans: dict[str, list[list[float]]] = field(default_factory=lambda: defaultdict(list))

    def explains(self, url: str, since: float, at: float) -> bool:
        return any(since <= end + SLACK_S and at >= begin - SLACK_S for begin, end in self.spans[url])


def of_clients(lines: list[dict[str, Any]], down: Down) -> Iterator[Check]:
    by: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        by[line["what"]].append(line)
    errors, lost = by["server_error"], by["connection"]
    bad = [one for one in errors if one["status"] != 503 or not (one["retry_after"] or "").isdecimal()]
    yield Check("5xx other than 503 with Retry-After", bad, len(errors))
    sudden = [one for one in lost if not down.explains(one["url"], one["since"], one["at"])]
    yield Check("connection lost while the replica was up", sudden, len(lost))
    for what in ("gave_up", "refused", "vanished", "unreadable"):
        yield Check(f"requests of clients: {what}", by[what], len(lines))
    ids = defaultdict(set)
    for one in by["accepted"]:
        if one["key"]:
            ids[one["key"]].add(one["id"])
    yield Check(
        "Idempotency-Keys with more than one job", [key for key, made in ids.items() if len(made) > 1], len(ids)
    )


def of_ledger(db: Database, lines: list[dict[str, Any]], rows: int, storage: str) -> Iterator[Check]:
    """`rows`: the number of images of each audit."""
    accepted = {line["id"] for line in lines if line["what"] == "accepted"}
    told = {line["id"] for line in lines if line["what"] == "cancelled"}
    with db.reading() as tx:
        jobs = {row.id: row for row in tx.execute(select(tables.jobs)).all()}
        events = tx.execute(select(tables.events.c.job_id, tables.events.c.kind, tables.events.c.data)).all()
        used = tx.execute(select(tables.usage.c.images, tables.usage.c.model_seconds)).all()
        submits = tx.execute(select(tables.audit_log.c.subject).where(tables.audit_log.c.action == "job.submit")).all()
    yield Check("accepted jobs that are lost", sorted(accepted - jobs.keys()), len(accepted))
    open_ = [(job.id, job.state) for job in jobs.values() if job.state not in TERMINAL]
    yield Check("jobs that did not end", open_, len(jobs))
    failed = [(job.id, job.attempt, job.failure) for job in jobs.values() if job.state == "failed"]
    yield Check("failed jobs", failed, len(jobs))
    unasked = [job.id for job in jobs.values() if job.state == "cancelled" and not job.cancel_requested]
    yield Check("jobs cancelled that nobody cancelled", unasked, len(jobs))
    unheard = [id_ for id_ in told if id_ in jobs and jobs[id_].state not in ("cancelled", "finished")]
    yield Check("cancellations that were accepted and lost", unheard, len(told))
    yield from _ends(jobs, events)
    yield from _storage([job for job in jobs.values() if job.state == "finished"], rows, storage)
    yield from _usage(list(jobs.values()), {event.job_id for event in events if _gave_its_run(event)}, used, rows)
    logged = Counter(row.subject for row in submits)
    odd = [id_ for id_ in jobs.keys() | logged.keys() if id_ not in jobs or logged[id_] != 1]
    yield Check("jobs without exactly one entry in the audit log", odd, len(jobs))
    broken = audit_log.verify(db)
    yield Check("breaks of the audit log", [] if broken is None else [str(broken)], audit_log.head(db).seq)


def _ends(jobs: dict[str, Any], events: Iterable[Any]) -> Iterator[Check]:
    ends: dict[str, list[str]] = {id_: [] for id_ in jobs}
    for event in events:
        if event.kind == "state" and event.data["state"] in TERMINAL:
            ends[event.job_id].append(event.data["state"])
    twice = [(id_, states) for id_, states in ends.items() if states.count("finished") > 1]
    yield Check("jobs finished twice", twice, len(jobs))
    other = [(id_, states) for id_, states in ends.items() if states != [jobs[id_].state]]
    yield Check("jobs without exactly one terminal event, that of their state", other, len(jobs))


def _storage(jobs: list[Any], rows: int, storage: str) -> Iterator[Check]:
    bad: list[tuple[str, str]] = []
    for job in jobs:
        try:
            run = finished(job.run_path or str(Path(storage, "tenants", job.tenant_id, "runs", job.id)))
            images = run.predictions["image_id"].to_pylist()  # type: ignore[attr-defined]
        except C2BError as error:
            bad.append((job.id, str(error)))
            continue
        if len(images) != rows or len(set(images)) != rows:
            bad.append((job.id, f"{len(images)} rows, {len(set(images))} images, not {rows}"))
    yield Check("finished runs that are not whole (tables of run.json, each image once)", bad, len(jobs))


def _gave_its_run(event: Any) -> bool:
    return bool(event.kind == NOTE and event.data["message"] == "its run was taken over")


def _usage(jobs: list[Any], gave: set[str], used: list[Any], rows: int) -> Iterator[Check]:
    """One transaction writes the counts of a job and those of its key. An undisturbed job counts each image once; a job
    that lost its runner also counts the images that it classified again.

    `gave`: the jobs whose run a later job continues. The later job counts their images too, and no key pays twice.
    """
    sums = [sum(row.images for row in used), round(sum(row.model_seconds for row in used), 3)]
    images = sum(job.images for job in jobs if job.id not in gave)
    of_jobs = [images, round(sum(job.model_seconds for job in jobs), 3)]
    yield Check("usage of keys is not that of jobs", [] if sums == of_jobs else [{"keys": sums, "jobs": of_jobs}], 2)
    whole = [job for job in jobs if job.state == "finished" and job.fence == 1]
    wrong = [(job.id, job.images) for job in whole if job.images != rows]
    yield Check("undisturbed jobs whose images are not booked once", wrong, len(whole))
    moved = [job for job in jobs if job.state == "finished" and job.fence > 1]
    less = [(job.id, job.images, job.fence) for job in moved if not rows <= job.images <= rows * job.fence]
    yield Check(
        "disturbed jobs with fewer images booked than their run holds, or more than were ever asked", less, len(moved)
    )


def rows_of(db: Database) -> dict[str, object]:
    """Returns the ledger's numbers for the table."""
    with db.reading() as tx:
        jobs = tx.execute(select(tables.jobs)).all()
    moved = [job.images for job in jobs if job.state == "finished" and job.fence > 1]
    return {
        "jobs": len(jobs),
        "by state": dict(Counter(job.state for job in jobs)),
        "claimed more than once": sum(job.fence > 1 for job in jobs),
        "most claims of a job": max((job.fence for job in jobs), default=0),
        "images booked of disturbed finished jobs": dict(sorted(Counter(moved).items())),
    }
