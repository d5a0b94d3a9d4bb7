"""A database that goes away in the midst of a job: the job ends its slice, its runner waits, and nothing is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from endpoint_work import Site, alive, children, site
from http_service import Service

from c2b_ray import load_run
from c2b_ray.endpoint.ledger import quotas
from c2b_ray.endpoint.ledger import running as locks
from c2b_ray.endpoint.ledger.database import DatabaseDownError
from c2b_ray.endpoint.ledger.running import SLOT

ROWS = 1600


@pytest.fixture
def server() -> Iterator[postgres.Postgres]:
    if (why := postgres.missing()) is not None:
        pytest.skip(why)
    with postgres.running() as running:
        yield running


@pytest.fixture
def endpoint(tmp_path: Path, server: postgres.Postgres, classifier: tuple[str, Service]) -> Iterator[Site]:
    with site(tmp_path, [classifier[0]], server.url(server.new_database()), lease_seconds=8.0) as made:
        yield made


def test_a_part_that_starts_while_the_database_is_down_waits_for_it(endpoint, server):
    server.kill()
    runner = endpoint.runner()
    endpoint.wait(lambda: "the start waits" in endpoint.logs(), "the runner to meet no database", 60)
    assert runner.poll() is None
    server.start()
    with contextlib.suppress(DatabaseDownError):
        locks.live_leases(endpoint.db, SLOT)  # by a connection of before
    endpoint.wait(lambda: locks.live_leases(endpoint.db, SLOT), "the runner to hold its slot", 60)


def test_a_short_outage_ends_no_slice(tmp_path, server, slow):
    """The process keeps its models, and the claim goes on."""
    with site(tmp_path, [slow.url], server.url(server.new_database()), lease_seconds=90.0) as endpoint:
        slow.service.delay_s = 0.3
        job_id = endpoint.submit(slow.audit(endpoint))
        endpoint.grant(job_id)
        runner = endpoint.runner()
        endpoint.wait(lambda: endpoint.job(job_id).images > 0, "the job to answer")
        [process] = children(runner.pid)
        server.kill()
        endpoint.wait(lambda: "goes on for now" in endpoint.logs(), "the runner to miss its database", 60)
        server.start()
        assert alive(process)
        slow.service.delay_s = 0.0
        job = endpoint.wait_for(job_id, "finished")
        assert (job.fence, job.slices, job.attempt, job.images) == (1, 0, 0, ROWS)
        assert "ends its slice" not in endpoint.logs()


def test_a_job_survives_its_database(endpoint, server, slow):
    slow.service.delay_s = 0.3
    job_id = endpoint.submit(slow.audit(endpoint))
    endpoint.grant(job_id)
    runner = endpoint.runner()
    endpoint.wait(lambda: endpoint.job(job_id).images > 0, "the job to answer")
    [process] = children(runner.pid)
    server.kill()
    endpoint.wait(lambda: not alive(process), "the job's process to end its slice", 20)
    held = {part: part.stat().st_mtime_ns for part in endpoint.parts(job_id)}
    assert held, "what was answered is written while the lease lasts"
    assert runner.poll() is None, "the runner waits"

    server.start()
    job = endpoint.wait_for(job_id, "queued")
    assert (job.slices, job.attempt) == (1, 0)
    slow.service.delay_s, before = 0.0, len(slow.service.posts)
    endpoint.grant(job_id)
    job = endpoint.wait_for(job_id, "finished")
    rows = load_run(endpoint.run_path(job_id)).predictions["prediction_id"].to_pylist()
    assert len(rows) == len(set(rows)) == ROWS
    assert held == {part: part.stat().st_mtime_ns for part in held}
    assert sum(slow.service.posts[before:]) < ROWS, "it went on where it was"
    assert endpoint.states(job_id).count("finished") == 1
    assert job.images == ROWS
    assert sum(one.images for one in quotas.spend(endpoint.db, endpoint.tenant, "2000", "3000")) == ROWS
