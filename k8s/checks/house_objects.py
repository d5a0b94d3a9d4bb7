"""What Kubernetes refuses although its schemas take it, and texts and rights that have no place in an object."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .manifests import Manifest, Platform, Pod, all_containers, at, cluster_of, containers_of, of_kind, pods_of, subject
from .operator_clusters import _LABEL, _PREFIX

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME = 253
_RBAC = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bc2b_[A-Za-z0-9]{8}_[A-Za-z0-9]{32}\b|\bAKIA[A-Z0-9]{16}\b"
    r"|aws_secret_access_key[\"']?\s*[=:]\s*[\"']?\w|\w+://[^/\s:@]+:[^/\s:@$]+@|--redis-password[= ]\S",
    re.IGNORECASE,
)
_RESTARTS = {"Deployment": (None, "Always"), "Job": ("Never", "OnFailure"), "CronJob": ("Never", "OnFailure")}
NIGHTLY = "create_rayjob.py"


def named_once(pod: Pod) -> Iterator[str]:
    """Kubernetes refuses two of a name; of two variables, the last one counts without a word."""
    containers = all_containers(pod.spec)
    yield from (f"two containers are named {name}" for name in _twice(c["name"] for c in containers))
    yield from (f"two volumes are named {name}" for name in _twice(v["name"] for v in pod.spec.get("volumes") or []))
    for container in containers:
        where = f"container {container['name']}"
        yield from (f"{where} sets {name} twice" for name in _twice(e["name"] for e in container.get("env") or []))
        ports = container.get("ports") or []
        yield from (f"{where} has two ports {name}" for name in _twice(p["name"] for p in ports if "name" in p))


def restarts(pod: Pod) -> Iterator[str]:
    allowed, policy = _RESTARTS.get(pod.kind), pod.spec.get("restartPolicy")
    if allowed is not None and policy not in allowed:
        yield f"restartPolicy is {policy}; pods of a {pod.kind} have {' or '.join(map(str, filter(None, allowed)))}"


def labels(pod: Pod) -> Iterator[str]:
    yield from _wrong_labels(pod.labels)


def _twice(names: Any) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _wrong_labels(found: Mapping[str, Any]) -> Iterator[str]:
    for key, value in found.items():
        prefix, slash, name = key.rpartition("/")
        if not name or not _LABEL.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
            yield f"{key!r} is no key of a label"
        if not isinstance(value, str) or not _LABEL.fullmatch(value):
            yield f"{value!r} is no value of a label ({key})"


def metadata(manifest: Manifest) -> Iterator[str]:
    """Names and labels; those of KubeRay's kinds are shorter (`names`)."""
    name = manifest["metadata"]["name"]
    if manifest["kind"] not in _RBAC and (len(name) > _LONGEST_NAME or not _NAME.fullmatch(name)):
        yield f"{name!r} is no name of the form a-z, 0-9, - and ."
    yield from _wrong_labels(manifest["metadata"].get("labels") or {})
    if (at(manifest, ("spec", "replicas")) or 0) < 0:
        yield f"replicas is {manifest['spec']['replicas']}; at least 0"


def groups_once(manifest: Manifest) -> Iterator[str]:
    """The operator counts a group's pods by its name: of two groups with one name it would make half."""
    cluster = cluster_of(manifest)
    groups = [group.get("groupName") for group in cluster.workers] if cluster is not None else []
    yield from (f"two groups of workers are named {name}" for name in _twice(groups))


def no_secret_texts(platform: Platform) -> Iterator[tuple[str, str]]:
    """Keys and passwords stand in Secrets, which other people may read than those who read ConfigMaps and commands."""
    for manifest in of_kind(platform, "ConfigMap"):
        for key, text in (manifest.get("data") or {}).items():
            if _SECRET_TEXT.search(text):
                yield subject(manifest), f"{key} holds a key or a password; put it into a Secret"
    for pod in pods_of(platform):
        for container in all_containers(pod.spec):
            values = [entry.get("value") or "" for entry in container.get("env") or []]
            texts = [*(container.get("command") or []), *(container.get("args") or []), *values]
            if any(_SECRET_TEXT.search(text) for text in texts):
                yield f"{pod.kind} {pod.location}", f"container {container['name']} has a key or a password in its text"


def narrow_rights(platform: Platform) -> Iterator[tuple[str, str]]:
    """What our accounts may do at Kubernetes' API: the nightly job makes RayJobs, and nobody else asks for anything."""
    accounts = {pod.spec.get("serviceAccountName") for pod in pods_of(platform)} - {None}
    granted: dict[str, list[Manifest]] = {}
    roles = {(m["kind"], m["metadata"]["name"]): m for kind in ("Role", "ClusterRole") for m in of_kind(platform, kind)}
    for binding in (m for kind in ("RoleBinding", "ClusterRoleBinding") for m in of_kind(platform, kind)):
        ours = [s["name"] for s in binding.get("subjects") or [] if s["kind"] == "ServiceAccount"]
        if not accounts & set(ours):
            continue
        if binding["kind"] == "ClusterRoleBinding":
            yield subject(binding), "gives an account of ours rights in the whole cluster; a RoleBinding is enough"
        role = roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        rules = (role or {}).get("rules") or []
        yield from ((subject(binding), message) for rule in rules for message in _too_wide(rule))
        for account in ours:
            granted.setdefault(account, []).extend(rules)
    yield from _nightly_rights(platform, granted)


def _too_wide(rule: Manifest) -> Iterator[str]:
    for field in ("apiGroups", "resources", "verbs"):
        if "*" in (rule.get(field) or []):
            yield f"gives an account of ours all {field}"
    if any(name.partition("/")[0] == "secrets" for name in rule.get("resources") or []):
        yield "lets an account of ours read Secrets"


def _nightly_rights(platform: Platform, granted: Mapping[str, list[Manifest]]) -> Iterator[tuple[str, str]]:
    for pod in pods_of(platform):
        commands = [word for container in containers_of(pod.spec) for word in container.get("command") or []]
        if not any(word.endswith(NIGHTLY) for word in commands):
            continue
        rules = granted.get(pod.spec.get("serviceAccountName", "default"), [])
        of_jobs = [rule for rule in rules if {"rayjobs", "*"} & set(rule.get("resources") or [])]
        verbs = {verb for rule in of_jobs for verb in rule.get("verbs") or []}
        if missing := {"get", "create"} - verbs if "*" not in verbs else set():
            yield f"{pod.kind} {pod.location}", f"its account may not {' or '.join(sorted(missing))} RayJobs"


def priorities_in_order(platform: Platform) -> Iterator[tuple[str, str]]:
    """The endpoint and its models displace batch jobs, never the reverse."""
    found = {m["metadata"]["name"]: m for m in of_kind(platform, "PriorityClass")}
    serving, batch = found.get("c2b-ray-serving"), found.get("c2b-ray-batch")
    if serving is not None and batch is not None and serving.get("value", 0) <= batch.get("value", 0):
        yield subject(serving), f"value {serving.get('value')} is not above that of batch jobs, {batch.get('value')}"


OBJECTS_POD_RULES: Mapping[str, Callable[[Pod], Iterator[str]]] = {
    "named-once": named_once,
    "restarts": restarts,
    "labels": labels,
}
OBJECTS_RULES: Mapping[str, Callable[[Manifest], Iterator[str]]] = {"metadata": metadata, "groups-once": groups_once}
OBJECTS_PLATFORM_RULES: Mapping[str, Callable[[Platform], Iterator[tuple[str, str]]]] = {
    "no-secret-texts": no_secret_texts,
    "narrow-rights": narrow_rights,
    "priorities-in-order": priorities_in_order,
}
