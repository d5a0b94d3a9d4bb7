"""Ledgers for tests: one in SQLite for each test, jobs in a chosen state, and a clock that can be set."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, literal, select, update

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import jobs, migrations, running, tables, tenants, webhooks
from c2b_ray.endpoint.ledger.database import ClockWatch, Database

HOUR = 3600.0
PLENTY = Quotas(concurrent_jobs=100_000)
T = TypeVar("T")
OpenDb = Callable[[], Database]


class SetDatabase(Database):
    """A database whose clock is wrong by `skew` seconds. Time that passes is no clock that was set: `later`."""

    skew = 0.0

    def clock(self) -> ColumnElement[float]:
        return super().clock() + literal(self.skew)

    def later(self, seconds: float) -> None:
        """Lets time pass, which this process notices on its other clock, too."""
        self.skew += seconds
        self.watch = ClockWatch()


@dataclass(frozen=True)
class Member:
    """A tenant and one of its keys."""

    tenant_id: str
    key_id: str


def sqlite_url(template: Path, folder: Path) -> str:
    """Copies a ledger into a folder and returns its URL."""
    shutil.copyfile(template, folder / "ledger.db")
    return f"sqlite:///{folder / 'ledger.db'}"


def new_template(folder: Path) -> Path:
    """Creates an empty ledger in SQLite; a copy takes a tenth of the time of a migration."""
    db = Database(f"sqlite:///{folder / 'template.db'}")
    migrations.prepare(db)
    with db.engine.connect() as connection:
        connection.exec_driver_sql("ROLLBACK")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return folder / "template.db"


@contextmanager
def opening(url: str) -> Iterator[Callable[[], SetDatabase]]:
    """Yields a function that opens the ledger, each time as another process would; closes what it opened."""
    opened: list[SetDatabase] = []

    def open_() -> SetDatabase:
        opened.append(SetDatabase(url))
        return opened[-1]

    yield open_
    for db in opened:
        db.close()


def member(db: Database, name: str = "acme", **quotas: Any) -> Member:
    tenant = tenants.create(db, name, quotas=quotas)
    return Member(tenant.id, tenants.create_key(db, tenant.id, "ci", tenants.SCOPES).key.id)


def submit(db: Database, who: Member, **fields: Any) -> tables.Job:
    new = tables.NewJob(**({"kind": "c2b", "config": {"task": "birds"}, "resolved": {"task": "birds"}} | fields))
    return jobs.submit(db, who.tenant_id, who.key_id, new, PLENTY)[0]


def leader(db: Database) -> running.Lease:
    lease = running.take_lease(db, "dispatcher", "this one", 60)
    assert lease is not None
    return lease


def granted(db: Database, who: Member) -> tables.Job:
    job = submit(db, who)
    assert running.grant(db, job.id, leader(db))
    return job


def claimed(db: Database, who: Member, seconds: float = 30) -> tables.Claim:
    """Creates a job and claims it for a runner."""
    job = granted(db, who)
    claim = running.claim(db, "runner", seconds)
    assert claim is not None
    assert claim.job.id == job.id
    return claim


def many_granted(db: Database, who: Member, count: int) -> list[str]:
    """Creates granted jobs and returns their ids."""
    rows = [
        {"id": f"job_{number:024x}", "tenant_id": who.tenant_id, "kind": "c2b", "config": {}, "resolved": {}}
        | {"state": "queued", "created": float(number), "granted": 1.0}
        for number in range(count)
    ]
    with db.transaction() as tx:
        tx.execute(tables.jobs.insert(), rows)
    return [str(row["id"]) for row in rows]


def set_row(db: Database, job_id: str, **values: Any) -> None:
    """Sets a job's fields to what a fault leaves behind."""
    with db.transaction() as tx:
        tx.execute(update(tables.jobs).where(tables.jobs.c.id == job_id).values(values))


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Runs `work` in threads that start together and returns the results; raises the first error."""
    together = threading.Barrier(count)

    def begin(number: int) -> Any:
        together.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))


def until(look: Callable[[], T | None], seconds: float = 30.0) -> T:
    """Returns what `look` finds, as soon as it finds something."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while (found := look()) is None:
        assert time.monotonic() < deadline, f"nothing within {seconds:g} s"
        pause.wait(0.05)
    return found


def everything(db: Database) -> dict[str, list[str]]:
    """Returns the rows of every table."""
    with db.reading() as tx:
        return {
            table.name: sorted(str(tuple(row)) for row in tx.execute(select(table)))
            for table in tables.metadata.sorted_tables
        }


def add_event(db: Database, job_id: str, kind: str, data: dict[str, Any]) -> int:
    """Adds an event that no runner reports, and returns its id."""
    with db.transaction() as tx:
        return webhooks.add_event(tx, job_id, kind, data)
