"""What this project wants of every pod: no rights that it does not need, memory that is its own, probes, no secret in
its text. Each rule is a pure function from a pod template to what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from .manifests import CLUSTER_API, RAY, Manifest, Pod, all_containers, environment
from .quantities import quantity, same

_SECRET = re.compile(r"SECRET|PASSWORD|TOKEN|ACCESS_KEY|DATABASE_URL|_KEY$")
_HOST = ("hostNetwork", "hostPID", "hostIPC")
WRITTEN = ("/tmp", "/home/c2b")  # noqa: S108
SHARED_MEMORY = "/dev/shm"  # noqa: S108 — the folder that Ray's object store is in


def memory_is_fixed(pod: Pod) -> Iterator[str]:
    """A container that may take more than it asked for is killed when the node is full, not when it is greedy."""
    for container in all_containers(pod.spec):
        resources = container.get("resources") or {}
        request, limit = ((resources.get(key) or {}).get("memory") for key in ("requests", "limits"))
        if not same(request, limit):
            yield f"container {container['name']}: memory is requested as {request} and limited to {limit}"


def requests_within_limits(pod: Pod) -> Iterator[str]:
    """Kubernetes refuses a request above its limit, and devices that are not requested as they are limited."""
    for container in all_containers(pod.spec):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in sorted({*requests, *limits}):
            request, limit = requests.get(name), limits.get(name)
            where = f"container {container['name']}: {name} is requested as {request} and limited to {limit}"
            if "/" in name and not (same(request, limit) or (request is None and limit is not None)):
                yield f"{where}; a device's request is its limit"
            elif request is not None and limit is not None and quantity(request) > quantity(limit):
                yield where


def unprivileged(pod: Pod) -> Iterator[str]:
    outer = pod.spec.get("securityContext") or {}
    for container in all_containers(pod.spec):
        inner = container.get("securityContext") or {}
        name = container["name"]
        if {**outer, **inner}.get("runAsNonRoot") is not True or {**outer, **inner}.get("runAsUser") == 0:
            yield f"container {name} may run as root"
        if inner.get("allowPrivilegeEscalation") is not False or inner.get("privileged"):
            yield f"container {name} may gain privileges"
        if inner.get("readOnlyRootFilesystem") is not True:
            yield f"container {name} may write to its image's files"
        capabilities = inner.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or []) or capabilities.get("add"):
            yield f"container {name} keeps capabilities"
        if inner.get("procMount", "Default") != "Default":
            yield f"container {name} sees the node's /proc unmasked"


def seccomp(pod: Pod) -> Iterator[str]:
    outer = pod.spec.get("securityContext") or {}
    for container in all_containers(pod.spec):
        profile = (container.get("securityContext") or {}).get("seccompProfile") or outer.get("seccompProfile") or {}
        if profile.get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"container {container['name']}: seccomp profile {profile.get('type')} instead of RuntimeDefault"


def apart_from_the_host(pod: Pod) -> Iterator[str]:
    for key in _HOST:
        if pod.spec.get(key):
            yield f"{key} is set"
    for volume in pod.spec.get("volumes") or []:
        if "hostPath" in volume:
            yield f"volume {volume['name']} is the node's own disk"
    for container in all_containers(pod.spec):
        for port in container.get("ports") or []:
            if port.get("hostPort"):
                yield f"container {container['name']} takes the node's port {port['hostPort']}"


def no_account_token(pod: Pod) -> Iterator[str]:
    """Only what talks to Kubernetes' API, and is allowed to by a policy, has a token for it."""
    sources = [each for volume in pod.spec.get("volumes") or [] for each in _projected(volume)]
    mounted = pod.spec.get("automountServiceAccountToken") is not False or any(
        "serviceAccountToken" in s for s in sources
    )
    if mounted and pod.labels.get(CLUSTER_API) != "true":
        yield "a token of Kubernetes' API is mounted, which nothing there uses"


def _projected(volume: Manifest) -> list[Manifest]:
    return (volume.get("projected") or {}).get("sources") or []


def priority(pod: Pod) -> Iterator[str]:
    if not pod.spec.get("priorityClassName"):
        yield "no priorityClassName"


def images(pod: Pod) -> Iterator[str]:
    for container in all_containers(pod.spec):
        image = container.get("image", "")
        name, _, tag = image.rpartition(":")
        if "/" not in image or "/" in tag or tag in ("", "latest") or not name:
            yield f"container {container['name']}: image {image!r} has no registry and fixed tag"


def secrets_by_reference(pod: Pod) -> Iterator[str]:
    for container in all_containers(pod.spec):
        for entry in container.get("env") or []:
            if _SECRET.search(entry["name"]) and "secretKeyRef" not in (entry.get("valueFrom") or {}):
                yield f"container {container['name']}: {entry['name']} is no reference to a Secret"


def writable_folders(pod: Pod) -> Iterator[str]:
    """With its image's files read-only, our program needs places for temporary files, for what libraries keep in its
    home, and for a hub's cache. A container of another image knows its own places."""
    ours = pod.spec["containers"][0].get("image")
    for container in all_containers(pod.spec):
        name, mounts = container["name"], container.get("volumeMounts") or []
        mounted = {mount["mountPath"].rstrip("/"): mount for mount in mounts}
        if len(mounted) < len(mounts):
            yield f"container {name} mounts two volumes at one path"
        for folder in WRITTEN if pod.kind != "CronJob" and container.get("image") == ours else ():
            if folder not in mounted or mounted[folder].get("readOnly"):
                yield f"container {name} has no {folder} to write to"
        cache = environment(container).get("HF_HOME")
        if cache is not None and cache not in mounted:
            yield f"container {name}: HF_HOME is {cache}, where no volume is"
        for mount in mounts:
            if mount["name"] not in {volume["name"] for volume in pod.spec.get("volumes") or []}:
                yield f"container {name} mounts {mount['name']}, which is no volume"


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
    if "submitter" in pod.location or RAY not in pod.labels:
        return
    volumes = {volume["name"]: volume.get("emptyDir") or {} for volume in pod.spec.get("volumes") or []}
    for container in all_containers(pod.spec):
        if "ray" not in container["name"]:
            continue
        mounted = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts") or []}
        volume = volumes.get(mounted.get(SHARED_MEMORY, ""), {})
        if volume.get("medium") != "Memory" or "sizeLimit" not in volume:
            yield f"container {container['name']} has no memory of a stated size at {SHARED_MEMORY}"
            continue
        size = volume["sizeLimit"]
        limit = quantity(((container.get("resources") or {}).get("limits") or {}).get("memory", 0))
        if not quantity(size) < limit:
            yield f"{SHARED_MEMORY} may take {size}, all of the container's memory"
        for store in re.findall(r"--object-store-memory[= ](\d+)", " ".join(container.get("args") or [])):
            if int(store) > quantity(size):
                yield f"container {container['name']}: {store} bytes of objects do not fit {SHARED_MEMORY}, {size}"


POD_RULES: Mapping[str, Callable[[Pod], Iterator[str]]] = {
    "memory-is-fixed": memory_is_fixed,
    "requests-within-limits": requests_within_limits,
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
