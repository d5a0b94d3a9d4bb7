"""What pods of the endpoint and of Ray need to find each other: addresses, tokens, variables, ports of probes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from .house_names import PROVIDED
from .manifests import (
    CLUSTER_API,
    Cluster,
    Manifest,
    Platform,
    Pod,
    all_containers,
    at,
    cluster_of,
    containers_of,
    environment,
    of_kind,
    pod_of,
    pods_of,
    subject,
)

_COMMAND = re.compile(r"\bendpoint (api|dispatcher|runner|migrate)\b")
_JOINS = re.compile(r"\bray start\b.*--address|\bendpoint runner\b", re.DOTALL)
_HEAD = re.compile(r"\b([a-z0-9][-a-z0-9]*)-head-svc:(\d+)")
_PROBED = re.compile(r"localhost:(\d+)/api/(local_raylet|gcs)_healthz")
_PORTS = {"local_raylet": ("dashboard-agent-listen-port", "52365"), "gcs": ("dashboard-port", "8265")}
_INSIDE = (None, "ClusterIP")
OFFLINE = "HF_HUB_OFFLINE"


def node_probes(cluster: Cluster) -> Iterator[str]:
    """A node is asked at the ports of its agent and of its head's dashboard: Ray's own, unless rayStartParams say."""
    for name, group in cluster.groups:
        params = group.get("rayStartParams") or {}
        for container in containers_of(pod_of(group)):
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                text = " ".join(at(container, (kind, "exec", "command")) or [])
                for port, what in _PROBED.findall(text):
                    wanted = params.get(_PORTS[what][0], _PORTS[what][1])
                    if port != str(wanted):
                        yield f"group {name}: {kind} asks port {port} for {what}_healthz, which is at {wanted}"


def autoscaler_may_ask(cluster: Cluster) -> Iterator[str]:
    """The autoscaler stands in the head's pod and asks Kubernetes for pods."""
    template = cluster.head.get("template") or {}
    if not cluster.autoscales:
        return
    if (at(template, ("metadata", "labels")) or {}).get(CLUSTER_API) != "true":
        yield f'the head of a cluster that autoscales needs the label {CLUSTER_API}: "true", which a policy opens'
    if pod_of(cluster.head).get("automountServiceAccountToken") is False:
        yield "the head of a cluster that autoscales needs its account's token"


def stays_inside(manifest: Manifest) -> Iterator[str]:
    """Who reaches the head's ports runs code on the cluster; Serve's port has no keys."""
    cluster = cluster_of(manifest)
    if cluster is None:
        return
    kinds = {
        "headGroupSpec.serviceType": cluster.head.get("serviceType"),
        "headGroupSpec.headService": at(cluster.head, ("headService", "spec", "type")),
        "serveService": at(manifest, ("spec", "serveService", "spec", "type")),
    }
    for field, kind in kinds.items():
        if kind not in _INSIDE:
            yield f"{field} is of the type {kind}, which opens Ray to the outside; only ClusterIP keeps it inside"


def job_entrypoint(job: Manifest) -> Iterator[str]:
    if not str(job.get("entrypoint") or "").strip() and job.get("submissionMode") != "InteractiveMode":
        yield "there is no entrypoint: the job would do nothing"


def endpoint_environment(pod: Pod) -> Iterator[str]:
    """Each process of the endpoint opens the ledger, and the API signs with what all replicas share."""
    for container in all_containers(pod.spec):
        if not (found := _COMMAND.search(_words(container))):
            continue
        wanted = ["C2B_DATABASE_URL", *(["C2B_ENDPOINT_SECRET"] if found[1] == "api" else [])]
        sources = [at(entry, ("secretRef", "name")) for entry in container.get("envFrom") or []]
        if any(name is not None and name not in PROVIDED for name in sources):
            continue  # a Secret of somebody's own may hold them
        for name in wanted:
            if name not in environment(container):
                yield f"container {container['name']} has no {name}, which c2b endpoint {found[1]} needs"


def joins_with_the_token(platform: Platform) -> Iterator[tuple[str, str]]:
    """What joins a cluster that a token guards has the token, and asks a port on which the head listens."""
    services = {m["metadata"]["name"]: m for m in of_kind(platform, "RayService")}
    guarded = any(at(m, ("spec", "rayClusterConfig", "authOptions", "mode")) == "token" for m in services.values())
    for pod in pods_of(platform):
        for container in all_containers(pod.spec) if "Group" not in pod.location else ():
            where, variables = f"{pod.kind} {pod.location}", environment(container)
            joins = "RAY_ADDRESS" in variables or _JOINS.search(_words(container))
            has_token = variables.get("RAY_AUTH_MODE") == "token" and "RAY_AUTH_TOKEN" in variables
            if guarded and joins and pod.kind == "Deployment" and not has_token:
                yield where, f"container {container['name']} joins Ray without RAY_AUTH_MODE: token and its token"
            texts = " ".join([_words(container), *(value or "" for value in variables.values())])
            for name, port in _HEAD.findall(texts):
                if name in services and int(port) not in (there := _listens(services[name])):
                    yield where, f"container {container['name']} asks {name}-head-svc:{port}; the head has {there}"


def _listens(service: Manifest) -> list[int]:
    containers = containers_of(pod_of(service["spec"]["rayClusterConfig"]["headGroupSpec"]))
    return sorted(port["containerPort"] for container in containers for port in container.get("ports") or [])


def offline_together(platform: Platform) -> Iterator[tuple[str, str]]:
    """Where one pod with a hub's cache is offline, all are: the others would wait for a hub that they cannot reach."""
    cached = [
        (pod, container, environment(container).get(OFFLINE) == "1")
        for pod in pods_of(platform)
        for container in all_containers(pod.spec)
        if "HF_HOME" in environment(container)
    ]
    if any(offline for _, _, offline in cached):
        for pod, container, offline in cached:
            if not offline:
                yield (
                    f"{pod.kind} {pod.location}",
                    f'container {container["name"]} has no {OFFLINE}: "1", as others have',
                )


def uses_the_model_plane(platform: Platform) -> Iterator[tuple[str, str]]:
    """An endpoint beside a RayService says where it is; else each job would load models of its own."""
    services = of_kind(platform, "RayService")
    for manifest in of_kind(platform, "ConfigMap"):
        text = (manifest.get("data") or {}).get("endpoint.yaml", "serve:")
        if services and not re.search(r"^serve:\s*\S*$|^serve:\s*\S", text, re.MULTILINE):
            yield subject(manifest), f"endpoint.yaml has no serve: {services[0]['metadata']['name']}-head-svc:6379"


def _words(container: Manifest) -> str:
    return " ".join([*(container.get("command") or []), *(container.get("args") or [])])


JOINS_CLUSTER_RULES: Mapping[str, Callable[[Cluster], Iterator[str]]] = {
    "node-probes": node_probes,
    "autoscaler-may-ask": autoscaler_may_ask,
}
JOINS_JOB_RULES: Mapping[str, Callable[[Manifest], Iterator[str]]] = {"job-entrypoint": job_entrypoint}
JOINS_OBJECT_RULES: Mapping[str, Callable[[Manifest], Iterator[str]]] = {"stays-inside": stays_inside}
JOINS_POD_RULES: Mapping[str, Callable[[Pod], Iterator[str]]] = {"endpoint-environment": endpoint_environment}
JOINS_RULES: Mapping[str, Callable[[Platform], Iterator[tuple[str, str]]]] = {
    "joins-with-the-token": joins_with_the_token,
    "offline-together": offline_together,
    "uses-the-model-plane": uses_the_model_plane,
}
