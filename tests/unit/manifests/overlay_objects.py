"""The objects of a rendered overlay, to put faults into. For tests beside which `checks` can be imported."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from checks.manifests import Manifest


class Objects:
    """The objects of an overlay, to put a fault into."""

    def __init__(self, manifests: list[Manifest]) -> None:
        self.all = copy.deepcopy(manifests)

    def of(self, kind: str, name: str) -> Manifest:
        [found] = [m for m in self.all if (m["kind"], m["metadata"]["name"]) == (kind, name)]
        return found

    @property
    def job(self) -> Manifest:
        return self.of("RayJob", "c2b-dataset-build")["spec"]

    @property
    def service(self) -> Manifest:
        return self.of("RayService", "c2b-models")

    @property
    def cluster(self) -> Manifest:
        return self.service["spec"]["rayClusterConfig"]

    @property
    def head(self) -> Manifest:
        return self.cluster["headGroupSpec"]

    @property
    def worker(self) -> Manifest:
        return self.cluster["workerGroupSpecs"][0]

    @property
    def head_pod(self) -> Manifest:
        return self.head["template"]["spec"]

    @property
    def head_container(self) -> Manifest:
        return self.head_pod["containers"][0]

    @property
    def api(self) -> Manifest:
        return self.of("Deployment", "c2b-api")["spec"]["template"]["spec"]

    @property
    def api_container(self) -> Manifest:
        return self.api["containers"][0]

    @property
    def runner(self) -> Manifest:
        return self.of("Deployment", "c2b-runner")["spec"]["template"]["spec"]

    @property
    def night(self) -> Manifest:
        """The pattern of the nightly audit."""
        return self.of("RayJob", "c2b-nightly")["spec"]

    def endpoint(self, old: str, new: str) -> None:
        """Replaces a text in the endpoint's own configuration."""
        [found] = [m for m in self.all if m["kind"] == "ConfigMap" and "endpoint.yaml" in m["data"]]
        assert old in found["data"]["endpoint.yaml"]
        found["data"]["endpoint.yaml"] = found["data"]["endpoint.yaml"].replace(old, new)

    def spec(self, kind: str, name: str) -> Manifest:
        return self.of(kind, name)["spec"]

    def egress(self, policy: str) -> list[Any]:
        return self.of("NetworkPolicy", policy)["spec"]["egress"]


def cron(manifests: Objects, **spec: Any) -> None:
    job = {**copy.deepcopy(manifests.job), "activeDeadlineSeconds": 60, "backoffLimit": 0}
    metadata = {"name": "c2b-cron", "namespace": "c2b-ray"}
    body = {"schedule": "17 1 * * *", "jobTemplate": job, **spec}
    manifests.all.append({"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": metadata, "spec": body})


def incremental(o: Objects, **options: Any) -> None:
    autoscaled(o)
    settings = {"gatewayClassName": "istio", "intervalSeconds": 10, "stepSizePercent": 10, **options}
    strategy = {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": settings}
    o.service["spec"]["upgradeStrategy"] = strategy


def autoscaled(o: Objects) -> Manifest:
    """Turns the autoscaler on, whose head may then ask Kubernetes' API."""
    o.cluster.update(enableInTreeAutoscaling=True, autoscalerOptions=copy.deepcopy(AUTOSCALER))
    o.head["template"]["metadata"]["labels"]["c2b-ray.io/cluster-api"] = "true"
    o.head_pod["automountServiceAccountToken"] = True
    return o.cluster


AUTOSCALER = {
    "version": "v2",
    "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}},
    "securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True},
}
RULE = {"policy": "DeleteWorkers", "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 9}}
RULES_OUT_OF_ORDER = [RULE, {"policy": "DeleteCluster", "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 1}}]
Fault = Callable[[Objects], object]
