"""Jobs that are told to end: at their next batch, with every row that was answered, and for a reason that is said."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from endpoint_work import Site, alive, children, site
from http_service import Service

from c2b_ray import load_run
from c2b_ray.endpoint.ledger import jobs, quotas, tenants
from c2b_ray.endpoint.ledger.tables import Filters, Job

ROWS = 1600


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory, classifier: tuple[str, Service]) -> Iterator[Site]:
    """With one runner for all tests here."""
    with site(tmp_path_factory.mktemp("stopped"), [classifier[0]], lease_seconds=6.0) as made:
        made.runner()
        yield made


def predicted(endpoint: Site, job_id: str) -> set[str]:
    run = load_run(endpoint.run_path(job_id))
    return set(run.predictions["prediction_id"].to_pylist())


def answering(job: Job) -> bool:
    return (job.stage or "").startswith("classify") and (job.done or 0) > 0


def begun(endpoint: Site, config: dict, **more) -> str:
    """A job whose classifier has answered about some images, of which no part is written yet."""
    job_id = endpoint.submit(config, **more)
    endpoint.grant(job_id)
    endpoint.wait(lambda: answering(endpoint.job(job_id)), "the job to answer")
    return job_id


def test_a_job_that_waits_is_cancelled_at_once(endpoint, slow):
    job_id = endpoint.submit(slow.audit(endpoint))
    assert jobs.request_cancel(endpoint.db, endpoint.tenant, job_id).state == "cancelled"


def test_a_job_that_yields_keeps_what_was_answered_and_goes_on(endpoint, slow):
    job_id = begun(endpoint, slow.audit(endpoint))
    asked = time.monotonic()
    endpoint.ask_to_yield(job_id)
    job = endpoint.wait_for(job_id, "queued")
    assert time.monotonic() - asked < 8
    assert (job.slices, job.attempt, job.granted) == (1, 0, None)
    rows = predicted(endpoint, job_id)
    assert 0 < len(rows) < ROWS, "what was answered and not yet written when it was asked"
    assert job.images == len(rows)

    slow.service.delay_s, before = 0.0, len(slow.service.posts)
    endpoint.grant(job_id)
    endpoint.wait_for(job_id, "finished")
    assert predicted(endpoint, job_id) > rows
    assert sum(slow.service.posts[before:]) == ROWS - len(rows), "no image was asked about twice"

    job = endpoint.job(job_id)
    assert job.images == ROWS, "each image is booked once, over both slices"
    assert job.model_seconds > 0.3, "its processes computed"
    [spend] = [one for one in quotas.spend(endpoint.db, endpoint.tenant, "2000", "3000") if one.model == slow.url]
    assert (spend.images, spend.key_id) == (ROWS, endpoint.key)
    assert spend.model_seconds == pytest.approx(job.model_seconds)
    assert job.classifier_hash


def test_a_cancelled_job_ends_at_its_next_batch_and_can_be_submitted_again(endpoint, slow):
    slow.service.delay_s = 0.5
    job_id = begun(endpoint, slow.audit(endpoint))
    asked = time.monotonic()
    jobs.request_cancel(endpoint.db, endpoint.tenant, job_id)
    job = endpoint.wait_for(job_id, "cancelled")
    assert time.monotonic() - asked < 8
    assert job.failure is None
    assert load_run(endpoint.run_path(job_id)).manifest["status"] == "running", "what there is can be read"

    rows = predicted(endpoint, job_id)
    slow.service.delay_s, before = 0.0, len(slow.service.posts)
    again = endpoint.submit(slow.audit(endpoint))
    endpoint.grant(again)
    endpoint.wait_for(again, "finished")
    assert len(predicted(endpoint, again)) == ROWS
    assert sum(slow.service.posts[before:]) == ROWS - len(rows) < ROWS, "it went on where the cancelled one ended"
    assert not endpoint.run_path(job_id).exists()


@pytest.mark.parametrize(("name", "why"), [("beta", "was revoked"), ("gamma", "has expired")])
def test_the_job_of_a_key_that_works_no_more_ends_and_says_why(endpoint, slow, name, why):
    slow.service.delay_s = 0.5
    tenant = tenants.create(endpoint.db, name).id
    key = tenants.create_key(endpoint.db, tenant, "short-lived").key.id
    endpoint.tenant, endpoint.key, before = tenant, key, (endpoint.tenant, endpoint.key)
    try:
        job_id = begun(endpoint, slow.audit(endpoint))
        waiting = endpoint.submit(slow.audit(endpoint))
        if name == "beta":
            tenants.revoke_key(endpoint.db, tenant, key)
        else:  # the end of the grace of an old key, while its job answers
            tenants.rotate_key(endpoint.db, tenant, key, grace_seconds=1.0)
            assert tenants.why_key_fails(endpoint.db, key) is None
        job = endpoint.wait_for(job_id, "cancelled")
        assert f"key of this job {why}" in job.failure["title"]
        assert "Submit it again with a key that works" in job.failure["detail"]
        endpoint.grant(waiting)
        assert why in endpoint.wait_for(waiting, "cancelled").failure["title"]
        assert predicted(endpoint, job_id), "what was answered before is kept"
    finally:
        endpoint.tenant, endpoint.key = before


def test_a_job_that_exceeds_a_quota_while_it_runs_ends_and_can_go_on_when_there_is_room(endpoint, slow):
    slow.service.delay_s = 0.5
    config = slow.audit(endpoint)
    job_id = begun(endpoint, config)
    tenants.change(endpoint.db, endpoint.tenant, quotas={"model_seconds_per_day": {slow.url: 0.01}})
    try:
        job = endpoint.wait_for(job_id, "cancelled")
        assert job.failure["title"] == "The quota model_seconds_per_day is used up"
        assert f"{slow.url}: " in job.failure["detail"]
        rows = predicted(endpoint, job_id)
        assert 0 < len(rows) < ROWS
    finally:
        tenants.change(endpoint.db, endpoint.tenant, quotas={})
    slow.service.delay_s, before = 0.0, len(slow.service.posts)
    again = endpoint.submit(config)

    def finished() -> bool:
        endpoint.grant_due(again)  # a second time where a busy machine let its lease lapse, as a dispatcher does
        return endpoint.job(again).state == "finished"

    endpoint.wait(finished, "the job to go on")
    assert sum(slow.service.posts[before:]) == ROWS - len(rows)


def test_a_runner_that_is_stopped_gives_its_job_back(endpoint, slow):
    """The last test here: it ends the runner that they share."""
    slow.service.delay_s = 0.3
    job_id = begun(endpoint, slow.audit(endpoint))
    processes = children(endpoint.runners[0].pid)
    endpoint.runners[0].send_signal(signal.SIGTERM)
    assert endpoint.runners[0].wait(60) == 128 + signal.SIGTERM
    assert not any(map(alive, processes))
    job = endpoint.job(job_id)
    assert (job.state, job.slices, job.attempt) == ("queued", 1, 0)
    assert len(predicted(endpoint, job_id)) == job.images > 0
    assert jobs.page(endpoint.db, endpoint.tenant, Filters(state="running")).items == []
