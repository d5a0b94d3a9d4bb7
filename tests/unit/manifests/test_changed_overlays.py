"""What operators change in an overlay: what is right is taken, in whatever spelling, and what is wrong is caught."""

# ruff: noqa: E501 — a change a line

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from checks.manifests import Manifest, all_containers, pods_of
from checks.render import render
from checks.rules import meaning
from checks.schemas import core
from overlay_objects import Fault, Objects, autoscaled, cron, incremental

ROOT = Path(__file__).parents[3]


def pod(o: Objects) -> Any:
    return o.worker["template"]["spec"]


def resources(o: Objects) -> Any:
    return pod(o)["containers"][0]["resources"]


def policy(o: Objects, **spec: Any) -> None:
    metadata = {"name": "mine", "namespace": "c2b-ray"}
    spec = {"podSelector": {}, "policyTypes": ["Egress"], **spec}
    o.all.append({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec})


def rename_gpus(o: Objects, name: str) -> None:
    for manifest in (o.cluster, o.night["rayClusterSpec"]):
        for amounts in manifest["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"].values():
            amounts[name] = amounts.pop("nvidia.com/gpu")


def other(kind: str, version: str) -> Fault:
    found = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "c2b-database", "namespace": "c2b-ray"},
        "spec": {},
    }
    return lambda o: o.all.append(found)


def without(container: Any, variable: str) -> None:
    container["env"] = [entry for entry in container["env"] if entry["name"] != variable]


def replace_text(container: Any, old: str, new: str) -> None:
    container.update(json.loads(json.dumps(container).replace(old, new)))


TAKEN: list[tuple[str, Fault]] = [
    ("memory in Mi", lambda o: o.api_container["resources"]["requests"].update(memory="2048Mi")),
    ("memory as a number", lambda o: o.api_container["resources"]["requests"].update(memory=2147483648)),
    ("memory as a power", lambda o: (o.api_container["resources"]["requests"].update(memory="2e9"), o.api_container["resources"]["limits"].update(memory="2G"))),
    ("CPUs in thousandths", lambda o: (resources(o)["limits"].update(cpu="16000m"), resources(o)["requests"].update(cpu="15500m"))),
    ("CPUs as a number", lambda o: resources(o)["limits"].update(cpu=16)),
    ("/dev/shm in Mi", lambda o: pod(o)["volumes"][3]["emptyDir"].update(sizeLimit="20480Mi")),
    ("a head without CPUs by its resources", lambda o: (o.head["rayStartParams"].pop("num-cpus"), o.head.update(resources={"CPU": "0"}))),
    ("AMD's GPUs", lambda o: rename_gpus(o, "amd.com/gpu")),
    ("a slice of a GPU", lambda o: rename_gpus(o, "nvidia.com/mig-7g.80gb")),
    ("an image by digest", lambda o: o.api_container.update(image=f"registry.example.org/c2b-ray@sha256:{'a' * 64}")),
    ("a GPU image by digest", lambda o: pod(o)["containers"][0].update(image=f"registry.example.org/c2b-ray-gpu@sha256:{'a' * 64}")),
    ("an image of another name", lambda o: pod(o)["containers"][0].update(image="registry.example.org:5000/ml/c2b-ray-gpu:v7")),
    ("a percentage of a budget", lambda o: o.spec("PodDisruptionBudget", "c2b-api").update(minAvailable="50%")),
    ("names of days", lambda o: o.spec("CronJob", "c2b-nightly").update(schedule="17 1 ? JAN-Jun MON-FRI")),
    ("steps", lambda o: o.spec("CronJob", "c2b-nightly").update(schedule="5/15 1-5/2 1,15 * *", timeZone="Europe/Berlin")),
    ("@every", lambda o: o.spec("CronJob", "c2b-nightly").update(schedule="@every 12h30m")),
    ("a database at an address", lambda o: o.egress("c2b-database").__setitem__(0, {"to": [{"ipBlock": {"cidr": "10.3.0.7/32"}}], "ports": [{"port": 6432}]})),
    ("a database by a range of ports", lambda o: o.egress("c2b-database")[0].update(ports=[{"port": 5000, "endPort": 6000}])),
    ("a database by any port", lambda o: o.egress("c2b-database").__setitem__(0, {"to": [{"podSelector": {"matchLabels": {"app": "pg"}}}]})),
    ("an object store at an address", lambda o: o.spec("NetworkPolicy", "c2b-object-store").update(egress=[{"to": [{"ipBlock": {"cidr": "10.3.0.8/32"}}], "ports": [{"port": 9000}]}])),
    ("a named port of a policy", lambda o: o.spec("NetworkPolicy", "c2b-api")["ingress"][0]["ports"][0].update(port="http")),
    ("a seccomp profile of one's own", lambda o: o.api["securityContext"].update(seccompProfile={"type": "Localhost", "localhostProfile": "p.json"})),
    ("more replicas", lambda o: o.spec("Deployment", "c2b-api").update(replicas=5)),
    ("a second group", lambda o: o.cluster["workerGroupSpecs"].append({**copy.deepcopy(o.worker), "groupName": "l4"})),
    ("a sidecar that writes nowhere but /tmp", lambda o: o.api["containers"].append({**copy.deepcopy(o.api_container), "name": "proxy", "image": "registry.example.org/proxy:2", "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}], **dict.fromkeys(("startupProbe", "readinessProbe", "livenessProbe"))})),
    ("a secret of one's own", lambda o: o.api_container["env"].append({"name": "PGPASSWORD", "valueFrom": {"secretKeyRef": {"name": "pg", "key": "password"}}})),
    ("an agent's port of one's own", lambda o: [o.runner["initContainers"][0].update(json.loads(json.dumps(o.runner["initContainers"][0]).replace("52365", "52400")))]),
    ("a longer end", lambda o: o.runner.update(terminationGracePeriodSeconds=600)),
    ("a priority of one's own", lambda o: (o.all.append({**copy.deepcopy(o.of("PriorityClass", "c2b-ray-serving")), "metadata": {"name": "mine"}}), o.api.update(priorityClassName="mine"))),
    ("one version of all", lambda o: [c.update(image=c["image"].replace("0.1.0", "0.2.0")) for p in pods_of(o.all) for c in all_containers(p.spec)]),
    ("a namespace that warns of less", lambda o: o.of("Namespace", "c2b-ray")["metadata"]["labels"].pop("pod-security.kubernetes.io/warn")),
    ("a namespace that somebody else makes", lambda o: o.all.remove(o.of("Namespace", "c2b-ray"))),
    ("an API for every address", lambda o: o.spec("NetworkPolicy", "c2b-api")["ingress"].append({"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 8420}]})),
    ("Kubernetes' API at its address", lambda o: o.egress("c2b-cluster-api")[0].update(to=[{"ipBlock": {"cidr": "172.20.0.1/32"}}], ports=[{"port": 16443}])),
    ("an object store without keys", lambda o: [container.pop("envFrom") for container in (o.api_container, o.runner["containers"][0], pod(o)["containers"][0])]),
    ("a Secret of one's own with the database", lambda o: (o.api_container.update(env=[]), o.api_container["envFrom"].append({"secretRef": {"name": "mine"}}))),
    ("an agent's port of a group", lambda o: (o.worker["rayStartParams"].update({"dashboard-agent-listen-port": "52400"}), replace_text(pod(o)["containers"][0], "52365", "52400"))),
    ("a dashboard's port", lambda o: (o.head["rayStartParams"].update({"dashboard-port": "8266"}), replace_text(o.head_container, "8265", "8266"))),
    ("no entrypoint of an interactive job", lambda o: (o.job.pop("entrypoint"), o.job.pop("submitterPodTemplate"), o.job.pop("backoffLimit"), o.job.update(submissionMode="InteractiveMode", activeDeadlineSeconds=900))),
    ("no upgrades", lambda o: o.service["spec"].update(upgradeStrategy={"type": "None"})),
    ("autoscaling", autoscaled),
    ("a head's service inside", lambda o: o.head.update(serviceType="ClusterIP")),
    ("a load balancer for the API", lambda o: o.spec("Service", "c2b-api").update(type="LoadBalancer")),
    ("labels of one's own", lambda o: o.of("Deployment", "c2b-api")["metadata"]["labels"].update({"team.example.org/cost": "ML_42", "empty": ""})),
    ("a Job that restarts", lambda o: o.of("Job", "c2b-migrate")["spec"]["template"]["spec"].update(restartPolicy="OnFailure")),
    ("nothing scraped", lambda o: (o.all.remove(o.of("NetworkPolicy", "c2b-metrics")), [o.of("Deployment", name)["spec"]["template"]["metadata"].pop("annotations") for name in ("c2b-dispatcher", "c2b-runner")])),
    ("a Role of somebody else", lambda o: o.all.append({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "vault", "namespace": "c2b-ray"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]})),
    ("monitoring of any namespace by its label", lambda o: o.spec("NetworkPolicy", "c2b-ray-nodes")["ingress"][2].update({"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "prometheus"}}}]})),
    ("a head by its whole name", lambda o: [e.update(value="c2b-models-head-svc.c2b-ray.svc:6379") for e in o.runner["containers"][0]["env"] if e["name"] == "RAY_ADDRESS"]),
    ("an ExternalSecret", other("ExternalSecret", "external-secrets.io/v1")),
    ("a ServiceMonitor", other("ServiceMonitor", "monitoring.coreos.com/v1")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change"), TAKEN, ids=[name for name, _ in TAKEN])
def test_a_right_change_is_taken(gpu: list[Manifest], name: str, change: Fault) -> None:
    objects = Objects(gpu)
    change(objects)
    changed = [manifest for manifest in objects.all if manifest not in gpu]
    assert objects.all != gpu
    assert [str(violation) for violation in meaning(objects.all)] == []
    assert [str(violation) for manifest in changed for violation in core(manifest)] == []


CAUGHT: list[tuple[str, Fault]] = [
    ("suspend-needs-shutdown", lambda o: (o.night.pop("shutdownAfterJobFinishes"), o.night.pop("ttlSecondsAfterFinished"))),
    ("suspend-needs-shutdown", lambda o: (cron(o), o.all[-1]["spec"]["jobTemplate"].update(suspend=True, shutdownAfterJobFinishes=False))),
    ("cluster-or-selector", lambda o: o.job.update(clusterSelector={"app": "a"})),
    ("cluster-or-selector", lambda o: o.job.update(clusterSelector={"ray.io/cluster": ""})),
    ("selector-excludes-suspend", lambda o: o.night.update(clusterSelector={"ray.io/cluster": "a"})),
    ("selector-excludes-backoff", lambda o: o.job.update(clusterSelector={"ray.io/cluster": "a"})),
    ("sidecar-excludes-submitter", lambda o: (o.job.pop("submitterPodTemplate"), o.job.update(submissionMode="SidecarMode", submitterConfig={}))),
    ("sidecar-excludes-submitter", lambda o: (o.night.pop("submitterPodTemplate"), o.night.update(submissionMode="SidecarMode"), o.night["rayClusterSpec"]["headGroupSpec"]["template"]["spec"].update(restartPolicy="OnFailure"))),
    ("ttl-needs-shutdown", lambda o: o.night.pop("shutdownAfterJobFinishes")),
    ("legacy-deletion", lambda o: (o.job["rayClusterSpec"].update(enableInTreeAutoscaling=True), o.job.update(deletionStrategy={"onSuccess": {"policy": "DeleteWorkers"}, "onFailure": {"policy": "DeleteSelf"}}))),
    ("resources-once", lambda o: (o.job["rayClusterSpec"]["workerGroupSpecs"][0].update(resources={"GPU": "1"}), o.job["rayClusterSpec"]["workerGroupSpecs"][0]["rayStartParams"].update({"num-gpus": "1"}))),
    ("labels-at-top-level", lambda o: o.job["rayClusterSpec"]["workerGroupSpecs"][0].update(labels={"-pool": "gpu"})),
    ("labels-at-top-level", lambda o: o.worker.update(labels={"pool": "g p u"})),
    ("replica-bounds", lambda o: o.night["rayClusterSpec"]["workerGroupSpecs"][0].update(minReplicas=5)),
    ("replica-bounds", lambda o: o.job["rayClusterSpec"]["workerGroupSpecs"][0].pop("replicas")),
    ("v2-restart-policy", lambda o: (o.night["rayClusterSpec"].update(enableInTreeAutoscaling=True), o.night["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"].append({"name": "RAY_enable_autoscaler_v2", "value": "1"}), o.night["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"].update(restartPolicy="Always"))),
    ("gcs-ft-conflicts", lambda o: o.head_container["env"].append({"name": "REDIS_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "r", "key": "k"}}})),
    ("gcs-outlives-its-head", lambda o: o.of("RayJob", "c2b-nightly")["metadata"].update(annotations={"ray.io/ft-enabled": "true"})),
    ("service-names", lambda o: o.service["metadata"].update(annotations={"ray.io/initializing-timeout": "soon"})),
    ("service-names", lambda o: o.service["metadata"].update(annotations={"ray.io/initializing-timeout": "0s"})),
    ("upgrade-step", lambda o: incremental(o, stepSizePercent=50, maxSurgePercent=20)),
    *[("schedule", lambda o, text=text: o.spec("CronJob", "c2b-nightly").update(schedule=text))
      for text in ("17 1 * * 7", "17 5-1 * * *", "@nightly", "@every 1", "17 1 0 * *", "*/0 1 * * *", "17 1 * * FOO", "17 1 * MON *", "")],
    ("schedule", lambda o: o.spec("CronJob", "c2b-nightly").update(timeZone="Mars/Olympus")),
    ("requests-within-limits", lambda o: resources(o)["requests"].update({"nvidia.com/gpu": "2"})),
    ("requests-within-limits", lambda o: resources(o)["limits"].pop("nvidia.com/gpu")),
    ("gpu-image", lambda o: pod(o)["containers"][0].update(image="registry.example.org/c2b-ray-cpu:v7")),
    ("unprivileged", lambda o: o.api_container["securityContext"]["capabilities"].update(add=["SYS_ADMIN"])),
    ("unprivileged", lambda o: o.runner["initContainers"][0]["securityContext"].update(procMount="Unmasked")),
    ("apart-from-the-host", lambda o: o.api_container["ports"][0].update(hostPort=8420)),
    ("no-account-token", lambda o: o.api["volumes"].append({"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})),
    ("writable-folders", lambda o: o.api_container["volumeMounts"][1].update(readOnly=True)),
    ("writable-folders", lambda o: o.api_container["volumeMounts"].pop(2)),
    ("writable-folders", lambda o: o.api_container["volumeMounts"].append({"name": "home", "mountPath": "/tmp/"})),
    ("writable-folders", lambda o: [m.update(mountPath="/cache") for m in pod(o)["containers"][0]["volumeMounts"] if m["name"] == "cache"]),
    ("shared-memory", lambda o: o.runner["volumes"][-1].update(emptyDir={})),
    ("shared-memory", lambda o: o.runner["initContainers"][0].update(args=[o.runner["initContainers"][0]["args"][0].replace("1073741824", "4294967296")])),
    ("ports", lambda o: o.api_container["livenessProbe"]["httpGet"].update(port=9999)),
    ("ports", lambda o: o.spec("Service", "c2b-api")["ports"][0].update(targetPort="web")),
    ("ports", lambda o: o.spec("NetworkPolicy", "c2b-api")["ingress"][0]["ports"][0].update(port=80)),
    ("ports", lambda o: o.spec("NetworkPolicy", "c2b-api").pop("ingress")),
    ("network", lambda o: o.spec("NetworkPolicy", "c2b-names")["egress"][0]["ports"].pop(0)),
    ("network", lambda o: o.spec("NetworkPolicy", "c2b-names")["egress"][0]["ports"][0].update(port="53")),
    ("network", lambda o: o.spec("NetworkPolicy", "c2b-database")["egress"][0]["ports"][0].update(port=3306)),
    ("network", lambda o: o.spec("NetworkPolicy", "c2b-ray-nodes").pop("ingress")),
    ("network", lambda o: o.spec("NetworkPolicy", "c2b-ray-nodes")["ingress"].append({})),
    ("network", lambda o: policy(o, egress=[{"to": [{"ipBlock": {"cidr": "::/0"}}]}])),
    ("disruption-budgets", lambda o: o.spec("PodDisruptionBudget", "c2b-runner").update(maxUnavailable=0)),
    ("disruption-budgets", lambda o: (o.spec("PodDisruptionBudget", "c2b-ray-nodes").pop("minAvailable"), o.spec("PodDisruptionBudget", "c2b-ray-nodes").update(maxUnavailable=1))),
    ("disruption-budgets", lambda o: o.spec("PodDisruptionBudget", "c2b-ray-nodes").update(minAvailable="50%")),
    ("disruption-budgets", lambda o: o.spec("PodDisruptionBudget", "c2b-ray-nodes").update(minAvailable=2)),
    ("disruption-budgets", lambda o: o.spec("PodDisruptionBudget", "c2b-api").update(minAvailable="51%")),
    ("known-secrets", lambda o: o.api_container["envFrom"][0]["secretRef"].update(name="c2b-objectstore")),
    ("references", lambda o: o.api_container["envFrom"].append({"configMapRef": {"name": "nowhere"}})),
    ("references", lambda o: o.api["volumes"][0]["configMap"].update(items=[{"key": "nowhere.yaml", "path": "endpoint.yaml"}])),
    ("references", lambda o: o.api_container["command"].__setitem__(-1, "/etc/c2b/endpont.yaml")),
    ("references", lambda o: o.of("RoleBinding", "c2b-nightly")["subjects"][0].update(name="nobody")),
    ("references", lambda o: o.of("RoleBinding", "c2b-nightly")["roleRef"].update(name="nothing")),
    ("references", lambda o: o.of("Role", "c2b-nightly")["rules"][0].update(resourceNames=["c2b-nightly-9d5cg2tgch"])),
    ("references", lambda o: o.night.update(suspend=False)),
    ("references", lambda o: o.api["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"].update({"app.kubernetes.io/name": "x"})),
    ("head-services", lambda o: [e.update(value="models-head-svc:6379") for e in o.runner["containers"][0]["env"] if e["name"] == "RAY_ADDRESS"]),
    ("one-namespace", lambda o: o.all.append(copy.deepcopy(o.of("Service", "c2b-api")))),
    ("endpoint-config", lambda o: o.endpoint("s3://c2b-ray/endpoint", "/data")),
    ("endpoint-config", lambda o: o.endpoint("0.0.0.0:8420", "127.0.0.1:8420")),
    ("endpoint-config", lambda o: o.endpoint("0.0.0.0:8420", "0.0.0.0:8000")),
    ("serve-fits-nodes", lambda o: o.worker["rayStartParams"].update({"num-gpus": "0"})),
    ("serve-fits-nodes", lambda o: o.worker.update(resources={"CPU": "1", "GPU": "1"})),
    ("serve-fits-nodes", lambda o: pod(o).update(terminationGracePeriodSeconds=30)),
    ("runners-may-end", lambda o: o.runner.update(terminationGracePeriodSeconds=60)),
    ("runners-may-end", lambda o: o.runner.pop("terminationGracePeriodSeconds")),
    ("endpoint-priority", lambda o: o.runner.update(priorityClassName="c2b-ray-batch")),
    ("endpoint-image", lambda o: o.runner["containers"][0].update(image="registry.example.org/c2b-ray:0.1.0-gpu")),
    ("agent-probes", lambda o: o.runner["initContainers"][0].update(args=[o.runner["initContainers"][0]["args"][0].replace("52365", "52366")])),
    ("one-version", lambda o: o.api_container.update(image="registry.example.org/c2b-ray:0.2.0-cpu")),
    ("one-version", lambda o: pod(o)["containers"][0].update(image="registry.example.org/c2b-ray:0.0.9-gpu")),
    ("restricted-namespace", lambda o: o.of("Namespace", "c2b-ray")["metadata"].update(labels={"pod-security.kubernetes.io/enforce": "baseline"})),
    ("job-entrypoint", lambda o: o.job.pop("entrypoint")),
    ("job-entrypoint", lambda o: o.job.update(entrypoint=" ")),
    ("autoscaler-may-ask", lambda o: (autoscaled(o), o.head_pod.update(automountServiceAccountToken=False))),
    ("groups-once", lambda o: o.cluster["workerGroupSpecs"].append(copy.deepcopy(o.worker))),
    ("stays-inside", lambda o: o.head.update(serviceType="LoadBalancer")),
    ("stays-inside", lambda o: o.service["spec"].update(serveService={"spec": {"type": "NodePort"}})),
    ("upgrade-step", lambda o: o.service["spec"].update(upgradeStrategy={"type": "Rolling"})),
    ("endpoint-environment", lambda o: without(o.runner["containers"][0], "C2B_DATABASE_URL")),
    ("endpoint-environment", lambda o: without(o.api_container, "C2B_ENDPOINT_SECRET")),
    ("joins-with-the-token", lambda o: without(o.runner["containers"][0], "RAY_AUTH_TOKEN")),
    ("joins-with-the-token", lambda o: without(o.runner["initContainers"][0], "RAY_AUTH_MODE")),
    ("joins-with-the-token", lambda o: [e.update(value="c2b-models-head-svc:6380") for e in o.runner["containers"][0]["env"] if e["name"] == "RAY_ADDRESS"]),
    ("uses-the-model-plane", lambda o: o.endpoint("serve: c2b-models-head-svc:6379\n", "")),
    ("offline-together", lambda o: o.runner["containers"][0]["env"].append({"name": "HF_HUB_OFFLINE", "value": "1"})),
    ("named-once", lambda o: o.runner["volumes"].append({"name": "tmp", "emptyDir": {}})),
    ("named-once", lambda o: o.api["containers"].append(copy.deepcopy(o.api_container))),
    ("named-once", lambda o: o.runner["containers"][0]["env"].append({"name": "RAY_ADDRESS", "value": "elsewhere:1"})),
    ("named-once", lambda o: o.api_container["ports"].append({"name": "http", "containerPort": 8421})),
    ("node-probes", lambda o: replace_text(pod(o)["containers"][0], "52365", "52366")),
    ("node-probes", lambda o: replace_text(o.head_container, "8265/api", "8266/api")),
    ("restarts", lambda o: o.api.update(restartPolicy="Never")),
    ("restarts", lambda o: o.of("Job", "c2b-migrate")["spec"]["template"]["spec"].pop("restartPolicy")),
    ("metadata", lambda o: o.of("PodDisruptionBudget", "c2b-api")["metadata"].update(name="C2B_api")),
    ("metadata", lambda o: o.of("Deployment", "c2b-api")["metadata"]["labels"].update({"a b": "c"})),
    ("metadata", lambda o: o.spec("Deployment", "c2b-api").update(replicas=-1)),
    ("labels", lambda o: o.of("Deployment", "c2b-api")["spec"]["template"]["metadata"]["labels"].update(a="b c")),
    ("network", lambda o: o.all.remove(o.of("NetworkPolicy", "c2b-metrics"))),
    ("network", lambda o: o.all.remove(o.of("NetworkPolicy", "c2b-cluster-api"))),
    ("network", lambda o: o.spec("NetworkPolicy", "c2b-ray-nodes")["ingress"].append({"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]})),
    ("network", lambda o: o.spec("NetworkPolicy", "c2b-ray-nodes")["ingress"][1].update({"from": [{"namespaceSelector": {}}]})),
    ("network", lambda o: (o.all.remove(o.of("Namespace", "c2b-ray")), o.all.remove(o.of("NetworkPolicy", "c2b-names")))),
    ("narrow-rights", lambda o: o.of("Role", "c2b-nightly").update(rules=[{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])),
    ("narrow-rights", lambda o: o.of("Role", "c2b-nightly")["rules"].append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]})),
    ("narrow-rights", lambda o: o.of("Role", "c2b-nightly")["rules"].pop(1)),
    ("narrow-rights", lambda o: o.all.append({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "x"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [{"kind": "ServiceAccount", "name": "c2b-endpoint", "namespace": "c2b-ray"}]})),
    ("no-secret-texts", lambda o: o.endpoint("via: serve", "via: serve\n# postgresql://c2b:hunter2@db/c2b")),
    ("no-secret-texts", lambda o: o.api_container["command"].append("--redis-password=hunter2")),
    ("priorities-in-order", lambda o: o.of("PriorityClass", "c2b-ray-serving").update(value=1)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "fault"), CAUGHT, ids=[f"{i}-{rule}" for i, (rule, _) in enumerate(CAUGHT)])
def test_a_wrong_change_is_caught(gpu: list[Manifest], rule: str, fault: Fault) -> None:
    objects = Objects(gpu)
    fault(objects)
    assert rule in {violation.rule for violation in meaning(objects.all)}


ON_TOP = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../gpu]\n"


@pytest.fixture
def checkout(tmp_path: Path, gpu: list[Manifest]) -> Path:
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "k8s" / "overlays"


def test_an_overlay_is_copied_into_another_namespace_and_registry(checkout: Path) -> None:
    mine = checkout / "mine"
    shutil.copytree(checkout / "gpu", mine)
    for file in mine.rglob("kustomization.yaml"):
        text = file.read_text().replace("namespace: c2b-ray", "namespace: vision")
        file.write_text(text.replace("registry.example.org/c2b-ray", "registry.internal:5000/ml/c2b"))
    for part in (mine, mine / "cluster", mine / "jobs"):
        objects = render(part)
        assert [str(violation) for violation in meaning(objects)] == []
        text = str([m for m in objects if m["kind"] != "ConfigMap"])
        assert "registry.example.org" not in text
        assert {m["metadata"].get("namespace", "vision") for m in objects} == {"vision"}


def test_a_name_prefix_which_kustomize_cannot_carry_through_is_caught(checkout: Path) -> None:
    (checkout / "mine").mkdir()
    (checkout / "mine" / "kustomization.yaml").write_text(f"{ON_TOP}namePrefix: acme-\n")
    found = {violation.rule for violation in meaning(render(checkout / "mine"))}
    assert found >= {"references", "head-services"}
