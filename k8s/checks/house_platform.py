"""What holds for all objects of an overlay together: policies, budgets, references, and the Serve config in step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from ipaddress import ip_address, ip_network
from typing import Any

import yaml

from .house_pods import quantity
from .manifests import CLUSTER_API, LEDGER, RAY, Manifest, Pod, containers_of, pod_of, pods, selects, subject
from .render import LOADER
from .serve import SOURCES, serve_config

METADATA = "169.254.169.254"
DNS, HTTPS, POSTGRES = 53, 443, 5432
Platform = Sequence[Manifest]


def _pods(platform: Platform) -> list[Pod]:
    return [pod for manifest in platform for pod in pods(manifest, manifest["kind"])]


def _of(platform: Platform, kind: str) -> list[Manifest]:
    return [manifest for manifest in platform if manifest["kind"] == kind]


def _is_whole(platform: Platform) -> bool:
    """Whether this is what stands beside the cluster's own objects, rather than one RayCluster or some RayJobs."""
    return bool(_of(platform, "Namespace"))


def network(platform: Platform) -> Iterator[tuple[str, str]]:
    """Default deny; DNS for all, the object store for our pods, the database for those with the ledger; no metadata."""
    if not _is_whole(platform):
        return
    policies = _of(platform, "NetworkPolicy")
    for pod in _pods(platform):
        mine = [policy["spec"] for policy in policies if selects(policy["spec"].get("podSelector"), pod.labels)]
        sides = {side for policy in mine for side in policy.get("policyTypes") or []}
        where = f"{pod.kind} {pod.location}"
        if sides != {"Ingress", "Egress"}:
            yield "NetworkPolicy", f"{where}: no policy closes it on both sides"
        rules = [rule for policy in mine for rule in policy.get("egress") or []]
        needs = {DNS: True, HTTPS: CLUSTER_API not in pod.labels or None, POSTGRES: LEDGER in pod.labels or None}
        for port, needed in needs.items():
            if needed and not any(_has_port(rule, port) for rule in rules):
                yield "NetworkPolicy", f"{where}: no policy lets it out to port {port}"
        if any(_reaches_metadata(rule) for rule in rules):
            yield "NetworkPolicy", f"{where}: may reach the node's metadata at {METADATA}"
        if RAY in pod.labels and not any(_is_among_ray(rule) for rule in rules):
            yield "NetworkPolicy", f"{where}: may not reach the other nodes of Ray"


def _has_port(rule: Mapping[str, Any], port: int) -> bool:
    """A peer chosen by the label of the object store has whichever port its store listens on."""
    ports = rule.get("ports")
    if ports is None:
        labels = [(peer.get("podSelector") or {}).get("matchLabels") or {} for peer in rule.get("to") or []]
        return port == HTTPS and any("c2b-ray.io/object-store" in label for label in labels)
    return any(entry.get("port") == port for entry in ports)


def _reaches_metadata(rule: Mapping[str, Any]) -> bool:
    if not rule.get("to"):
        return True
    for block in filter(None, (peer.get("ipBlock") for peer in rule["to"])):
        spared = any(ip_address(METADATA) in ip_network(cidr) for cidr in block.get("except") or [])
        if ip_address(METADATA) in ip_network(block["cidr"]) and not spared:
            return True
    return False


def _is_among_ray(rule: Mapping[str, Any]) -> bool:
    return any(((peer.get("podSelector") or {}).get("matchLabels") or {}).get(RAY) for peer in rule.get("to") or [])


def budgets(platform: Platform) -> Iterator[tuple[str, str]]:
    """Each Deployment and the model plane have a budget, and none makes a drain wait for ever."""
    if not _is_whole(platform):
        return
    found = _of(platform, "PodDisruptionBudget")
    for pod in _pods(platform):
        # The operator adds ray.io/node-type.
        labels = {**pod.labels, "ray.io/node-type": "any"} if pod.kind == "RayService" else pod.labels
        mine = [budget for budget in found if selects(budget["spec"].get("selector"), labels)]
        if pod.kind in ("Deployment", "RayService") and len(mine) != 1:
            yield f"{pod.kind} {pod.location}", f"has {len(mine)} PodDisruptionBudgets; one is needed, two block drains"
    for deployment in _of(platform, "Deployment"):
        for budget in found:
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            least = budget["spec"].get("minAvailable", 0)
            if selects(budget["spec"].get("selector"), labels) and least >= deployment["spec"].get("replicas", 1):
                yield subject(budget), f"keeps all replicas of {subject(deployment)}: no node of theirs can be drained"


def references(platform: Platform) -> Iterator[tuple[str, str]]:
    """What is named is there, as far as this render makes it; a selector takes what it is meant for."""
    made = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in platform}
    everything = _pods(platform)
    for pod in everything if _is_whole(platform) else []:
        for kind, name in _named(pod):
            if (kind, name) not in made:
                yield f"{pod.kind} {pod.location}", f"names the {kind} {name}, which is not there"
    for kind in ("Service", "Deployment", "PodDisruptionBudget", "NetworkPolicy"):
        for manifest in _of(platform, kind):
            spec = manifest["spec"]
            selector = {"matchLabels": spec["selector"]} if kind == "Service" else spec.get("selector")
            selector = spec.get("podSelector") if kind == "NetworkPolicy" else selector
            if not any(selects(selector, {"ray.io/node-type": "any", **pod.labels}) for pod in everything):
                yield subject(manifest), "its selector takes no pod"
    for deployment in _of(platform, "Deployment"):
        if not selects(deployment["spec"]["selector"], deployment["spec"]["template"]["metadata"]["labels"]):
            yield subject(deployment), "its selector does not take its own pods"


def _named(pod: Pod) -> Iterator[tuple[str, str]]:
    if account := pod.spec.get("serviceAccountName"):
        yield "ServiceAccount", account
    if priority := pod.spec.get("priorityClassName"):
        yield "PriorityClass", priority
    for volume in pod.spec.get("volumes") or []:
        if "configMap" in volume and not volume["configMap"].get("optional"):
            yield "ConfigMap", volume["configMap"]["name"]


def no_secrets(platform: Platform) -> Iterator[tuple[str, str]]:
    for manifest in _of(platform, "Secret"):
        yield subject(manifest), "secrets are made by people and named here, not kept with the manifests"


def serve_in_step(platform: Platform) -> Iterator[tuple[str, str]]:
    """serveConfigV2 is one that k8s/serve_config.py makes of deployments/."""
    for manifest in _of(platform, "RayService"):
        try:
            config = yaml.load(manifest["spec"].get("serveConfigV2") or "", LOADER)  # noqa: S506 — the safe loader in C
        except yaml.YAMLError as error:
            yield subject(manifest), f"serveConfigV2 is no YAML: {str(error).splitlines()[0]}"
            continue
        if config not in _made():
            yield subject(manifest), "serveConfigV2 is not in step with deployments/: run python k8s/serve_config.py"


def serve_fits_nodes(platform: Platform) -> Iterator[tuple[str, str]]:
    """Each replica fits a worker of some group: its labels, CPUs, GPUs, other resources. Else Serve waits for ever."""
    for manifest in _of(platform, "RayService"):
        config = yaml.load(manifest["spec"].get("serveConfigV2") or "{}", LOADER)  # noqa: S506 — safe
        groups = manifest["spec"]["rayClusterConfig"].get("workerGroupSpecs") or []
        for application in (config or {}).get("applications") or []:
            for deployment in application.get("deployments") or []:
                options = deployment.get("ray_actor_options") or {}
                if not any(_fits(options, group) for group in groups):
                    name = f"{application['name']}/{deployment['name']}"
                    yield subject(manifest), f"no group has workers for a replica of {name}: {options}"


def _fits(options: Mapping[str, Any], group: Manifest) -> bool:
    if not (containers := containers_of(pod_of(group))):
        return False
    labels, limits = group.get("labels") or {}, containers[0]["resources"]["limits"]
    there = {
        "CPU": float(limits["cpu"]),
        "GPU": sum(float(count) for name, count in limits.items() if name.endswith("/gpu")),
        "memory": quantity(limits["memory"]),
        **json.loads(((group.get("rayStartParams") or {}).get("resources") or "{}").strip('"').replace('\\"', '"')),
    }
    wanted = {"CPU": options.get("num_cpus", 0), "GPU": options.get("num_gpus", 0), "memory": options.get("memory", 0)}
    wanted |= options.get("resources") or {}
    chosen = all(labels.get(key) == value for key, value in (options.get("label_selector") or {}).items())
    return chosen and all(there.get(name, 0) >= amount for name, amount in wanted.items())


@cache
def _made() -> list[dict[str, object]]:
    return [serve_config(overlay) for overlay in SOURCES]


PLATFORM_RULES: Mapping[str, Callable[[Platform], Iterator[tuple[str, str]]]] = {
    "network": network,
    "disruption-budgets": budgets,
    "references": references,
    "no-secrets": no_secrets,
    "serve-config-in-step": serve_in_step,
    "serve-fits-nodes": serve_fits_nodes,
}
"""Rules of all objects together; each yields the object and what is wrong with it."""
