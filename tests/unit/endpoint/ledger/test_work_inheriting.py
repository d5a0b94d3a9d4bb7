"""A cancelled job that is submitted again goes on with what it had done; nobody else's run, and no other's config."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endpoint_app import CONFIG, Endpoint, started

from c2b_ray.endpoint.ledger import jobs, quotas, running, tables, webhooks
from c2b_ray.endpoint.ledger.tables import Claim, FencedError, NewJob
from c2b_ray.endpoint.work.process import inherit
from c2b_ray.endpoint.work.progress import ClaimEnd, SliceUse, booked_before
from c2b_ray.endpoint.work.protocol import Problem, WorkEnded


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    endpoint = started(tmp_path)
    yield endpoint
    endpoint.db.close()


def claimed(endpoint: Endpoint, tenant: str = "a", **changes: Any) -> Claim:
    config = {**CONFIG, **changes}
    new = NewJob("c2b", config, config)
    job, _ = jobs.submit(endpoint.db, endpoint.tenants[tenant], None, new, endpoint.config.quotas)
    return endpoint.claim(job.id)


def cancelled(endpoint: Endpoint, **changes: Any) -> tuple[str, Path]:
    """A job that was cancelled after it had done something."""
    claim = claimed(endpoint, **changes)
    path = endpoint.run_path(claim.job.id)
    path.mkdir(parents=True)
    (path / "run.json").write_text("begun")
    running.progress(endpoint.db, claim.job.id, claim.fence, tables.Progress("classify", images={"m": 40}))
    running.cancelled(endpoint.db, claim.job.id, claim.fence, str(path))
    return claim.job.id, path


def notes(endpoint: Endpoint, job_id: str) -> list[str]:
    return [one.data["reason"] for one in webhooks.events_after(endpoint.db, job_id) if one.kind == jobs.NOTE]


def test_the_same_job_goes_on_with_the_run_and_both_say_so(endpoint: Endpoint) -> None:
    old, there = cancelled(endpoint)
    claim = claimed(endpoint)
    here = endpoint.run_path(claim.job.id)
    inherited = inherit(endpoint.db, claim, str(here))
    assert inherited.job == jobs.get(endpoint.db, None, claim.job.id)
    assert inherited.job.images == 40, "which are booked already"
    [spent] = quotas.spend(endpoint.db, endpoint.tenants["a"], "2000", "3000")
    assert spent.images == 40
    assert (here / "run.json").read_text() == "begun"
    assert not there.exists()
    assert notes(endpoint, old) == [f"{claim.job.id} continues it"]
    assert notes(endpoint, claim.job.id) == [f"that of {old}"]
    assert jobs.get(endpoint.db, None, old).run_path is None
    running.finish(endpoint.db, claim.job.id, claim.fence, str(here))
    again = claimed(endpoint)
    inherit(endpoint.db, again, str(endpoint.run_path(again.job.id)))
    assert here.exists(), "a finished run is nobody else's"


@pytest.mark.parametrize("temporary", [True, False])
def test_a_failed_job_leaves_its_run_where_the_problem_may_pass(endpoint: Endpoint, temporary: bool) -> None:
    claim = claimed(endpoint)
    there = endpoint.run_path(claim.job.id)
    there.mkdir(parents=True)
    end = ClaimEnd(endpoint.db, claim, 1, str(there), threading.Event())
    problem = Problem(title="A model service failed", again=temporary)
    job = end.record(SliceUse(["m"]), WorkEnded(how="failed", problem=problem))
    assert job is not None
    assert job.state == "failed"
    again = claimed(endpoint)
    inherit(endpoint.db, again, str(endpoint.run_path(again.job.id)))
    assert endpoint.run_path(again.job.id).exists() is temporary
    assert there.exists() is not temporary


def test_a_job_that_was_cancelled_between_two_slices_leaves_its_run_too(endpoint: Endpoint) -> None:
    claim = claimed(endpoint)
    there = endpoint.run_path(claim.job.id)
    there.mkdir(parents=True)
    end = ClaimEnd(endpoint.db, claim, 5, str(there), threading.Event())
    assert end.record(SliceUse(["m"]), WorkEnded(how="yielded")) is not None
    jobs.request_cancel(endpoint.db, endpoint.tenants["a"], claim.job.id)
    again = claimed(endpoint)
    inherit(endpoint.db, again, str(endpoint.run_path(again.job.id)))
    assert endpoint.run_path(again.job.id).exists()
    assert notes(endpoint, again.job.id) == [f"that of {claim.job.id}"]


def test_what_the_run_holds_and_nobody_booked_is_booked_by_who_takes_it_over(endpoint: Endpoint) -> None:
    cancelled(endpoint)  # 40 images were booked
    claim = claimed(endpoint)
    assert booked_before(claim) is None, "nothing is there before it begins"
    claim = inherit(endpoint.db, claim, str(endpoint.run_path(claim.job.id)))
    assert booked_before(claim) == 40


@pytest.mark.parametrize(("tenant", "changes"), [("b", {}), ("a", {"seed": 3})])
def test_another_tenant_s_run_or_config_is_left_alone(endpoint: Endpoint, tenant: str, changes: dict[str, Any]) -> None:
    _, there = cancelled(endpoint)
    claim = claimed(endpoint, tenant, **changes)
    inherit(endpoint.db, claim, str(endpoint.run_path(claim.job.id, tenant)))
    assert there.exists()
    assert not endpoint.run_path(claim.job.id, tenant).exists()


def test_a_runner_that_dies_before_the_folder_moved_leaves_it_to_the_next(endpoint: Endpoint) -> None:
    old, there = cancelled(endpoint)
    claim = claimed(endpoint)
    assert jobs.take_over(endpoint.db, claim.job, (old, str(there)))
    running.release(endpoint.db, claim.job.id, claim.fence)
    claim = endpoint.claim(claim.job.id)
    inherit(endpoint.db, claim, str(endpoint.run_path(claim.job.id)))
    assert (endpoint.run_path(claim.job.id) / "run.json").exists()
    assert not there.exists()


def test_a_run_goes_to_one_of_two_and_to_none_that_was_fenced_off(endpoint: Endpoint) -> None:
    old, there = cancelled(endpoint)
    before = old, str(there)
    claim = claimed(endpoint)
    running.release(endpoint.db, claim.job.id, claim.fence)
    with pytest.raises(FencedError):
        jobs.take_over(endpoint.db, claim.job, before)
    assert jobs.get(endpoint.db, None, old).run_path == str(there), "nothing of it was kept"
    claim = endpoint.claim(claim.job.id)
    assert jobs.take_over(endpoint.db, claim.job, before)
    assert not jobs.take_over(endpoint.db, claim.job, before)


def test_on_an_object_store_a_job_begins_anew_and_says_why(endpoint: Endpoint) -> None:
    cancelled(endpoint)
    claim = claimed(endpoint)
    inherit(endpoint.db, claim, "s3://bucket/tenants/a/runs/new")
    assert "object store" in notes(endpoint, claim.job.id)[0]
