"""Jobs that cannot end well: each fails once and for all, with words that say what to do; what they made is kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from endpoint_work import Site, children, site
from http_service import Service

from c2b_ray.endpoint.policy.isolation import can_cut_off

GONE = "http://127.0.0.1:9/classify"


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory, classifier: tuple[str, Service]) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("failing"), [classifier[0], GONE], attempts=2) as made:
        made.runner()
        yield made


def test_weights_that_vanish_fail_the_job_at_once(endpoint, scenes):
    weights = Path(endpoint.config.storage_root, "tenants", endpoint.tenant, "uploads", "gone.onnx")
    job_id = endpoint.submit(endpoint.audit(scenes, f"onnx:{weights}"))
    endpoint.grant(job_id)
    job = endpoint.wait_for(job_id, "failed")
    assert job.attempt == 0, "to try again cannot help"
    assert job.failure["field"] == "classifier"
    assert "no such file" in job.failure["detail"]


def test_a_full_disk_is_tried_again_and_then_named(endpoint, slow):
    """The run's place is a file, which the system refuses as it refuses what no longer fits."""
    job_id = endpoint.submit(slow.audit(endpoint))
    path = endpoint.run_path(job_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("in the way")
    endpoint.grant(job_id)
    endpoint.wait(lambda: endpoint.job(job_id).attempt == 1, "a second attempt")
    assert endpoint.job(job_id).state == "queued"
    endpoint.wait(lambda: endpoint.job(job_id).granted or endpoint.grant_due(job_id), "its turn")
    job = endpoint.wait_for(job_id, "failed")
    assert job.failure["title"] == "The storage refused"
    assert str(endpoint.config.storage_root) not in job.failure["detail"], "the server's paths are not the tenant's"
    path.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_fills_up_leaves_a_run_that_goes_on(endpoint, slow):
    config = slow.audit(endpoint)
    job_id = endpoint.submit({**config, "keep_images": True})  # else it writes too little to fill a disk
    path = endpoint.run_path(job_id)
    path.mkdir(parents=True)
    if os.system(f"mount -t tmpfs -o size=2m tmpfs {path}") != 0:
        pytest.skip("this machine mounts no tmpfs")
    try:
        slow.service.delay_s = 0.0
        endpoint.grant(job_id)
        endpoint.wait(lambda: endpoint.job(job_id).attempt == 1, "the disk to be full")
        written = list(path.rglob("part-*.parquet"))
        os.system(f"mount -o remount,size=64m {path}")
        endpoint.wait(lambda: endpoint.job(job_id).granted or endpoint.grant_due(job_id), "its turn")
        endpoint.wait_for(job_id, "finished")
        assert set(written) <= set(path.rglob("part-*.parquet"))
    finally:
        os.system(f"umount {path}")


def test_a_job_whose_process_always_dies_fails(endpoint, slow):
    slow.service.delay_s = 5.0
    job_id = endpoint.submit(slow.audit(endpoint))
    endpoint.grant(job_id)
    for attempt in range(2):
        endpoint.wait(lambda: endpoint.job(job_id).stage is not None and children(endpoint.runners[0].pid), "a process")
        os.kill(children(endpoint.runners[0].pid)[0], signal.SIGKILL)
        if attempt == 0:
            endpoint.wait_for(job_id, "queued")
            endpoint.wait(lambda: endpoint.grant_due(job_id), "its turn")
            endpoint.wait_for(job_id, "running")
    job = endpoint.wait_for(job_id, "failed")
    assert job.failure["title"] == "The job's process died"
    assert "memory" in job.failure["detail"]
    assert endpoint.states(job_id).count("failed") == 1


def test_a_service_that_is_gone_is_said_so(endpoint, scenes):
    job_id = endpoint.submit(endpoint.audit(scenes, GONE))
    endpoint.grant(job_id)
    endpoint.wait_for(job_id, "queued")
    endpoint.wait(lambda: endpoint.grant_due(job_id), "its turn")
    assert endpoint.wait_for(job_id, "failed").failure["title"] == "A model service failed"


@pytest.mark.skipif(not can_cut_off(), reason="this kernel gives no process a network of its own")
def test_a_job_of_uploaded_weights_reaches_no_network(endpoint, slow):
    """Its config names an upload, and what runs asks a service of this machine, which hears nothing."""
    resolved = slow.audit(endpoint)
    job_id = endpoint.submit(resolved, config={**resolved, "classifier": f"onnx:upload:{'0' * 64}"})
    endpoint.grant(job_id)
    endpoint.wait_for(job_id, "queued")
    endpoint.wait(lambda: endpoint.grant_due(job_id), "its turn")
    assert endpoint.wait_for(job_id, "failed").failure["title"] == "A model service failed"
    assert slow.service.posts == []
