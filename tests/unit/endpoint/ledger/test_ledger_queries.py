"""What the ledger asks SQLite for: by index, and in few statements, where requests and runners do it all the time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ledgers
import pytest
from sqlalchemy import event

from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.ledger import jobs, quotas, running, tables, tenants, uploads, webhooks
from c2b_ray.endpoint.ledger.database import Database

LIMITS = Quotas(images_per_day=10**9, model_seconds_per_day={"*": 1e9})
SMALL = ("tenants", "webhooks", "leases", "audit_head")
"""Tables that are read whole where that is shorter."""


def statements(db: Database, work: Callable[[], Any]) -> list[tuple[str, Any]]:
    """What `work` executes, BEGIN and COMMIT aside."""
    seen: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            seen.append((statement, parameters))

    event.listen(db.engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        event.remove(db.engine, "before_cursor_execute", note)
    return seen


def scans(db: Database, statement: str, parameters: Any) -> list[str]:
    """The parts of SQLite's plan that read a whole table."""
    with db.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
    named = {name: f"SCAN {name}" for name in tables.metadata.tables if name not in SMALL}
    return [row[3] for row in plan if row[3] in named.values()]  # what is read by an index says so after the name


def works(db: Database) -> dict[str, Callable[[], Any]]:
    who = ledgers.member(db)
    other = ledgers.claimed(db, who)
    claim = ledgers.claimed(db, who)
    job_id, fence = claim.job.id, claim.fence
    lead = ledgers.leader(db)
    text = tenants.create_key(db, who.tenant_id, "x").text
    new = tables.NewJob("c2b", {}, {}, idempotency_key="k", body_hash="h")
    report = tables.Progress("classify", 1, 2, images={"m": 1}, model_seconds={"m": 1.0})
    return {
        "tenants.verify_key": lambda: tenants.verify_key(db, text),
        "jobs.get": lambda: jobs.get(db, who.tenant_id, job_id),
        "jobs.page": lambda: jobs.page(db, who.tenant_id, cursor=(1.0, "x")),
        "jobs.submit": lambda: jobs.submit(db, who.tenant_id, None, new, LIMITS),
        "running.waiting": lambda: running.waiting(db),
        "running.running": lambda: running.running(db),
        "running.grant": lambda: running.grant(db, job_id, lead),
        "running.claim": lambda: running.claim(db, "r", 30),
        "running.sweep": lambda: running.sweep(db),
        "running.renew": lambda: running.renew(db, job_id, fence, 30),
        "running.check_fence": lambda: running.check_fence(db, job_id, fence),
        "running.progress": lambda: running.progress(db, job_id, fence, report),
        "running.finish": lambda: running.finish(db, other.job.id, other.fence),
        "quotas.limits_and_use": lambda: quotas.limits_and_use(db, who.tenant_id, LIMITS),
        "uploads.get": lambda: uploads.get(db, who.tenant_id, "0" * 64),
        "usage.spend": lambda: quotas.spend(db, who.tenant_id, "2026-01-01", "2026-01-31"),
        "webhooks.due": lambda: webhooks.due(db),
    }


def test_nothing_that_is_asked_all_the_time_reads_a_whole_table(db: ledgers.SetDatabase) -> None:
    whole = {
        name: [(scan, statement) for statement, parameters in seen for scan in scans(db, statement, parameters)]
        for name, seen in ((name, statements(db, work)) for name, work in works(db).items())
    }
    assert {name: parts for name, parts in whole.items() if parts} == {}


@pytest.mark.parametrize(
    ("name", "most"), [("jobs.get", 1), ("tenants.verify_key", 1), ("running.check_fence", 1), ("running.renew", 2)]
)
def test_what_each_request_and_each_beat_asks_is_one_statement(db: ledgers.SetDatabase, name: str, most: int) -> None:
    assert len(statements(db, works(db)[name])) <= most


def test_a_submission_is_at_most_nine_statements(db: ledgers.SetDatabase) -> None:
    assert len(statements(db, works(db)["jobs.submit"])) <= 9
