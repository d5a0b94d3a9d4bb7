"""Jobs whose stages run in Ray's workers: the cluster of a job's own process is confined with it, and does its work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from endpoint_work import site

from c2b_ray.config.endpoint import Policy
from c2b_ray.endpoint.policy import isolation
from c2b_ray.endpoint.policy.isolation import POLICY_VARIABLE

HOSTILE = """
import json, os, sys
from functools import partial
from c2b_ray.endpoint.work.child import _confine
from c2b_ray.endpoint.work.protocol import Start

run, *paths = sys.argv[1:]
_confine(Start(kind="c2b", config={}, out=run, via="actors", until=1e12))

from c2b_ray.audits.kit.backend import backend
from c2b_ray.engine.images import GENERATE

def outcome(path):
    try:
        with open(path, "a+") as file:
            file.seek(0)
            return [os.getpid(), file.read()]
    except OSError as error:
        return [os.getpid(), type(error).__name__]

with backend("actors") as models:
    told = {path: models.runner.call(partial(outcome, path), GENERATE) for path in paths}
print(json.dumps([os.getpid(), told]))
"""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for what is temporary, in which no tenant's lies; paths of sockets may not be long."""
    with tempfile.TemporaryDirectory(prefix="c2b-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def test_a_worker_of_a_jobs_own_cluster_reads_no_other_tenants_files(tmp_path: Path, short: Path) -> None:
    run, theirs, ledger = tmp_path / "tenants/a/runs/job", tmp_path / "tenants/b/data/t.csv", tmp_path / "ledger.db"
    for path in (run / "own", theirs, ledger):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret")
    environment = {**os.environ, POLICY_VARIABLE: Policy().model_dump_json()}
    arguments = [sys.executable, "-c", HOSTILE, str(run), str(run / "own"), str(theirs), str(ledger)]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=180, env=environment)
    if "no Landlock" in done.stderr:
        pytest.skip("this kernel has no Landlock")
    assert done.returncode == 0, done.stderr
    driver, told = json.loads(done.stdout.splitlines()[-1])
    assert all(pid != driver for pid, _ in told.values()), "in a process of Ray's"
    assert [what for _, what in told.values()] == ["secret", "PermissionError", "PermissionError"]


def test_an_audit_on_a_cluster_of_its_own_ends_well_where_it_is_confined(
    tmp_path: Path, short: Path, scenes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tmp_path / "few.parquet"
    pq.write_table(pq.read_table(scenes).slice(0, 100), few)
    with site(tmp_path, [], more={"via": "actors"}, lease_seconds=30.0) as endpoint:
        job_id = endpoint.submit(endpoint.audit(few, "world:resnet-planted-0"))
        endpoint.grant(job_id)
        endpoint.runner()
        job = endpoint.wait_for(job_id, "finished", "failed", seconds=240)
        assert job.state == "finished", (job.failure, endpoint.logs())
        assert endpoint.parts(job_id)
        assert ("no Landlock" in endpoint.logs()) is (isolation.version() < 1)
