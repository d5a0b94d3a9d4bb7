"""What holds for all objects of an overlay together: budgets, and the Serve config in step, on nodes that hold it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from .house_names import head_services, no_secrets, one_namespace, references, secrets_are_known
from .house_network import network, ports
from .manifests import (
    Manifest,
    Platform,
    at,
    cluster_of,
    containers_of,
    of_kind,
    pod_of,
    pods_of,
    selects,
    subject,
    whole,
)
from .quantities import gpus, quantity, surviving
from .render import LOADER
from .serve import made_of_deployments

REPLICA_ENDS_S, POD_ENDS_S = 20, 30
"""graceful_shutdown_timeout_s and terminationGracePeriodSeconds where nobody says."""


def budgets(platform: Platform) -> Iterator[tuple[str, str]]:
    """Each Deployment and the model plane have a budget, and none makes a drain wait for ever."""
    if not whole(platform):
        return
    found = of_kind(platform, "PodDisruptionBudget")
    for pod in pods_of(platform):
        mine = [budget for budget in found if selects(budget["spec"].get("selector"), pod.labels)]
        if pod.kind in ("Deployment", "RayService") and len(mine) != 1:
            yield f"{pod.kind} {pod.location}", f"has {len(mine)} PodDisruptionBudgets; one is needed, two block drains"
    for budget in found:
        if {"minAvailable", "maxUnavailable"} <= budget["spec"].keys():
            yield subject(budget), "has both minAvailable and maxUnavailable; Kubernetes takes one"
        elif str(budget["spec"].get("maxUnavailable", "1")).rstrip("%") == "0":
            yield subject(budget), "lets no pod go: no node of theirs can be drained"
        for deployment in of_kind(platform, "Deployment"):
            labels = deployment["spec"]["template"]["metadata"]["labels"]
            replicas = deployment["spec"].get("replicas", 1)
            if selects(budget["spec"].get("selector"), labels) and surviving(budget["spec"], replicas) >= replicas:
                yield subject(budget), f"keeps all replicas of {subject(deployment)}: no node of theirs can be drained"
        yield from ((subject(budget), message) for message in _of_ray(budget["spec"], platform))


def _of_ray(budget: Manifest, platform: Platform) -> Iterator[str]:
    """Kubernetes asks the owner of a pod how many there should be, and a RayCluster cannot tell."""
    for manifest in platform:
        taken = 0
        for _, group in cluster.groups if (cluster := cluster_of(manifest)) is not None else ():
            labels = at(group, ("template", "metadata", "labels")) or {}
            if selects(budget.get("selector"), {"ray.io/node-type": "any", **labels}):
                usual = group.get("replicas", 1)
                least = group.get("minReplicas", usual) if cluster.autoscales else usual
                taken += 1 if group is cluster.head else least
        least = budget.get("minAvailable")
        if taken and not isinstance(least, int):
            yield f"takes pods of {subject(manifest)}: only a whole number as minAvailable lets any of them go"
        elif taken and manifest["kind"] == "RayService" and isinstance(least, int) and least >= taken:
            yield f"keeps all {taken} pods of {subject(manifest)}: no node of theirs can be drained"


def endpoint_config(platform: Platform) -> Iterator[tuple[str, str]]:
    """What the pods of the endpoint share is a database, an object store and the model plane; a value of the file wins
    over a pod's environment."""
    for manifest in of_kind(platform, "ConfigMap"):
        if "endpoint.yaml" not in (data := manifest.get("data") or {}):
            continue
        config, name = yaml.load(data["endpoint.yaml"], LOADER), f"{subject(manifest)} endpoint.yaml"  # noqa: S506 — safe
        if "database" in config:
            yield (
                name,
                "database is set, which wins over the URL of PostgreSQL in the Secret c2b-database",
            )
        if not str(config.get("storage", "")).startswith("s3://"):
            yield name, f"storage is {config.get('storage')}; pods share no disk, so it must be s3://"
        host, _, port = str(config.get("listen", "")).rpartition(":")
        if host not in ("0.0.0.0", "[::]") or not port.isdigit():  # noqa: S104 — a policy closes it
            yield name, f"listen is {config.get('listen')}; probes and the Service come from outside, so 0.0.0.0:PORT"
        elif not any(int(port) in _ports(deployment) for deployment in of_kind(platform, "Deployment")):
            yield name, f"listen is {config['listen']}, which is no containerPort of a Deployment"


def _ports(deployment: Manifest) -> set[int]:
    containers = containers_of(pod_of(deployment["spec"]))
    return {port["containerPort"] for container in containers for port in container.get("ports") or []}


def serve_in_step(platform: Platform) -> Iterator[tuple[str, str]]:
    """serveConfigV2 is one that k8s/serve_config.py makes of deployments/."""
    for manifest in of_kind(platform, "RayService"):
        try:
            config = yaml.load(manifest["spec"].get("serveConfigV2") or "", LOADER)  # noqa: S506 — the safe loader in C
        except yaml.YAMLError as error:
            yield subject(manifest), f"serveConfigV2 is no YAML: {str(error).splitlines()[0]}"
            continue
        if config not in made_of_deployments():
            yield subject(manifest), "serveConfigV2 is not in step with deployments/: run python k8s/serve_config.py"


def serve_fits_nodes(platform: Platform) -> Iterator[tuple[str, str]]:
    """Each replica fits a worker of some group: its labels, CPUs, GPUs, other resources. Else Serve waits for ever. And
    the pod waits for its replicas to end their requests."""
    for manifest in of_kind(platform, "RayService"):
        config = yaml.load(manifest["spec"].get("serveConfigV2") or "{}", LOADER)  # noqa: S506 — safe
        groups = manifest["spec"]["rayClusterConfig"].get("workerGroupSpecs") or []
        for application in (config or {}).get("applications") or []:
            for deployment in application.get("deployments") or []:
                options = deployment.get("ray_actor_options") or {}
                name = f"{application['name']}/{deployment['name']}"
                hosts = [group for group in groups if _fits(options, group)]
                if not hosts:
                    yield subject(manifest), f"no group has workers for a replica of {name}: {options}"
                ends = deployment.get("graceful_shutdown_timeout_s", REPLICA_ENDS_S)
                for group in hosts:
                    if (grace := pod_of(group).get("terminationGracePeriodSeconds", POD_ENDS_S)) <= ends:
                        where = f"group {group['groupName']}: terminationGracePeriodSeconds is {grace}"
                        yield subject(manifest), f"{where}, and a replica of {name} may take {ends} to end"


def _fits(options: Mapping[str, Any], group: Manifest) -> bool:
    wanted = {"CPU": options.get("num_cpus", 0), "GPU": options.get("num_gpus", 0), "memory": options.get("memory", 0)}
    wanted |= options.get("resources") or {}
    labels, there = group.get("labels") or {}, _resources(group)
    chosen = all(labels.get(key) == value for key, value in (options.get("label_selector") or {}).items())
    some = group.get("maxReplicas", 1) > 0
    return some and chosen and all(there.get(name, 0) >= amount for name, amount in wanted.items())


def _resources(group: Manifest) -> dict[str, float]:
    """What KubeRay tells Ray that a worker has: the group's resources, else rayStartParams, else the pod's limits."""
    if not (containers := containers_of(pod_of(group))):
        return {}
    limits, params = containers[0]["resources"]["limits"], group.get("rayStartParams") or {}
    there = {
        "CPU": quantity(params.get("num-cpus", limits.get("cpu", 0))),
        "GPU": quantity(params.get("num-gpus", sum(quantity(limits[name]) for name in gpus(limits)))),
        "memory": quantity(params.get("memory", limits.get("memory", 0))),
        **json.loads((params.get("resources") or "{}").strip('"').replace('\\"', '"')),
    }
    return {**there, **{name: quantity(amount) for name, amount in (group.get("resources") or {}).items()}}


PLATFORM_RULES: Mapping[str, Callable[[Platform], Iterator[tuple[str, str]]]] = {
    "network": network,
    "ports": ports,
    "disruption-budgets": budgets,
    "references": references,
    "head-services": head_services,
    "known-secrets": secrets_are_known,
    "one-namespace": one_namespace,
    "no-secrets": no_secrets,
    "endpoint-config": endpoint_config,
    "serve-config-in-step": serve_in_step,
    "serve-fits-nodes": serve_fits_nodes,
}
"""Rules of all objects together; each yields the object and what is wrong with it."""
