"""The RayJob of the rendered manifests, run as pods without Kubernetes: namespaces with addresses of their own, and
nothing shared but an object store. Its worker and its head die, and every row is there at the end.

What only a cluster shows is not shown here: the operator, cgroups, seccomp, DNS, enforcement of policies, images.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kuberay
import pytest
from doomed_builds import contents
from kuberay import Manifest, World, one
from object_server import ObjectServer
from pods import Pod, Pods
from ray_pods import JOB_FILES, SHARDS, RayPods, fetched, keys, wait_for

pytestmark = pytest.mark.timeout(1500)


def here(folder: Path, *command: str) -> None:
    """The same work in this machine's own processes, undisturbed and without Ray."""
    for name, text in JOB_FILES.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "c2b_ray", *command, "--via", "here", "--json"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def submission_of(attempt: int) -> str:
    return f"c2b-dataset-build-{attempt}"


def test_a_build_of_a_rayjob_outlives_its_worker_and_its_head(
    manifests: list[Manifest], network: Pods, store: ObjectServer, world: World, tmp_path: Path
) -> None:
    job = one(manifests, "RayJob", "c2b-dataset-build")["spec"]
    prefix = job["entrypoint"].split("--out s3://c2b-ray/")[1].split()[0]
    cluster = RayPods(network, world, job["rayClusterSpec"], "build", "c2b-build-head-svc")

    def shards() -> int:
        return sum(key.endswith(".draws.parquet") for key in keys(store, f"{prefix}/candidates/"))

    def submit(attempt: int) -> Pod:
        cluster.start_head()
        cluster.start_worker()
        cluster.await_ready()
        made = kuberay.submitter(job, cluster.service, submission_of(attempt), world)
        return network.start("submitter", made)

    submit(1)
    wait_for(lambda: shards() >= 1, network, "no shard was drawn")
    network.kill(cluster.worker)
    cluster.start_worker()
    wait_for(lambda: shards() >= 2, network, "no shard was drawn after the worker died")
    for name in (cluster.worker, cluster.head, "submitter"):  # without its head the operator gives the cluster up
        network.kill(name)
    assert shards() < SHARDS, "nothing was left to do"
    submit(2)
    wait_for(lambda: not network.pods["submitter"].alive(), network, "the second cluster did not end the build")
    assert network.pods[cluster.head].alive(), network.logs()
    said = network.pods[cluster.head].run(f"ray job status {submission_of(2)}", 60)
    assert "succeeded" in said.stdout, (said, network.logs())
    for name in ("submitter", cluster.head, cluster.worker):
        network.kill(name)
    here(tmp_path, "dataset", "build", "dataset.yaml", "--out", "undisturbed")
    assert contents(fetched(store, prefix, tmp_path / "built")) == contents(tmp_path / "undisturbed")
