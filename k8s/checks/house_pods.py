"""What this project wants of every pod: no rights that it does not need, memory that is its own, probes, no secret in
its text. Each rule is a pure function from a pod template to what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from .manifests import CLUSTER_API, RAY, Manifest, Pod

_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "": 1}
_SECRET = re.compile(r"SECRET|PASSWORD|TOKEN|ACCESS_KEY|DATABASE_URL|_KEY$")
_HOST = ("hostNetwork", "hostPID", "hostIPC")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 — the folder that Ray's object store is in


def quantity(text: str | int) -> float:
    """Bytes of a quantity such as 4Gi; ValueError where it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T|)", str(text))
    if match is None:
        raise ValueError(f"{text!r} is no quantity of bytes")
    return float(match[1]) * _UNITS[match[2]]


def _all_containers(pod: Pod) -> list[Manifest]:
    return [*(pod.spec.get("initContainers") or []), *pod.spec["containers"]]


def memory_is_fixed(pod: Pod) -> Iterator[str]:
    """A container that may take more than it asked for is killed when the node is full, not when it is greedy."""
    for container in _all_containers(pod):
        resources = container.get("resources") or {}
        request, limit = ((resources.get(key) or {}).get("memory") for key in ("requests", "limits"))
        if request is None or request != limit:
            yield f"container {container['name']}: memory is requested as {request} and limited to {limit}"


def unprivileged(pod: Pod) -> Iterator[str]:
    outer = pod.spec.get("securityContext") or {}
    for container in _all_containers(pod):
        inner = container.get("securityContext") or {}
        name = container["name"]
        if {**outer, **inner}.get("runAsNonRoot") is not True or {**outer, **inner}.get("runAsUser") == 0:
            yield f"container {name} may run as root"
        if inner.get("allowPrivilegeEscalation") is not False or inner.get("privileged"):
            yield f"container {name} may gain privileges"
        if inner.get("readOnlyRootFilesystem") is not True:
            yield f"container {name} may write to its image's files"
        if "ALL" not in ((inner.get("capabilities") or {}).get("drop") or []):
            yield f"container {name} keeps capabilities"


def seccomp(pod: Pod) -> Iterator[str]:
    outer = pod.spec.get("securityContext") or {}
    for container in _all_containers(pod):
        profile = (container.get("securityContext") or {}).get("seccompProfile") or outer.get("seccompProfile") or {}
        if profile.get("type") != "RuntimeDefault":
            yield f"container {container['name']}: seccomp profile {profile.get('type')} instead of RuntimeDefault"


def apart_from_the_host(pod: Pod) -> Iterator[str]:
    for key in _HOST:
        if pod.spec.get(key):
            yield f"{key} is set"
    for volume in pod.spec.get("volumes") or []:
        if "hostPath" in volume:
            yield f"volume {volume['name']} is the node's own disk"


def no_account_token(pod: Pod) -> Iterator[str]:
    """Only what talks to Kubernetes' API, and is allowed to by a policy, has a token for it."""
    if pod.spec.get("automountServiceAccountToken") is not False and pod.labels.get(CLUSTER_API) != "true":
        yield "a token of Kubernetes' API is mounted, which nothing there uses"


def priority(pod: Pod) -> Iterator[str]:
    if not pod.spec.get("priorityClassName"):
        yield "no priorityClassName"


def images(pod: Pod) -> Iterator[str]:
    for container in _all_containers(pod):
        image = container.get("image", "")
        name, _, tag = image.rpartition(":")
        if "/" not in image or "/" in tag or tag in ("", "latest") or not name:
            yield f"container {container['name']}: image {image!r} has no registry and fixed tag"


def secrets_by_reference(pod: Pod) -> Iterator[str]:
    for container in _all_containers(pod):
        for entry in container.get("env") or []:
            if _SECRET.search(entry["name"]) and "secretKeyRef" not in (entry.get("valueFrom") or {}):
                yield f"container {container['name']}: {entry['name']} is no reference to a Secret"


def writable_folders(pod: Pod) -> Iterator[str]:
    """With its image's files read-only, a program needs a place for temporary files."""
    for container in _all_containers(pod):
        mounted = {mount["mountPath"]: mount for mount in container.get("volumeMounts") or []}
        if "/tmp" not in mounted and pod.kind != "CronJob":  # noqa: S108
            yield f"container {container['name']} has no /tmp to write to"
        for mount in mounted.values():
            if mount["name"] not in {volume["name"] for volume in pod.spec.get("volumes") or []}:
                yield f"container {container['name']} mounts {mount['name']}, which is no volume"


def probes(pod: Pod) -> Iterator[str]:
    if pod.kind == "Deployment" and "c2b-ray.io/api" not in pod.labels:
        return  # dispatcher and runners listen nowhere: what they are worth is in the ledger
    if (
        pod.kind not in ("Deployment", "RayService", "RayCluster", "RayJob", "RayCronJob")
        or "submitter" in pod.location
    ):
        return
    for name in ("readinessProbe", "livenessProbe"):
        if name not in pod.spec["containers"][0]:
            yield f"container {pod.spec['containers'][0]['name']} has no {name}"


def shared_memory(pod: Pod) -> Iterator[str]:
    """Ray's object store is in shared memory, of which a container has 64 MiB unless a volume says otherwise."""
    if "ray" not in pod.spec["containers"][0]["name"] or "submitter" in pod.location or RAY not in pod.labels:
        return
    container = pod.spec["containers"][0]
    mounted = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts") or []}
    volumes = {volume["name"]: volume.get("emptyDir") or {} for volume in pod.spec.get("volumes") or []}
    volume = volumes.get(mounted.get(SHARED_MEMORY, ""), {})
    if volume.get("medium") != "Memory" or "sizeLimit" not in volume:
        yield f"container {container['name']} has no memory of a stated size at {SHARED_MEMORY}"
        return
    limit = quantity(((container.get("resources") or {}).get("limits") or {}).get("memory", 0))
    if not quantity(volume["sizeLimit"]) < limit:
        yield f"{SHARED_MEMORY} may take {volume['sizeLimit']}, all of the container's memory"


POD_RULES: Mapping[str, Callable[[Pod], Iterator[str]]] = {
    "memory-is-fixed": memory_is_fixed,
    "unprivileged": unprivileged,
    "seccomp": seccomp,
    "apart-from-the-host": apart_from_the_host,
    "no-account-token": no_account_token,
    "priority": priority,
    "images": images,
    "secrets-by-reference": secrets_by_reference,
    "writable-folders": writable_folders,
    "probes": probes,
    "shared-memory": shared_memory,
}
