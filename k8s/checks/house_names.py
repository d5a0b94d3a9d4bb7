"""Names in one object that another object must have: accounts, classes, keys of ConfigMaps and Secrets, head services.

kustomize renames what it knows to be a reference, and nothing else: with a namePrefix or an object renamed by hand, the
rest still names what is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .manifests import CLUSTER_API, Manifest, Platform, Pod, all_containers, of_kind, pods_of, selects, subject, whole

PROVIDED: dict[str, set[str] | None] = {
    "c2b-database": {"url"},
    "c2b-endpoint-secret": {"secret"},
    "c2b-object-store": None,
    "c2b-ray-token": {"auth_token"},
    "c2b-tls": None,
}
"""Secret that people make → its keys; None: whichever it has (k8s/README.md)."""
QUEUE = "kueue.x-k8s.io/queue-name"
_HEAD = re.compile(r"\b([a-z0-9][-a-z0-9]*)-head-svc\b")
_CLUSTER_WIDE = ("Namespace", "PriorityClass", "ClusterRole", "ClusterRoleBinding", "ClusterQueue", "StorageClass")


def references(platform: Platform) -> Iterator[tuple[str, str]]:
    """What is named is there, as far as this render makes it; a selector takes what it is meant for."""
    if whole(platform):
        made = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in platform}
        for pod in pods_of(platform):
            for message in (*_missing(pod, made), *_beside(pod, made)):
                yield f"{pod.kind} {pod.location}", message
        yield from _roles(platform, made)
    yield from _selectors(platform)


def _missing(pod: Pod, made: dict[tuple[str, str], Manifest]) -> Iterator[str]:
    for kind, name, keys in _named(pod):
        if (kind, name) not in made:
            yield f"names the {kind} {name}, which is not there"
            continue
        have = {*(made[kind, name].get("data") or {}), *(made[kind, name].get("binaryData") or {})}
        for key in sorted(keys - have):
            yield f"wants {key} of the {kind} {name}, which has {', '.join(sorted(have))}"


def _named(pod: Pod) -> Iterator[tuple[str, str, set[str]]]:
    """Kind, name and keys."""
    if account := pod.spec.get("serviceAccountName"):
        yield "ServiceAccount", account, set()
    if priority := pod.spec.get("priorityClassName"):
        yield "PriorityClass", priority, set()
    for volume in pod.spec.get("volumes") or []:
        for source in (volume, *((volume.get("projected") or {}).get("sources") or [])):
            if (found := source.get("configMap")) and not found.get("optional"):
                yield (
                    "ConfigMap",
                    found["name"],
                    {item["key"] for item in found.get("items") or []} | _read(pod, volume),
                )
    for container in all_containers(pod.spec):
        for found in (entry.get("configMapRef") for entry in container.get("envFrom") or []):
            if found and not found.get("optional"):
                yield "ConfigMap", found["name"], set()
        for found in ((entry.get("valueFrom") or {}).get("configMapKeyRef") for entry in container.get("env") or []):
            if found and not found.get("optional"):
                yield "ConfigMap", found["name"], {found["key"]}


def _read(pod: Pod, volume: Manifest) -> set[str]:
    """Files of the volume that commands name by their path."""
    if any(
        key not in ("name", "defaultMode") for source in volume.values() if isinstance(source, dict) for key in source
    ):
        return set()  # its files have other names than its keys
    found = set()
    for container in all_containers(pod.spec):
        for mount in container.get("volumeMounts") or []:
            words = " ".join([*(container.get("command") or []), *(container.get("args") or [])]).split()
            if mount["name"] == volume["name"] and "subPath" not in mount:
                found |= {
                    word[len(mount["mountPath"]) + 1 :] for word in words if word.startswith(f"{mount['mountPath']}/")
                }
    return found


def _beside(pod: Pod, made: dict[tuple[str, str], Manifest]) -> Iterator[str]:
    """What the text of a pod names: the head of a cluster, and the pattern of the nightly job."""
    for container in all_containers(pod.spec):
        words = container.get("command") or []
        if any(word.endswith("create_rayjob.py") for word in words):
            pattern = made.get(("RayJob", words[-1]))
            if pattern is None or pattern["spec"].get("suspend") is not True:
                yield f"makes RayJobs of {words[-1]}, which is no suspended RayJob here"
            elif QUEUE in (pattern["metadata"].get("labels") or {}):
                yield f"makes RayJobs of {words[-1]}, which has the label {QUEUE}: Kueue would start the pattern itself"
    for constraint in pod.spec.get("topologySpreadConstraints") or []:
        if not selects(constraint.get("labelSelector"), pod.labels):
            yield "topologySpreadConstraints spread other pods than its own"


def _roles(platform: Platform, made: dict[tuple[str, str], Manifest]) -> Iterator[tuple[str, str]]:
    names = {name for _, name in made}
    for binding in of_kind(platform, "RoleBinding"):
        for found in (binding["roleRef"], *(binding.get("subjects") or [])):
            if found["kind"] in ("Role", "ServiceAccount") and (found["kind"], found["name"]) not in made:
                yield subject(binding), f"binds the {found['kind']} {found['name']}, which is not there"
            if found.get("namespace", at := binding["metadata"].get("namespace")) != at:
                yield subject(binding), f"binds the {found['name']} of another namespace, {found['namespace']}"
    for role in of_kind(platform, "Role"):
        for name in (name for rule in role["rules"] for name in rule.get("resourceNames") or []):
            if name not in names:
                yield subject(role), f"lets somebody at {name}, which is not there"


def _selectors(platform: Platform) -> Iterator[tuple[str, str]]:
    everything = pods_of(platform)
    for kind in ("Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy"):
        for manifest in of_kind(platform, kind):
            spec = manifest["spec"]
            selector = {"matchLabels": spec.get("selector")} if kind == "Service" else spec.get("selector")
            selector = spec.get("podSelector") if kind == "NetworkPolicy" else selector
            optional = CLUSTER_API in ((selector or {}).get("matchLabels") or {})  # for some overlays' pods alone
            if not optional and not any(selects(selector, pod.labels) for pod in everything):
                yield subject(manifest), "its selector takes no pod"
    for deployment in of_kind(platform, "Deployment"):
        if not selects(deployment["spec"]["selector"], deployment["spec"]["template"]["metadata"]["labels"]):
            yield subject(deployment), "its selector does not take its own pods"


def head_services(platform: Platform) -> Iterator[tuple[str, str]]:
    """The operator names a cluster's service after the RayService; addresses in texts must follow."""
    if not whole(platform):
        return
    clusters = {m["metadata"]["name"] for m in platform if m["kind"] in ("RayService", "RayCluster")}
    for manifest in platform:
        for name in sorted(set(_HEAD.findall(" ".join(_texts(manifest)))) - clusters):
            yield (
                subject(manifest),
                f"names {name}-head-svc, the head of no RayService here ({', '.join(sorted(clusters))})",
            )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(part)


def secrets_are_known(platform: Platform) -> Iterator[tuple[str, str]]:
    """Nothing here makes a Secret, so that a wrong name or key of ours would show as a pod that never starts."""
    for pod in pods_of(platform):
        for name, key in _secrets(pod):
            keys = PROVIDED.get(name, set())
            if name.startswith("c2b-") and (name not in PROVIDED or (key and keys is not None and key not in keys)):
                yield (
                    f"{pod.kind} {pod.location}",
                    f"names {key or 'keys'} of the Secret {name}: see k8s/README.md for ours",
                )


def _secrets(pod: Pod) -> Iterator[tuple[str, str | None]]:
    for container in all_containers(pod.spec):
        for entry in container.get("env") or []:
            if found := (entry.get("valueFrom") or {}).get("secretKeyRef"):
                yield found["name"], found["key"]
        for entry in container.get("envFrom") or []:
            if found := entry.get("secretRef"):
                yield found["name"], None
    for volume in pod.spec.get("volumes") or []:
        if found := volume.get("secret"):
            yield found["secretName"], None


def one_namespace(platform: Platform) -> Iterator[tuple[str, str]]:
    """Policies, budgets, Services and Secrets work in their own namespace alone; a second object of a name replaces the
    first."""
    meant = {m["metadata"]["name"] for m in of_kind(platform, "Namespace")}
    spaces = [m["metadata"].get("namespace") for m in platform if m["kind"] not in _CLUSTER_WIDE]
    meant = meant or {max(set(spaces), key=spaces.count)} if spaces else meant
    seen = set()
    for manifest in platform:
        namespace = manifest["metadata"].get("namespace")
        if manifest["kind"] not in _CLUSTER_WIDE and namespace not in meant:
            yield subject(manifest), f"is in the namespace {namespace}, not in {', '.join(map(str, meant))}"
        key = (manifest["apiVersion"], manifest["kind"], namespace, manifest["metadata"]["name"])
        if key in seen:
            yield subject(manifest), "is there twice"
        seen.add(key)


def no_secrets(platform: Platform) -> Iterator[tuple[str, str]]:
    for manifest in of_kind(platform, "Secret"):
        yield subject(manifest), "secrets are made by people and named here, not kept with the manifests"
