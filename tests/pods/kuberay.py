"""Computes the commands that KubeRay's operator derives from rendered manifests.

These are `ray start` of each group with its environment, the submitter of a RayJob, and the request that deploys a
RayService's apps; they follow the operator's pod.go and job.go, 1.7. This module knows manifests and the operator's
defaults, and runs nothing.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pods import Container

ROOT = Path(__file__).parents[2]
Manifest = dict[str, Any]
Secrets = Mapping[str, Mapping[str, str]]
GCS_PORT, DASHBOARD_PORT = 6379, 8265
GCS_FOLDER = "/var/lib/ray/gcs"
UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
IMAGE = {
    "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
    "PYTHONPATH": str(ROOT),
    "HOME": "/home/c2b",
    "PYTHONUNBUFFERED": "1",
    "HF_HUB_OFFLINE": "1",
}
"""The environment variables of the image (deployments/cpu.Dockerfile), in whose place pods see this machine's files."""


@dataclass(frozen=True)
class World:
    """Secrets and config maps by name, which a cluster's administrators add to the manifests."""

    secrets: Secrets
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def one(manifests: list[Manifest], kind: str, name: str) -> Manifest:
    [found] = [m for m in manifests if (m["kind"], m["metadata"]["name"]) == (kind, name)]
    return found


def container(pod: Manifest, spec: Manifest, world: World, more: Mapping[str, str], command: str) -> Container:
    """Returns a container of a pod's spec with this command and the operator's environment variables."""
    volumes = {volume["name"]: volume for volume in pod.get("volumes") or []}
    empty, files = [], {}
    for mount in spec.get("volumeMounts") or []:
        volume = volumes[mount["name"]]
        if "emptyDir" in volume:
            empty.append(mount["mountPath"])
        elif "configMap" in volume:
            for name, text in world.config_maps.get(volume["configMap"]["name"], {}).items():
                files[f"{mount['mountPath']}/{name}"] = text
        else:
            raise AssertionError(f"the test has no volume such as {volume}")
    return Container(command, {**IMAGE, **environment(spec, world.secrets), **more}, tuple(empty), files)


def environment(spec: Manifest, secrets: Secrets) -> dict[str, str]:
    values: dict[str, str] = {}
    for source in spec.get("envFrom") or []:
        values |= secrets[source["secretRef"]["name"]]
    for entry in spec.get("env") or []:
        reference = (entry.get("valueFrom") or {}).get("secretKeyRef")
        values[entry["name"]] = secrets[reference["name"]][reference["key"]] if reference else entry["value"]
    return values


def ray_node(cluster: Manifest, group: Manifest, service: str, world: World) -> Container:
    """Returns the pod of a group; `service`: the name of the head's service. The head is the group without a
    groupName."""
    pod = group["template"]["spec"]
    [spec] = pod["containers"]
    head = "groupName" not in group
    address = f"{'127.0.0.1' if head else service}:{GCS_PORT}"
    more = {"RAY_ADDRESS": address, "RAY_PORT": str(GCS_PORT), "RAY_USAGE_STATS_KUBERAY_IN_USE": "1"}
    more |= _token(cluster, world.secrets)
    outlives = (cluster.get("gcsFaultToleranceOptions") or {}).get("backend") == "rocksdb"
    if outlives and head:
        more |= {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": GCS_FOLDER}
    elif outlives:
        more["RAY_gcs_rpc_server_reconnect_timeout_s"] = "600"
    wait = "" if head else f"until ray health-check --address {address} >/dev/null 2>&1; do sleep 1; done; "
    return container(pod, spec, world, more, wait + ray_start(group, spec, address))


def _token(cluster: Manifest, secrets: Secrets) -> dict[str, str]:
    options = cluster.get("authOptions") or {}
    if options.get("mode") != "token":
        return {"RAY_AUTH_MODE": "disabled"}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets[options["secretName"]]["auth_token"]}


def ray_start(group: Manifest, spec: Manifest, address: str) -> str:
    """Returns `ray start` with the group's parameters and those that the operator adds."""
    head = "groupName" not in group
    limits = spec["resources"]["limits"]
    params = {
        "block": "true",
        "dashboard-agent-listen-port": "52365",
        "metrics-export-port": "8080",
        "memory": str(_bytes(limits["memory"])),
        "num-cpus": str(int(limits["cpu"])),
        **({} if head else {"address": address}),
        **(group.get("rayStartParams") or {}),
    }
    if labels := group.get("labels"):
        params["labels"] = ",".join(f"{key}={value}" for key, value in labels.items())
    flags = [f"--{key}" if value == "true" else f"--{key}={value}" for key, value in sorted(params.items())]
    return f"ulimit -n 65536; ray start {'--head ' if head else ''}{' '.join(flags)}"


def _bytes(quantity: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(Ki|Mi|Gi)", quantity).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


def with_volumes(made: Container, volumes: Mapping[str, Path]) -> Container:
    """Returns the same container with folders that outlive the pod, as with a volume claim."""
    return replace(made, volumes={**made.volumes, **volumes})


def probe(spec: Manifest, name: str) -> str:
    """Returns a probe's command."""
    return shlex.join(spec[name]["exec"]["command"])


def http_probe(spec: Manifest, name: str) -> str:
    """Returns a command that asks what a probe by HTTP asks, from inside the pod."""
    asked = spec[name]["httpGet"]
    ports = {port["name"]: port["containerPort"] for port in spec["ports"]}
    url = f"http://localhost:{ports.get(asked['port'], asked['port'])}{asked['path']}"
    return f"wget --tries 1 -T {spec[name]['timeoutSeconds']} -q -O- {url}"


def sidecar(pod: Manifest, world: World, files: Mapping[str, str]) -> Container:
    """Returns the first init container of a pod's spec, a sidecar. `files`: the files of its config map."""
    [spec] = pod["initContainers"]
    maps = {volume["configMap"]["name"]: files for volume in pod["volumes"] if "configMap" in volume}
    command = shlex.join([*spec["command"], *spec.get("args", [])])
    return container(pod, spec, replace(world, config_maps=maps), {}, f"exec {command}")


def main_container(pod: Manifest, world: World, files: Mapping[str, str]) -> Container:
    """Returns the only container of a pod's spec, with its own command."""
    [spec] = pod["containers"]
    maps = {volume["configMap"]["name"]: files for volume in pod["volumes"] if "configMap" in volume}
    return container(pod, spec, replace(world, config_maps=maps), {}, f"exec {shlex.join(spec['command'])}")


def submitter(job: Manifest, service: str, submission: str, world: World) -> Container:
    """Returns the pod that submits a RayJob's entrypoint to its cluster and prints its output."""
    pod = job["submitterPodTemplate"]["spec"]
    [spec] = pod["containers"]
    at = f"--address http://{service}:{DASHBOARD_PORT}"
    submit = f"ray job submit {at} --no-wait --submission-id {submission} -- {job['entrypoint']}"
    known = f"ray job status {at} {submission} >/dev/null 2>&1"
    command = f"if ! {known}; then {submit}; fi; ray job logs {at} --follow {submission}"
    more = {"PYTHONUNBUFFERED": "1", **_token(job["rayClusterSpec"], world.secrets)}
    return container(pod, spec, world, more, command)
