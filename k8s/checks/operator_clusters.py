"""KubeRay's own rules for the spec of a Ray cluster, which its schemas do not express (validation.go of the operator,
1.7): each is a pure function from a cluster to what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from .manifests import Cluster, containers_of, pod_of

FT_ANNOTATION = "ray.io/ft-enabled"
NAMESPACE_ANNOTATION = "ray.io/external-storage-namespace"
AUTOSCALER_V2 = "RAY_enable_autoscaler_v2"
TOKEN_SINCE = (2, 52)
_RESOURCES = ("num-cpus", "num-gpus", "memory", "resources")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def has_containers(cluster: Cluster) -> Iterator[str]:
    for name, group in cluster.groups:
        if not containers_of(pod_of(group)):
            yield f"group {name} has no container"


def resources_once(cluster: Cluster) -> Iterator[str]:
    for name, group in cluster.groups:
        both = [key for key in _RESOURCES if (group.get("rayStartParams") or {}).get(key)]
        if both and group.get("resources"):
            yield f"group {name} has resources both in rayStartParams ({', '.join(both)}) and in resources"


def labels_at_top(cluster: Cluster) -> Iterator[str]:
    for name, group in cluster.groups:
        if "labels" in (group.get("rayStartParams") or {}):
            yield f"group {name} has labels among rayStartParams; they belong in the group's own labels"
        for key, value in (group.get("labels") or {}).items():
            prefix, slash, rest = key.rpartition("/")
            if not rest or not _LABEL.fullmatch(rest) or (slash and not _PREFIX.fullmatch(prefix)):
                yield f"group {name}: {key!r} is no key of a label"
            if not _LABEL.fullmatch(str(value)):
                yield f"group {name}: {value!r} is no value of a label ({key})"


def replica_bounds(cluster: Cluster) -> Iterator[str]:
    for group in cluster.workers:
        name, low, high = group.get("groupName"), group.get("minReplicas"), group.get("maxReplicas")
        if low is None or high is None:
            yield f"group {name} needs minReplicas and maxReplicas"
        elif not 0 <= low <= high:
            yield f"group {name}: minReplicas {low} and maxReplicas {high} are not in order"
        elif not low <= (replicas := group.get("replicas", low if cluster.autoscales else 0)) <= high:
            yield f"group {name}: {replicas} replicas are outside {low} to {high}"


def group_idle_timeout(cluster: Cluster) -> Iterator[str]:
    for group in cluster.workers:
        if group.get("idleTimeoutSeconds") is not None and cluster.autoscaler != "v2":
            yield f"group {group.get('groupName')}: idleTimeoutSeconds needs the autoscaler, version v2"


def restart_policy(cluster: Cluster) -> Iterator[str]:
    """Version 2 takes a pod for one instance: one that Kubernetes restarts would be two."""
    if cluster.autoscaler == "v2" or (
        cluster.autoscales and cluster.head_environment.get(AUTOSCALER_V2) in ("1", "true")
    ):
        for name, group in cluster.groups:
            if (policy := pod_of(group).get("restartPolicy")) not in (None, "Never"):
                yield f"group {name}: restartPolicy {policy}; the autoscaler v2 wants Never, or none"


def autoscaler_once(cluster: Cluster) -> Iterator[str]:
    value = cluster.head_environment.get(AUTOSCALER_V2, "")
    if not cluster.autoscales and value in ("1", "true"):
        yield f"the head's {AUTOSCALER_V2} needs enableInTreeAutoscaling"
    if cluster.autoscaler and AUTOSCALER_V2 in cluster.head_environment:
        yield f"both autoscalerOptions.version and the head's {AUTOSCALER_V2} are set"


def suspended_groups(cluster: Cluster) -> Iterator[str]:
    for group in cluster.workers:
        if group.get("suspend"):
            yield f"group {group.get('groupName')} cannot be suspended: autoscaling, or the feature gate is off"


def gcs_conflicts(cluster: Cluster) -> Iterator[str]:
    options, environment = cluster.spec.get("gcsFaultToleranceOptions"), cluster.head_environment
    params = cluster.head.get("rayStartParams") or {}
    annotated = cluster.annotations.get(FT_ANNOTATION, "")
    if options is None and annotated.lower() != "true" and "RAY_REDIS_ADDRESS" in environment:
        yield "RAY_REDIS_ADDRESS without gcsFaultToleranceOptions"
    if "redis-username" in params or "REDIS_USERNAME" in environment:
        yield "the Redis user belongs in gcsFaultToleranceOptions.redisUsername"
    if options is None:
        return
    if annotated:
        yield f"both {FT_ANNOTATION} and gcsFaultToleranceOptions are set"
    if params.get("redis-password") or "REDIS_PASSWORD" in environment:
        yield "the Redis password belongs in gcsFaultToleranceOptions.redisPassword"
    if "RAY_REDIS_ADDRESS" in environment:
        yield "the Redis address belongs in gcsFaultToleranceOptions.redisAddress"
    if cluster.annotations.get(NAMESPACE_ANNOTATION):
        yield f"{NAMESPACE_ANNOTATION} belongs in gcsFaultToleranceOptions.externalStorageNamespace"
    if options.get("backend") == "rocksdb" and any(name.startswith("redis") for name in options):
        yield "the backend rocksdb takes no Redis options"


def token_needs_version(cluster: Cluster) -> Iterator[str]:
    if (cluster.spec.get("authOptions") or {}).get("mode") != "token":
        return
    version = re.match(r"(\d+)\.(\d+)", cluster.spec.get("rayVersion") or "")
    if version is None or (int(version[1]), int(version[2])) < TOKEN_SINCE:
        yield f"tokens need rayVersion 2.52 or later, not {cluster.spec.get('rayVersion')!r}"


CLUSTER_RULES: Mapping[str, Callable[[Cluster], Iterator[str]]] = {
    "has-containers": has_containers,
    "resources-once": resources_once,
    "labels-at-top-level": labels_at_top,
    "replica-bounds": replica_bounds,
    "group-idle-timeout-needs-v2": group_idle_timeout,
    "v2-restart-policy": restart_policy,
    "autoscaler-once": autoscaler_once,
    "suspended-group": suspended_groups,
    "gcs-ft-conflicts": gcs_conflicts,
    "token-needs-2.52": token_needs_version,
}
