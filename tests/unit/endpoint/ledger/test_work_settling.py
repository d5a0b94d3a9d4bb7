"""The end of a slice whose run another process writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from endpoint_app import CONFIG, Endpoint, started

from c2b_ray.endpoint.ledger import jobs, webhooks
from c2b_ray.endpoint.ledger.tables import Job, NewJob
from c2b_ray.endpoint.work.progress import BUSY_S, ClaimEnd, SliceUse
from c2b_ray.endpoint.work.protocol import Problem, WorkEnded

ATTEMPTS = 2
BUSY = Problem(title="The run's directory cannot be used", again=True, busy=True)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    endpoint = started(tmp_path)
    yield endpoint
    endpoint.db.close()


def _met_busy_run(endpoint: Endpoint, job_id: str) -> Job:
    claim = endpoint.claim(job_id)
    end = ClaimEnd(endpoint.db, claim, ATTEMPTS, "run", threading.Event())
    job = end.record(SliceUse(["m"]), WorkEnded(how="failed", problem=BUSY))
    assert job is not None
    return job


def _submitted(endpoint: Endpoint, kind: str) -> str:
    new = NewJob(kind, CONFIG, CONFIG)
    job, _ = jobs.submit(endpoint.db, endpoint.tenants["a"], None, new, endpoint.config.quotas)
    return job.id


def test_a_question_waits_for_another_one_to_its_run_however_long_that_takes(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("c2b_ray.endpoint.work.progress.BUSY_S", 0.0)
    job_id = _submitted(endpoint, "question")
    for _ in range(ATTEMPTS + 2):
        job = _met_busy_run(endpoint, job_id)
        assert (job.state, job.attempt) == ("queued", 0)
    reasons = [one.data.get("reason", "") for one in webhooks.events_after(endpoint.db, job_id)]
    assert reasons[-1] == "it is tried again: another question is asked of its run"


def test_it_looks_again_after_some_seconds(endpoint: Endpoint) -> None:
    job = _met_busy_run(endpoint, _submitted(endpoint, "question"))
    assert job.lease_seconds == pytest.approx(BUSY_S)


def test_a_run_that_another_process_keeps_from_its_own_job_fails_it(endpoint: Endpoint) -> None:
    job_id = _submitted(endpoint, "c2b")
    assert _met_busy_run(endpoint, job_id).attempt == 1
