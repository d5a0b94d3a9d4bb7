"""Ray clusters of rendered manifests as pods, and the results of their runs in the object store."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import kuberay
import yaml
from doomed_builds import CONFIG, SIGHT
from kuberay import Manifest, World
from object_server import ObjectServer
from pods import Pod, Pods, await_success

PATIENCE_S = 420.0
BUCKET = "c2b-ray"
TOKEN = "a-token-of-the-tests-that-every-node-has-too"
CAPTIONS = "label,caption\n" + "".join(f'{caption.split()[2]},"{caption}"\n' for caption in SIGHT)
DRAWS_PER_CAPTION = 480
SHARDS = math.ceil(len(SIGHT) * DRAWS_PER_CAPTION / CONFIG["shard_draws"])
"""Enough that a fast machine is still drawing when a pod dies."""
JOB_FILES = {
    "dataset.yaml": yaml.safe_dump({**CONFIG, "draws_per_caption": DRAWS_PER_CAPTION}),
    "captions.csv": CAPTIONS,
}
"""The contents of the administrators' ConfigMap c2b-job-files."""


class RayPods:
    """The pods of one Ray cluster, as the operator creates them."""

    def __init__(self, network: Pods, world: World, cluster: Manifest, name: str, service: str) -> None:
        self.network, self.world, self.cluster, self.service = network, world, cluster, service
        self.head, self.worker = f"{name}-head", f"{name}-worker"
        self._volumes: dict[str, Path] = {}
        if cluster.get("gcsFaultToleranceOptions"):
            self._volumes[kuberay.GCS_FOLDER] = network.folder / f"{name}-gcs"
            self._volumes[kuberay.GCS_FOLDER].mkdir()

    def start_head(self) -> Pod:
        return self._started(self.head, self.cluster["headGroupSpec"], self._volumes)

    def head_runs(self) -> bool:
        """Tells whether the head runs; starts it again where it does not, as a kubelet does.

        Ray's GCS fails now and then while it reads its state: a check of its own finds an actor dead.
        """
        if not (runs := self.network.pods[self.head].alive()):
            self.start_head()
        return runs

    def start_worker(self) -> Pod:
        return self._started(self.worker, self.cluster["workerGroupSpecs"][0], {})

    def _started(self, name: str, group: Manifest, volumes: dict[str, Path]) -> Pod:
        made = kuberay.ray_node(self.cluster, group, self.service, self.world)
        return self.network.start(name, kuberay.with_volumes(made, volumes))

    def await_ready(self, *names: str) -> None:
        groups = {self.head: self.cluster["headGroupSpec"], self.worker: self.cluster["workerGroupSpecs"][0]}
        for name in names or groups:
            [container] = groups[name]["template"]["spec"]["containers"]
            await_success(self.network.pods[name], kuberay.probe(container, "readinessProbe"), PATIENCE_S)


def keys(store: ObjectServer, prefix: str) -> list[str]:
    listed = store.client().list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"] for entry in listed.get("Contents", [])]


def fetched(store: ObjectServer, prefix: str, folder: Path) -> Path:
    """Copies everything below a prefix."""
    client = store.client()
    for key in keys(store, f"{prefix}/"):
        if key.endswith("/"):  # an empty object that stands for a folder
            continue
        target = folder / key.removeprefix(prefix).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(BUCKET, key, str(target))
    return folder


def wait_for(condition: Callable[[], Any], network: Pods, what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}\n{network.logs()}"
        time.sleep(0.3)
    return value


def deploy(service: Manifest, address: str) -> None:
    """Sends the operator's request."""
    config = json.dumps(yaml.safe_load(service["serveConfigV2"])).encode()
    with urlopen(_serve(address, data=config, method="PUT"), timeout=60) as answer:
        assert answer.status == 200


def applications(address: str) -> dict[str, str]:
    """Returns the status of each Serve app; empty where the head does not answer."""
    try:
        with urlopen(_serve(address), timeout=30) as answer:
            found = json.load(answer)["applications"]
    except OSError:
        return {}
    return {name: application["status"] for name, application in found.items()}


def _serve(address: str, data: bytes | None = None, method: str = "GET") -> Request:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    url = f"http://{address}:{kuberay.DASHBOARD_PORT}/api/serve/applications/"
    return Request(url, data=data, method=method, headers=headers)
