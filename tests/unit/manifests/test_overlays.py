"""Every overlay breaks no rule, and each with one fault of a kind is caught by the rule that is meant for it."""

# ruff: noqa: E501 — a fault or vector a line

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest
from checks.manifests import Manifest
from checks.rules import RULES, SCHEMAS, meaning, violations
from overlay_objects import RULE, RULES_OUT_OF_ORDER, Fault, Objects, autoscaled, cron, incremental

# The rule that must catch it, the fault, and other rules that the same fault breaks.
FAULTS: list[tuple[str, Fault, tuple[str, ...]]] = [
    ("object", lambda o: o.all.append({"apiVersion": "v1", "metadata": {"name": "a"}}), ()),
    ("object", lambda o: o.all.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": None}), ()),
    ("suspend-needs-shutdown", lambda o: o.job.update(suspend=True, shutdownAfterJobFinishes=False, ttlSecondsAfterFinished=0), ("ends-its-cluster",)),
    ("cluster-or-selector", lambda o: o.job.pop("rayClusterSpec"), ()),
    ("selector-excludes-suspend", lambda o: o.job.update(clusterSelector={"ray.io/cluster": "a"}, suspend=True, backoffLimit=0, activeDeadlineSeconds=9), ()),
    ("selector-excludes-backoff", lambda o: (o.job.update(clusterSelector={"ray.io/cluster": "a"}, backoffLimit=2), o.job.pop("activeDeadlineSeconds", 0)), ()),
    ("selector-excludes-sidecar", lambda o: (o.job.update(clusterSelector={"ray.io/cluster": "a"}, submissionMode="SidecarMode", backoffLimit=0, activeDeadlineSeconds=9), o.job.pop("submitterPodTemplate")), ()),
    ("sidecar-excludes-submitter", lambda o: o.job.update(submissionMode="SidecarMode"), ()),
    ("sidecar-excludes-submitter", lambda o: (o.job.update(submissionMode="SidecarMode", submitterConfig={"backoffLimit": 1}), o.job.pop("submitterPodTemplate")), ()),
    ("interactive-excludes-backoff", lambda o: (o.job.update(submissionMode="InteractiveMode", backoffLimit=1), o.job.pop("activeDeadlineSeconds", 0)), ()),
    ("ttl-needs-shutdown", lambda o: o.job.update(shutdownAfterJobFinishes=False), ("ends-its-cluster",)),
    ("deletion-rules-exclude-shutdown", lambda o: o.job.update(deletionStrategy={"deletionRules": [{**RULE, "policy": "DeleteSelf"}]}), ()),
    ("deletion-order", lambda o: (o.job.update(shutdownAfterJobFinishes=False, ttlSecondsAfterFinished=0, deletionStrategy={"deletionRules": RULES_OUT_OF_ORDER}), o.job["rayClusterSpec"].update(enableInTreeAutoscaling=False), [g.pop("idleTimeoutSeconds", 0) for g in o.job["rayClusterSpec"]["workerGroupSpecs"]]), ("ends-its-cluster",)),
    ("submission-mode", lambda o: o.job.update(submissionMode="sidecarMode"), ()),
    ("legacy-deletion", lambda o: o.job.update(deletionStrategy={"onSuccess": {"policy": "DeleteNone"}, "onFailure": {"policy": "DeleteSelf"}}), ()),
    ("service-names", lambda o: o.head.update(headService={"metadata": {"name": "mine"}}), ()),
    ("job-numbers", lambda o: o.job.update(ttlSecondsAfterFinished=-1), ()),
    ("runtime-env", lambda o: o.job.update(runtimeEnvYAML="- a list"), ()),
    ("backoff-or-deadline", lambda o: o.job.update(backoffLimit=2, activeDeadlineSeconds=60), ()),
    ("ends-its-cluster", lambda o: o.job.update(ttlSecondsAfterFinished=0), ()),
    ("has-containers", lambda o: o.worker["template"]["spec"].update(containers=[]), ("serve-fits-nodes",)),
    ("resources-once", lambda o: o.head.update(resources={"CPU": "0"}), ()),
    ("labels-at-top-level", lambda o: o.worker["rayStartParams"].update(labels="pool=gpu"), ()),
    ("replica-bounds", lambda o: o.worker.pop("minReplicas"), ()),
    ("replica-bounds", lambda o: o.worker.update(minReplicas=9), ()),
    ("group-idle-timeout-needs-v2", lambda o: (o.cluster.update(enableInTreeAutoscaling=False), [g.update(replicas=g["minReplicas"]) for g in o.cluster["workerGroupSpecs"]], o.worker.update(idleTimeoutSeconds=60)), ()),
    ("v2-restart-policy", lambda o: (autoscaled(o), o.worker["template"]["spec"].update(restartPolicy="Always")), ()),
    ("v2-restart-policy", lambda o: (autoscaled(o), o.head_pod.update(restartPolicy="OnFailure")), ()),
    ("autoscaler-once", lambda o: (autoscaled(o), o.head_container["env"].append({"name": "RAY_enable_autoscaler_v2", "value": "1"})), ()),
    ("autoscaler-is-v2", lambda o: (autoscaled(o)["autoscalerOptions"].pop("version"), [g.pop("idleTimeoutSeconds", 0) for g in o.cluster["workerGroupSpecs"]]), ()),
    ("autoscaler-is-confined", lambda o: autoscaled(o)["autoscalerOptions"].pop("securityContext"), ()),
    ("suspended-group", lambda o: o.worker.update(suspend=True), ()),
    ("gcs-ft-conflicts", lambda o: o.service["metadata"].update(annotations={"ray.io/ft-enabled": "true"}), ()),
    ("gcs-ft-conflicts", lambda o: o.head_container["env"].append({"name": "RAY_REDIS_ADDRESS", "value": "redis:6379"}), ()),
    ("gcs-ft-conflicts", lambda o: o.head["rayStartParams"].update({"redis-password": "x"}), ()),
    ("gcs-ft-conflicts", lambda o: o.cluster["gcsFaultToleranceOptions"].update(redisAddress="redis:6379"), ()),
    ("gcs-outlives-its-head", lambda o: o.cluster.pop("gcsFaultToleranceOptions"), ()),
    ("gcs-outlives-its-head", lambda o: o.job["rayClusterSpec"].update(gcsFaultToleranceOptions={"backend": "rocksdb"}), ()),
    ("token-needs-2.52", lambda o: o.cluster.update(rayVersion="2.51.9"), ("ray-of-the-lock",)),
    ("guarded-by-a-token", lambda o: o.cluster.pop("authOptions"), ()),
    ("ray-of-the-lock", lambda o: o.cluster.update(rayVersion="2.59.0"), ()),
    ("head-computes-nothing", lambda o: o.head["rayStartParams"].pop("num-cpus"), ()),
    ("store-fits-its-memory", lambda o: o.worker["rayStartParams"].update({"object-store-memory": str(2**40)}), ()),
    ("cluster-priorities", lambda o: o.job["rayClusterSpec"]["headGroupSpec"]["template"]["spec"].update(priorityClassName="c2b-ray-serving"), ()),
    ("gpu-image", lambda o: o.worker["template"]["spec"]["containers"][0].update(image="registry.example.org/c2b-ray:0.1.0-cpu" if "nvidia.com/gpu" in str(o.worker) else "registry.example.org/c2b-ray:0.1.0-gpu"), ()),
    ("name-length", lambda o: o.of("RayCluster", "c2b-development")["metadata"].update(name="c" * 54), ()),
    ("name-length", lambda o: o.of("RayJob", "c2b-audit")["metadata"].update(name="c" * 48), ()),
    ("name-length", lambda o: o.service["metadata"].update(name="c" * 48), ("head-services",)),
    ("name-length", lambda o: (cron(o), o.of("RayCronJob", "c2b-cron")["metadata"].update(name="c" * 37)), ()),
    ("schedule", lambda o: cron(o, schedule="TZ=Europe/Berlin 17 1 * * *"), ()),
    ("schedule", lambda o: o.of("CronJob", "c2b-nightly")["spec"].update(schedule="CRON_TZ=UTC 17 1 * * *"), ()),
    ("schedule", lambda o: cron(o, schedule="17 25 * * *"), ()),
    ("upgrade-step", lambda o: incremental(o, stepSizePercent=60, maxSurgePercent=50), ()),
    ("memory-is-fixed", lambda o: o.head_container["resources"]["requests"].update(memory="1Gi"), ()),
    ("requests-within-limits", lambda o: o.api["containers"][0]["resources"]["requests"].update(cpu="2500m"), ()),
    ("unprivileged", lambda o: o.head_pod["securityContext"].update(runAsUser=0), ()),
    ("unprivileged", lambda o: o.head_container["securityContext"].update(readOnlyRootFilesystem=False), ()),
    ("unprivileged", lambda o: o.api["containers"][0]["securityContext"].pop("allowPrivilegeEscalation"), ()),
    ("unprivileged", lambda o: o.api["containers"][0]["securityContext"].pop("capabilities"), ()),
    ("seccomp", lambda o: o.head_pod["securityContext"].pop("seccompProfile"), ()),
    ("apart-from-the-host", lambda o: o.api.update(hostNetwork=True), ()),
    ("no-account-token", lambda o: o.api.pop("automountServiceAccountToken"), ()),
    ("priority", lambda o: o.api.pop("priorityClassName"), ()),
    ("images", lambda o: o.api["containers"][0].update(image="registry.example.org/c2b-ray:latest"), ()),
    ("secrets-by-reference", lambda o: o.api["containers"][0]["env"].append({"name": "AWS_SECRET_ACCESS_KEY", "value": "x"}), ()),
    ("writable-folders", lambda o: o.api["containers"][0].update(volumeMounts=[]), ()),
    ("probes", lambda o: o.head_container.pop("livenessProbe"), ()),
    ("probes", lambda o: o.api["containers"][0].pop("readinessProbe"), ()),
    ("shared-memory", lambda o: o.head_pod.update(volumes=[v for v in o.head_pod["volumes"] if v["name"] != "shared-memory"], ), ("writable-folders",)),
    ("network", lambda o: o.all.remove(o.of("NetworkPolicy", "c2b-names")), ()),
    ("network", lambda o: o.all.remove(o.of("NetworkPolicy", "c2b-object-store")), ()),
    ("network", lambda o: o.all.remove(o.of("NetworkPolicy", "c2b-database")), ()),
    ("network", lambda o: o.all.remove(o.of("NetworkPolicy", "c2b-nothing")), ()),
    ("network", lambda o: o.egress("c2b-names").append({"to": [{"ipBlock": {"cidr": "169.254.0.0/16"}}]}), ()),
    ("network", lambda o: o.egress("c2b-names").append({}), ()),
    ("ports", lambda o: o.api["containers"][0]["readinessProbe"]["httpGet"].update(port="web"), ()),
    ("disruption-budgets", lambda o: o.all.remove(o.of("PodDisruptionBudget", "c2b-api")), ()),
    ("disruption-budgets", lambda o: o.of("PodDisruptionBudget", "c2b-api")["spec"].update(minAvailable=2), ()),
    ("references", lambda o: o.all.remove(o.of("ServiceAccount", "c2b-endpoint")), ()),
    ("references", lambda o: o.of("Service", "c2b-api")["spec"]["selector"].update(app="x"), ()),
    ("references", lambda o: o.all.remove(o.of("PriorityClass", "c2b-ray-batch")), ()),
    ("head-services", lambda o: o.service["metadata"].update(name="acme-models"), ()),
    ("known-secrets", lambda o: o.api["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"].update(key="uri"), ()),
    ("runners-may-end", lambda o: o.runner.update(terminationGracePeriodSeconds=30), ()),
    ("endpoint-priority", lambda o: o.api.update(priorityClassName="c2b-ray-batch"), ()),
    ("endpoint-image", lambda o: o.api["containers"][0].update(image="registry.example.org/c2b-ray:0.1.0-gpu"), ()),
    ("agent-probes", lambda o: o.runner["initContainers"][0].update(startupProbe={"exec": {"command": ["bash", "-c", "wget -q -O- http://localhost:52366/api/local_raylet_healthz"]}}), ()),
    ("one-version", lambda o: o.api["containers"][0].update(image=o.api["containers"][0]["image"].replace(":0.1.0", ":0.2.0")), ()),
    ("restricted-namespace", lambda o: o.of("Namespace", "c2b-ray")["metadata"].pop("labels"), ()),
    ("job-entrypoint", lambda o: o.job.pop("entrypoint"), ()),
    ("autoscaler-may-ask", lambda o: (autoscaled(o), o.head_pod.update(automountServiceAccountToken=False)), ()),
    ("node-probes", lambda o: o.head_container.update(livenessProbe={"exec": {"command": ["wget", "http://localhost:52366/api/local_raylet_healthz"]}}), ()),
    ("groups-once", lambda o: o.cluster["workerGroupSpecs"].append(o.worker), ()),
    ("stays-inside", lambda o: o.head.update(serviceType="NodePort"), ()),
    ("metadata", lambda o: o.of("Deployment", "c2b-api")["metadata"]["labels"].update({"a b": "c"}), ()),
    ("labels", lambda o: o.worker["template"]["metadata"]["labels"].update(a="b c"), ()),
    ("named-once", lambda o: o.head_pod["volumes"].append({"name": "tmp", "emptyDir": {}}), ()),
    ("restarts", lambda o: o.api.update(restartPolicy="OnFailure"), ()),
    ("endpoint-environment", lambda o: o.api["containers"][0]["env"].pop(0), ()),
    ("joins-with-the-token", lambda o: o.runner["initContainers"][0].update(env=[]), ()),
    ("uses-the-model-plane", lambda o: o.endpoint("serve: c2b-models-head-svc:6379\n", ""), ()),
    ("offline-together", lambda o: [o.head_container.update(env=[e for e in o.head_container["env"] if e["name"] != "HF_HUB_OFFLINE"]), o.worker["template"]["spec"]["containers"][0]["env"].append({"name": "HF_HUB_OFFLINE", "value": "1"}) if "HF_HUB_OFFLINE" not in str(o.worker) else None], ()),
    ("no-secret-texts", lambda o: o.endpoint("via: serve", "via: serve # postgresql://c2b:hunter2@db/c2b"), ()),
    ("narrow-rights", lambda o: o.of("Role", "c2b-nightly")["rules"].append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}), ()),
    ("priorities-in-order", lambda o: o.of("PriorityClass", "c2b-ray-serving").update(value=1), ()),
    ("network", lambda o: o.all.remove(o.of("NetworkPolicy", "c2b-metrics")), ()),
    ("network", lambda o: o.all.remove(o.of("NetworkPolicy", "c2b-cluster-api")), ()),
    ("network", lambda o: o.of("NetworkPolicy", "c2b-ray-nodes")["spec"]["ingress"].append({"from": [{"namespaceSelector": {}}]}), ()),
    ("one-namespace", lambda o: o.of("PodDisruptionBudget", "c2b-api")["metadata"].update(namespace="other"), ()),
    ("endpoint-config", lambda o: o.endpoint("storage: s3://c2b-ray/endpoint", "database: sqlite:////tmp/ledger.db"), ()),
    ("no-secrets", lambda o: o.all.append({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "c2b-ray"}, "stringData": {"a": "b"}}), ()),
    ("serve-fits-nodes", lambda o: o.service["spec"].update(serveConfigV2=o.service["spec"]["serveConfigV2"].replace("num_cpus: ", "num_cpus: 90", 1)), ("serve-config-in-step",)),
    ("serve-fits-nodes", lambda o: [g.update(labels={"pool": "other"}) or g["template"]["spec"]["containers"][0]["resources"]["limits"].update(cpu="0") for g in o.cluster["workerGroupSpecs"]], ("requests-within-limits",)),
    ("serve-config-in-step", lambda o: o.service["spec"].update(serveConfigV2=o.service["spec"]["serveConfigV2"].replace("max_ongoing_requests: 100", "max_ongoing_requests: 5")), ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "fault", "also"), FAULTS, ids=[f"{i}-{rule}" for i, (rule, _, _) in enumerate(FAULTS)]
)
def test_a_fault_is_caught_by_the_rule_that_is_meant_for_it(
    overlay: list[Manifest], rule: str, fault: Fault, also: tuple[str, ...]
) -> None:
    objects = Objects(overlay)
    fault(objects)
    assert {violation.rule for violation in meaning(objects.all)} == {rule, *also}


def test_every_rule_has_a_fault() -> None:
    assert {rule for rule, _, _ in FAULTS} == set(RULES)


def test_no_overlay_breaks_a_rule(overlay: list[Manifest], definitions: Path) -> None:
    assert [str(violation) for violation in violations(overlay, definitions)] == []


def test_no_pod_of_an_air_gapped_platform_may_ask_a_public_address(air_gapped: list[Manifest]) -> None:
    policies = [m for m in air_gapped if m["kind"] == "NetworkPolicy"]
    peers = [peer for m in policies for rule in m["spec"].get("egress") or [] for peer in rule["to"]]
    blocks = [ip_network(peer["ipBlock"]["cidr"]) for peer in peers if "ipBlock" in peer]
    assert blocks
    assert [str(block) for block in blocks if not block.is_private] == []


SCHEMA_FAULTS: list[tuple[str, Fault]] = [
    ("schema", lambda o: o.cluster.update(headGroupSpecs={})),
    ("schema", lambda o: o.worker.update(minReplicas="1")),
    ("schema", lambda o: o.job.pop("ttlSecondsAfterFinished") and o.job.update(ttlSecondsAfterFinish=600)),
    ("schema", lambda o: o.head_container.update(securityContext={"readOnlyRootFileSystem": True})),
    ("schema", lambda o: o.service["spec"].update(upgradeStrategy={"type": "NewCluster", "clusterUpgradeOptions": {"maxSurgePercent": 10}})),
    ("cel", lambda o: o.cluster.update(managedBy="nobody")),
    ("cel", lambda o: o.job.update(deletionStrategy={"onSuccess": {"policy": "DeleteSelf"}})),
    ("core-schema", lambda o: o.api["containers"][0].update(imagePullPolice="Always")),
    ("core-schema", lambda o: o.of("NetworkPolicy", "c2b-names")["spec"].update(policyTypes="Egress")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "fault"), SCHEMA_FAULTS, ids=[f"{i}-{rule}" for i, (rule, _) in enumerate(SCHEMA_FAULTS)]
)
def test_a_fault_is_caught_by_the_schemas(overlay: list[Manifest], definitions: Path, rule: str, fault: Fault) -> None:
    assert rule in SCHEMAS
    objects = Objects(overlay)
    fault(objects)
    changed = [new for new, old in zip(objects.all, overlay, strict=True) if new != old]
    found = {violation.rule for violation in violations(changed, definitions)}
    assert rule in found
