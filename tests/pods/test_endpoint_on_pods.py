"""The endpoint's pods and the model plane of the rendered manifests, run without Kubernetes: an audit, submitted over
HTTP, whose models are Serve apps of a RayService goes on while its worker, its runner, the API, the database and the
head die, and every row is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import kuberay
import postgres
import pyarrow.parquet as pq
import pytest
import yaml
from kuberay import Manifest, World, one
from object_server import ObjectServer
from pods import Pods, await_success
from postgres import Postgres
from ray_pods import PATIENCE_S, RayPods, applications, deploy, fetched, wait_for
from ray_pods import keys as keys_of

import c2b_ray
from c2b_ray.endpoint.ledger import tenants
from c2b_ray.endpoint.ledger.database import Database

pytestmark = pytest.mark.timeout(1500)
AUDIT = {
    "task": "Tell buses from boats.",
    "classes": ["bus", "boat"],
    "classifier": "world:resnet-planted-0",
    "images": {"source": "generate", "generator": "world:renderer"},
    "attributes": {"weather": ["fog", "clear"], "time": ["night", "day"]},
    "images_per_caption": 150,
    "captions_per_cell": 1,
}
TABLES = {"images": "image_id", "predictions": "prediction_id"}


class Endpoint:
    """The endpoint's pods, and its ledger as an administrator sees it."""

    def __init__(self, network: Pods, world: World, manifests: list[Manifest], server: Postgres) -> None:
        self.network, self.server = network, server
        url = server.url(server.new_database())
        secrets = {**world.secrets, "c2b-database": {"url": url}, "c2b-endpoint-secret": {"secret": "s" * 43}}
        self.world = World(secrets, world.config_maps)
        self.manifests = manifests
        [found] = [m for m in manifests if m["kind"] == "ConfigMap" and "endpoint.yaml" in m["data"]]
        self.files: dict[str, str] = found["data"]
        self.url, self.key = url, ""

    def pod(self, kind: str, name: str) -> Manifest:
        return one(self.manifests, kind, name)["spec"]["template"]["spec"]

    def migrate(self) -> None:
        pod = self.network.start(
            "migrate", kuberay.main_container(self.pod("Job", "c2b-migrate"), self.world, self.files)
        )
        assert pod.popen.wait(PATIENCE_S) == 0, self.network.logs()

    def start(self, name: str) -> None:
        pod = self.pod("Deployment", f"c2b-{name}")
        main = kuberay.main_container(pod, self.world, self.files)
        if "initContainers" not in pod:
            self.network.start(name, main)
            return
        made = self.network.start(name, kuberay.sidecar(pod, self.world, self.files))
        await_success(made, kuberay.probe(pod["initContainers"][0], "startupProbe"), PATIENCE_S)
        made.start(main)

    def readiness(self) -> str:
        """A command that asks what the API's own probe asks."""
        return kuberay.http_probe(self.pod("Deployment", "c2b-api")["containers"][0], "readinessProbe")

    def ask(self, method: str, path: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        """What the API answers; {} where it does not, or says that the database is down."""
        url = f"http://{self.network.address('api')}:8420{path}"
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(url, data, headers, method=method), timeout=30) as answer:
                return dict(json.load(answer))
        except HTTPError as error:
            if error.code != 503 or "Retry-After" not in error.headers:
                raise AssertionError(f"{error.code}: {error.read().decode()}") from error
        except OSError:
            pass  # nobody listens
        return {}

    def first_key(self, tenant: str) -> None:
        """What `c2b keys create` does."""
        db = Database(self.url)
        self.key = tenants.create_key(db, tenants.create(db, tenant).id, "tests").text
        db.close()


@pytest.fixture(scope="module")
def server(network: Pods) -> Iterator[Postgres]:
    if why := postgres.missing():
        pytest.skip(why)
    with postgres.running(network.gateway) as running:
        yield running


def test_an_audit_outlives_worker_runner_database_and_head(
    manifests: list[Manifest], network: Pods, store: ObjectServer, world: World, server: Postgres, tmp_path: Path
) -> None:
    service = one(manifests, "RayService", "c2b-models")["spec"]
    cluster = RayPods(network, world, service["rayClusterConfig"], "models", "c2b-models-head-svc")
    cluster.start_head()
    cluster.start_worker()
    endpoint = Endpoint(network, world, manifests, server)
    endpoint.migrate()
    cluster.await_ready()
    head = network.address(cluster.head)
    deploy(service, head)
    wait_for(lambda: set(applications(head).values()) == {"RUNNING"}, network, "the apps do not run")
    for name in ("api", "dispatcher", "runner"):
        endpoint.start(name)
    await_success(network.pods["api"], endpoint.readiness(), PATIENCE_S)
    endpoint.first_key("alpha")
    job = f"/v1/audits/{endpoint.ask('POST', '/v1/audits', {'kind': 'c2b', 'config': AUDIT})['id']}"

    def progress() -> tuple[str, str] | None:
        answer = endpoint.ask("GET", job)
        return (answer["state"], str(answer["progress"])) if answer else None

    for disturb in disturbances(network, cluster, endpoint):
        before = wait_for(progress, network, "the API does not answer")
        moved = lambda before=before: progress() not in (None, before)  # noqa: E731
        wait_for(moved, network, "no progress")
        assert (progress() or before)[0] != "finished", f"the audit ended before {disturb.__name__}"
        disturb()
    ended = ("finished", "failed", "cancelled")
    wait_for(lambda: cluster.head_runs() and (progress() or ("",))[0] in ended, network, "the audit did not end")
    found = endpoint.ask("GET", job)
    assert found["state"] == "finished", (found, network.logs())
    config = yaml.safe_load(endpoint.files["endpoint.yaml"])
    root = config["storage"].removeprefix("s3://c2b-ray/")
    [run] = {key.partition("/predictions/")[0] for key in keys_of(store, f"{root}/tenants/") if "/predictions/" in key}
    there = fetched(store, run, tmp_path / "there")
    c2b_ray.audit(AUDIT, out=tmp_path / "here", via="here")
    for table, key in TABLES.items():
        assert rows(there / table, key) == rows(tmp_path / "here" / table, key)


def disturbances(network: Pods, cluster: RayPods, endpoint: Endpoint) -> list[Callable[[], None]]:
    """Returns functions that each kill a part of the deployment and start it again."""

    def restart_worker() -> None:
        network.kill(cluster.worker)
        cluster.start_worker()

    def restart_runner() -> None:
        network.kill("runner")
        endpoint.start("runner")

    def restart_api() -> None:
        network.kill("api")
        endpoint.start("api")

    def restart_database() -> None:
        endpoint.server.kill()
        time.sleep(3)
        endpoint.server.start()

    def restart_head() -> None:
        network.kill(cluster.head)
        cluster.start_head()

    return [restart_worker, restart_runner, restart_api, restart_database, restart_head]


def rows(folder: Path, key: str) -> list[str]:
    """The ids of a table's rows, each as often as it is there."""
    return sorted(
        row for part in folder.glob("part-*.parquet") for row in pq.read_table(part, columns=[key])[key].to_pylist()
    )
