"""What this project wants of the endpoint's own pods, beside the model plane: room to end, their image, their place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from .house_clusters import BATCH, image_kinds
from .manifests import Platform, Pod, all_containers, of_kind, pods_of, subject
from .quantities import gpus

RUNNER_ENDS_S = 75
"""A job may take 30 s to end its batch and 30 s to write, and its runner some seconds to say so."""
PORT_OF_AGENT = re.compile(r"--dashboard-agent-listen-port[= ](\d+)")
POD_SECURITY = "pod-security.kubernetes.io/enforce"
_OURS = ("Deployment", "Job", "CronJob")


def runners_may_end(pod: Pod) -> Iterator[str]:
    for container in pod.spec["containers"]:
        command = " ".join([*(container.get("command") or []), *(container.get("args") or [])])
        grace = pod.spec.get("terminationGracePeriodSeconds", 30)
        if "endpoint runner" in command and grace < RUNNER_ENDS_S:
            yield f"terminationGracePeriodSeconds is {grace}; a runner's jobs take up to {RUNNER_ENDS_S} s to end"


def endpoint_priority(pod: Pod) -> Iterator[str]:
    """Who waits for a batch job to end cannot grant or run any."""
    if pod.kind == "Deployment" and pod.spec.get("priorityClassName") == BATCH:
        yield f"priorityClassName is {BATCH}: the endpoint has to run while batch jobs fill the nodes"


def endpoint_image(pod: Pod) -> Iterator[str]:
    """As far as an image's name or tag tells: a GPU's libraries are gigabytes that a pod without GPUs does not use."""
    for container in all_containers(pod.spec) if pod.kind in _OURS else ():
        limits = (container.get("resources") or {}).get("limits") or {}
        if "gpu" in image_kinds(container.get("image", "")) and not gpus(limits):
            yield f"container {container['name']}: image {container['image']} without GPUs of its own"


def agent_probes(pod: Pod) -> Iterator[str]:
    """A node that is started by hand is asked at the port that its agent was given."""
    for container in all_containers(pod.spec):
        given = PORT_OF_AGENT.findall(" ".join(container.get("args") or []))
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = " ".join(((container.get(kind) or {}).get("exec") or {}).get("command") or [])
            for port in re.findall(r"localhost:(\d+)/api/local_raylet", probe) if given else ():
                if port not in given:
                    yield f"{kind} of {container['name']} asks port {port}; its agent listens on {given[0]}"


def one_version(platform: Platform) -> Iterator[tuple[str, str]]:
    """Tables, messages and Ray's own protocol go with the version: of one repository, all pods run one tag."""
    tags: dict[str, dict[str, str]] = {}
    for pod in pods_of(platform):
        for container in all_containers(pod.spec):
            name, _, tag = container.get("image", "").rpartition(":")
            if tag != "latest" and name and "/" not in tag and "@" not in name:
                version = re.sub(r"-[cg]pu$", "", tag)
                tags.setdefault(name, {}).setdefault(version, f"{pod.kind} {pod.location}")
    for name, found in tags.items():
        if len(found) > 1:
            yield name, "in several versions: " + ", ".join(f"{tag} ({where})" for tag, where in found.items())


def restricted_namespace(platform: Platform) -> Iterator[tuple[str, str]]:
    for namespace in of_kind(platform, "Namespace"):
        if (namespace["metadata"].get("labels") or {}).get(POD_SECURITY) != "restricted":
            yield subject(namespace), f"{POD_SECURITY} is not restricted: what these rules ask of pods, nobody enforces"


ENDPOINT_POD_RULES: Mapping[str, Callable[[Pod], Iterator[str]]] = {
    "runners-may-end": runners_may_end,
    "endpoint-priority": endpoint_priority,
    "endpoint-image": endpoint_image,
    "agent-probes": agent_probes,
}
ENDPOINT_RULES: Mapping[str, Callable[[Platform], Iterator[tuple[str, str]]]] = {
    "one-version": one_version,
    "restricted-namespace": restricted_namespace,
}
