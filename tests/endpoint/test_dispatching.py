"""Dispatchers on one ledger: who leads, what one that slept may still do, and which jobs get slots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from endpoint_work import Site, site
from sqlalchemy import update

from c2b_ray.endpoint.ledger import running, tables, tenants
from c2b_ray.endpoint.ledger.running import DISPATCHER, SLOT
from c2b_ray.endpoint.ledger.tables import Progress
from c2b_ray.endpoint.work.dispatcher import Dispatcher

CONFIG = {"classifier": "world:resnet"}


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path, []) as made:
        running.take_lease(made.db, f"{SLOT}r1/0", "r1", 60.0)
        yield made


def dispatcher(endpoint: Site, name: str) -> Dispatcher:
    return Dispatcher(endpoint.db, endpoint.config, name)


def lapse(endpoint: Site, name: str) -> None:
    with endpoint.db.transaction() as tx:
        tx.execute(update(tables.leases).where(tables.leases.c.name == name).values(until=tx.now - 1))


def granted(endpoint: Site) -> list[str]:
    return [job.id for job in running.granted(endpoint.db)]


def test_one_leads_and_another_takes_over_when_it_is_silent(endpoint):
    first, second = dispatcher(endpoint, "first"), dispatcher(endpoint, "second")
    assert (first.step(), second.step()) == (True, False)
    job_id = endpoint.submit(CONFIG)
    assert second.step() is False
    assert granted(endpoint) == []
    lapse(endpoint, DISPATCHER)
    second._renewed = float("-inf")
    assert second.step() is True
    assert granted(endpoint) == [job_id]


def test_one_that_slept_decides_nothing(endpoint):
    """It believes that it leads until it next asks; the ledger knows better in the very change."""
    first, second = dispatcher(endpoint, "first"), dispatcher(endpoint, "second")
    first.step()
    job_id = endpoint.submit(CONFIG)
    lapse(endpoint, DISPATCHER)
    second.step()
    assert granted(endpoint) == [job_id]
    running.take_lease(endpoint.db, f"{SLOT}r1/1", "r1", 60.0)
    other = endpoint.submit(CONFIG)
    first.step()
    assert granted(endpoint) == [job_id], "the one that slept granted a job"
    assert running.claim(endpoint.db, "r1", 30.0).job.id == job_id
    assert running.ask_to_yield(endpoint.db, job_id, replace(first._lease)) is False
    second.step()
    assert granted(endpoint) == [other]


def test_as_many_jobs_get_a_turn_as_there_are_slots(endpoint):
    leading = dispatcher(endpoint, "first")
    names = [endpoint.submit(CONFIG) for _ in range(3)]
    leading.step()
    leading.step()
    assert granted(endpoint) == names[:1]
    lapse(endpoint, f"{SLOT}r1/0")
    claim = running.claim(endpoint.db, "r1", 30.0)
    running.finish(endpoint.db, names[0], claim.fence)
    leading.step()
    assert granted(endpoint) == [], "a runner that is gone has no slot"


def test_a_small_job_of_another_tenant_soon_takes_the_slot_of_a_large_one(endpoint):
    leading = dispatcher(endpoint, "first")
    large = endpoint.submit(CONFIG)
    leading.step()
    claim = running.claim(endpoint.db, "r1", 30.0)
    running.progress(endpoint.db, large, claim.fence, Progress("classify", 10, 10**6, model_seconds={"m": 3.0}))
    leading.step()
    other = tenants.create(endpoint.db, "beta").id
    small = endpoint.submit(CONFIG, tenant=other)
    leading._seen = {key: since - 3.0 for key, since in leading._seen.items()}
    leading.step()
    running.progress(endpoint.db, large, claim.fence, Progress("classify", 20, 10**6, model_seconds={"m": 1.0}))
    leading.step()
    assert running.check_fence(endpoint.db, large, claim.fence).yield_
    running.release(endpoint.db, large, claim.fence)
    leading.step()
    assert granted(endpoint) == [small]


def test_a_job_whose_runners_all_died_is_ended(endpoint):
    leading = dispatcher(endpoint, "first")
    job_id = endpoint.submit(CONFIG)
    leading.step()
    for _ in range(endpoint.config.runners.attempts):
        running.claim(endpoint.db, "r1", 30.0)
        with endpoint.db.transaction() as tx:
            tx.execute(update(tables.jobs).values(lease_until=tx.now - 1))
    leading.step()
    job = endpoint.job(job_id)
    assert job.state == "failed"
    assert "memory" in job.failure["detail"]


def test_progress_of_rows_forgives_deaths_before(endpoint):
    leading = dispatcher(endpoint, "first")
    job_id = endpoint.submit(CONFIG)
    leading.step()
    for attempt in range(2 * endpoint.config.runners.attempts):
        claim = running.claim(endpoint.db, "r1", 30.0)
        assert claim.job.attempt == (1 if attempt else 0)
        running.progress(endpoint.db, job_id, claim.fence, Progress("classify", advanced=True))
        with endpoint.db.transaction() as tx:
            tx.execute(update(tables.jobs).values(lease_until=tx.now - 1))
        leading.step()
    assert endpoint.job(job_id).state == "running"
