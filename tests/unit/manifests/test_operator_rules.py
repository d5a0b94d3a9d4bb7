"""Vectors of the operator's rules: what it takes, beside what it refuses (the faults in test_overlays)."""

# ruff: noqa: E501 — a fault or vector a line

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checks.manifests import Cluster, Manifest
from checks.operator_clusters import CLUSTER_RULES
from checks.operator_jobs import JOB_RULES, OBJECT_RULES
from checks.schemas import custom

CLUSTER: Manifest = {"headGroupSpec": {}}
POD = {"template": {"spec": {"containers": [{"name": "ray"}]}}}
WORKER = {"groupName": "w", "replicas": 1, "minReplicas": 1, "maxReplicas": 1, **POD}
SCALED = {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v2"}}

TAKEN_JOBS: list[Manifest] = [
    {"suspend": True, "shutdownAfterJobFinishes": True},
    {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 1},
    {"ttlSecondsAfterFinished": 0},
    {"submissionMode": "InteractiveMode", "backoffLimit": 0},
    {"submissionMode": "K8sJobMode", "backoffLimit": 3, "submitterPodTemplate": {}, "submitterConfig": {}},
    {"submissionMode": "SidecarMode", "rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"restartPolicy": "Never"}}}}},
    {"clusterSelector": {"ray.io/cluster": "a"}, "submissionMode": "HTTPMode"},
    {"deletionStrategy": {"deletionRules": [{"policy": "DeleteWorkers", "condition": {"jobStatus": "FAILED", "ttlSeconds": 5}}, {"policy": "DeleteCluster", "condition": {"jobStatus": "FAILED", "ttlSeconds": 5}}]}},
    {"activeDeadlineSeconds": 1, "backoffLimit": 0, "runtimeEnvYAML": "env_vars: {A: b}"},
]  # fmt: skip


@pytest.mark.parametrize("job", TAKEN_JOBS, ids=str)
def test_jobs_that_the_operator_takes(job: Manifest) -> None:
    whole = {"rayClusterSpec": CLUSTER, **job}
    assert {rule: message for rule, check in JOB_RULES.items() for message in check(whole)} == {}


REFUSED_JOBS: list[tuple[str, Manifest]] = [
    ("deletion-order", {"clusterSelector": {"ray.io/cluster": "b"}, "deletionStrategy": {"deletionRules": [{"policy": "DeleteCluster", "condition": {"jobStatus": "FAILED"}}]}}),
    ("deletion-order", {"rayClusterSpec": SCALED, "deletionStrategy": {"deletionRules": [{"policy": "DeleteWorkers", "condition": {"jobStatus": "FAILED"}}]}}),
    ("sidecar-excludes-submitter", {"submissionMode": "SidecarMode", "rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"restartPolicy": "Always"}}}}}),
    ("job-numbers", {"rayClusterSpec": CLUSTER, "activeDeadlineSeconds": 0}),
    ("runtime-env", {"rayClusterSpec": CLUSTER, "runtimeEnvYAML": "{"}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "job"), REFUSED_JOBS, ids=str)
def test_jobs_that_the_operator_refuses(rule: str, job: Manifest) -> None:
    assert {name for name, check in JOB_RULES.items() if list(check(job))} == {rule}


TAKEN_CLUSTERS: list[Manifest] = [
    {"workerGroupSpecs": [{**WORKER, "template": {"spec": {"restartPolicy": "Always", "containers": [{"name": "ray"}]}}}]},
    {**SCALED, "workerGroupSpecs": [{**WORKER, "replicas": 0, "minReplicas": 0, "idleTimeoutSeconds": 60}]},
    {"workerGroupSpecs": [{**WORKER, "resources": {"CPU": "4"}, "rayStartParams": {"object-store-memory": "1"}}]},
    {"workerGroupSpecs": [{**WORKER, "labels": {"pool": "gpu", "empty": ""}}]},
    {"authOptions": {"mode": "token"}, "rayVersion": "2.52.0"},
    {"authOptions": {"mode": "token"}, "rayVersion": "3.0"},
    {"authOptions": {"mode": "disabled"}, "rayVersion": "2.9.0"},
    {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}},
]  # fmt: skip


@pytest.mark.parametrize("spec", TAKEN_CLUSTERS, ids=str)
def test_clusters_that_the_operator_takes(spec: Manifest) -> None:
    cluster = Cluster("RayCluster", {"headGroupSpec": POD, **spec}, {})
    assert {rule: message for rule, check in CLUSTER_RULES.items() for message in check(cluster)} == {}


def head(**environment: str) -> Manifest:
    env = [{"name": name, "value": value} for name, value in environment.items()]
    return {"template": {"spec": {"containers": [{"name": "ray", "env": env}]}}}


REFUSED_CLUSTERS: list[tuple[str, Manifest, dict[str, str]]] = [
    ("gcs-ft-conflicts", {"headGroupSpec": head(RAY_REDIS_ADDRESS="r")}, {}),
    ("gcs-ft-conflicts", {"headGroupSpec": head(REDIS_PASSWORD="p"), "gcsFaultToleranceOptions": {}}, {}),
    ("gcs-ft-conflicts", {"headGroupSpec": head(REDIS_USERNAME="u")}, {}),
    ("gcs-ft-conflicts", {"gcsFaultToleranceOptions": {}}, {"ray.io/external-storage-namespace": "n"}),
    ("autoscaler-once", {"headGroupSpec": head(RAY_enable_autoscaler_v2="true")}, {}),
    ("token-needs-2.52", {"authOptions": {"mode": "token"}}, {}),
    ("token-needs-2.52", {"authOptions": {"mode": "token"}, "rayVersion": "2.6.0"}, {}),
    ("group-idle-timeout-needs-v2", {"enableInTreeAutoscaling": True, "autoscalerOptions": {"version": "v1"}, "workerGroupSpecs": [{**WORKER, "idleTimeoutSeconds": 1}]}, {}),
    ("replica-bounds", {"workerGroupSpecs": [{**WORKER, "replicas": 2}]}, {}),
    ("replica-bounds", {"workerGroupSpecs": [{**WORKER, "minReplicas": -1}]}, {}),
    ("labels-at-top-level", {"workerGroupSpecs": [{**WORKER, "labels": {"pool": "a b"}}]}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "spec", "annotations"), REFUSED_CLUSTERS, ids=str)
def test_clusters_that_the_operator_refuses(rule: str, spec: Manifest, annotations: dict[str, str]) -> None:
    cluster = Cluster("RayCluster", {"headGroupSpec": POD, **spec}, annotations)
    assert {name for name, check in CLUSTER_RULES.items() if list(check(cluster))} == {rule}


def service(**options: Any) -> Manifest:
    options = {"gatewayClassName": "g", "intervalSeconds": 1, **options}
    strategy = {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options}
    spec = {"upgradeStrategy": strategy, "rayClusterConfig": {"enableInTreeAutoscaling": True}}
    return {"kind": "RayService", "metadata": {"name": "a"}, "spec": spec}


OBJECTS: list[tuple[set[str], Manifest]] = [
    *[(set(), {"kind": kind, "metadata": {"name": "c" * longest}, "spec": {"schedule": "@daily"}})
      for kind, longest in (("RayCluster", 53), ("RayJob", 47), ("RayService", 47), ("RayCronJob", 36))],
    ({"name-length"}, {"kind": "RayJob", "metadata": {"name": "Upper"}, "spec": {}}),
    ({"name-length"}, {"kind": "RayJob", "metadata": {"name": "0digit"}, "spec": {}}),
    (set(), {"kind": "RayCronJob", "metadata": {"name": "a"}, "spec": {"schedule": "*/15 0-6 1,15 * 1-5"}}),
    ({"schedule"}, {"kind": "RayCronJob", "metadata": {"name": "a"}, "spec": {"schedule": "60 * * * *"}}),
    ({"schedule"}, {"kind": "RayCronJob", "metadata": {"name": "a"}, "spec": {"schedule": "* * * *"}}),
    ({"schedule"}, {"kind": "RayCronJob", "metadata": {"name": "a"}, "spec": {"schedule": "CRON_TZ=UTC 1 1 * * *"}}),
    (set(), service(stepSizePercent=50, maxSurgePercent=50)),
    (set(), service(stepSizePercent=100)),
    ({"upgrade-step"}, service(stepSizePercent=51, maxSurgePercent=50)),
    ({"upgrade-step"}, service(stepSizePercent=10, maxSurgePercent=101)),
    ({"upgrade-step"}, service(stepSizePercent=10, gatewayClassName="")),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "manifest"), OBJECTS, ids=str)
def test_names_schedules_and_upgrades(rules: set[str], manifest: Manifest) -> None:
    assert {name for name, check in OBJECT_RULES.items() if list(check(manifest))} == rules


def test_a_rule_about_changes_is_checked_against_what_was_there(definitions: Path) -> None:
    def cluster(backend: str) -> Manifest:
        spec = {"headGroupSpec": POD, "gcsFaultToleranceOptions": {"backend": backend}}
        return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "a"}, "spec": spec}

    assert list(custom(cluster("rocksdb"), definitions, cluster("rocksdb"))) == []
    [changed] = custom(cluster("rocksdb"), definitions, cluster("redis"))
    assert changed.rule == "cel"
    assert "backend is immutable" in changed.message
