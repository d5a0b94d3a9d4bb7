"""Runners and processes of jobs that are killed or stopped: another goes on, nothing is done twice."""

from __future__ import annotations

import os
import signal
import time

from endpoint_work import Site, alive, children
from sqlalchemy import update

from c2b_ray import load_run
from c2b_ray.endpoint.ledger import tables
from c2b_ray.endpoint.ledger.database import DatabaseDownError

ROWS = 1600


def check_whole(endpoint: Site, job_id: str) -> None:
    """The run is as an undisturbed one, and it ended once."""
    run = load_run(endpoint.run_path(job_id))
    assert run.manifest["status"] == "finished"
    images = run.predictions["image_id"].to_pylist()
    assert len(images) == len(set(images)) == ROWS
    assert endpoint.states(job_id).count("finished") == 1


def put_to_sleep(endpoint: Site, *pids: int) -> None:
    """Stops the processes while none of them writes: one that sleeps within a write keeps SQLite's lock."""
    while True:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            with endpoint.db.transaction():
                return
        except DatabaseDownError:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            time.sleep(0.1)


def test_a_killed_runners_job_goes_on_elsewhere(endpoint, slow, tmp_path, monkeypatch):
    """Its temporary files do not stay."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    job_id = endpoint.submit(slow.audit(endpoint))
    endpoint.grant(job_id)
    first = endpoint.runner()
    parts = endpoint.wait(lambda: endpoint.parts(job_id), "a part to be written")
    written = {part: part.stat().st_mtime_ns for part in parts}
    processes = children(first.pid)
    (left,) = tmp_path.glob("c2b-runner-*")
    first.kill()
    first.wait()
    endpoint.wait(lambda: not any(map(alive, processes)), "the job's process to end with its runner", 10)
    assert endpoint.job(job_id).state == "running"
    assert left.is_dir()

    slow.service.delay_s = 0.0
    endpoint.runner()
    endpoint.wait_for(job_id, "finished")
    check_whole(endpoint, job_id)
    assert not left.exists()
    assert written == {part: part.stat().st_mtime_ns for part in written}, "what was written was done again"


def test_a_runner_that_slept_past_its_lease_is_fenced_off(endpoint, slow):
    """Both the runner and its process sleep, so that neither knows what happened meanwhile."""
    job_id = endpoint.submit(slow.audit(endpoint))
    endpoint.grant(job_id)
    first = endpoint.runner()
    endpoint.wait(lambda: endpoint.parts(job_id), "a part to be written")
    process = children(first.pid)[0]
    put_to_sleep(endpoint, first.pid, process)

    second = endpoint.runner()
    endpoint.wait(lambda: endpoint.job(job_id).attempt == 1, "another to claim the job")
    # The sleeper still holds the lock of the run's directory; the other waits for it to wake up, or to be gone.
    for pid in (process, first.pid):
        os.kill(pid, signal.SIGCONT)
    endpoint.wait_for(job_id, "finished")
    check_whole(endpoint, job_id)
    assert not alive(process)
    assert (first.poll(), second.poll()) == (None, None), "both go on"
    again = endpoint.submit(slow.audit(endpoint))
    endpoint.grant(again)
    slow.service.delay_s = 0.0
    endpoint.wait_for(again, "finished")


def test_a_clock_that_jumps_costs_a_job_nothing(endpoint, slow):
    """The lease seems to have passed long ago; it is its holder's as long as nobody took it."""
    job_id = endpoint.submit(slow.audit(endpoint))
    endpoint.grant(job_id)
    endpoint.runner()
    for step in (1, 2):
        endpoint.wait(lambda step=step: endpoint.job(job_id).images >= 200 * step, "the job to answer")
        with endpoint.db.transaction() as tx:
            tx.execute(update(tables.jobs).values(lease_until=tx.now - 3600 * step))
    slow.service.delay_s = 0.0
    endpoint.wait_for(job_id, "finished")
    check_whole(endpoint, job_id)
    job = endpoint.job(job_id)
    assert (job.fence, job.attempt, job.images) == (1, 0, ROWS)


def test_a_killed_process_is_replaced_and_its_rows_are_kept(endpoint, slow):
    job_id = endpoint.submit(slow.audit(endpoint))
    endpoint.grant(job_id)
    runner = endpoint.runner()
    parts = endpoint.wait(lambda: endpoint.parts(job_id), "a part to be written")
    os.kill(children(runner.pid)[0], signal.SIGKILL)
    endpoint.wait_for(job_id, "queued")
    assert endpoint.job(job_id).attempt == 1
    slow.service.delay_s = 0.0
    endpoint.wait(lambda: endpoint.job(job_id).not_before is not None, "a pause before the next attempt")
    endpoint.grant(job_id)
    endpoint.wait_for(job_id, "finished")
    check_whole(endpoint, job_id)
    assert set(parts) <= set(endpoint.parts(job_id))
