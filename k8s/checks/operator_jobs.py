"""KubeRay's own rules for RayJobs, RayServices and RayCronJobs, and for names (validation.go of the operator, 1.7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import yaml

from .manifests import Manifest, at
from .schedules import faults

LONGEST = {"RayCluster": 53, "RayJob": 47, "RayService": 47, "RayCronJob": 36, "CronJob": 36}
"""Characters of a name: what the operator appends must still fit a label. Our CronJob appends `-20260101`."""
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MODES = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")
_DURATION = re.compile(r"\d*[1-9]\d*|(?=.*[1-9])(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+")
_UPGRADES = ("NewCluster", "NewClusterWithIncrementalUpgrade", "None")
_DELETING = ("DeleteWorkers", "DeleteCluster", "DeleteSelf")


def suspend_needs_shutdown(job: Manifest) -> Iterator[str]:
    if job.get("suspend") and not job.get("shutdownAfterJobFinishes"):
        yield "suspend needs shutdownAfterJobFinishes"


def cluster_or_selector(job: Manifest) -> Iterator[str]:
    if not job.get("rayClusterSpec") and not job.get("clusterSelector"):
        yield "one of rayClusterSpec and clusterSelector must be set"
    if (selector := job.get("clusterSelector")) and not selector.get("ray.io/cluster"):
        yield f"clusterSelector {selector} names no cluster; its key is ray.io/cluster"


def submission_mode(job: Manifest) -> Iterator[str]:
    if (mode := job.get("submissionMode", _MODES[0])) not in _MODES:
        yield f"submissionMode {mode!r} is none of {', '.join(_MODES)}"


def selector_excludes_suspend(job: Manifest) -> Iterator[str]:
    if job.get("clusterSelector") and job.get("suspend"):
        yield "clusterSelector does not go with suspend"


def selector_excludes_backoff(job: Manifest) -> Iterator[str]:
    if job.get("clusterSelector") and job.get("backoffLimit"):
        yield "clusterSelector does not go with backoffLimit: a retry would need a new cluster"


def selector_excludes_sidecar(job: Manifest) -> Iterator[str]:
    if job.get("clusterSelector") and job.get("submissionMode") == "SidecarMode":
        yield "clusterSelector does not go with SidecarMode"


def sidecar_excludes_submitter(job: Manifest) -> Iterator[str]:
    if job.get("submissionMode") != "SidecarMode":
        return
    for name in ("submitterPodTemplate", "submitterConfig"):
        if job.get(name) is not None:
            yield f"SidecarMode does not go with {name}"
    policy = at(job, ("rayClusterSpec", "headGroupSpec", "template", "spec", "restartPolicy"))
    if policy not in (None, "Never"):
        yield f"SidecarMode wants restartPolicy Never of the head, or none, not {policy}"


def interactive_excludes_backoff(job: Manifest) -> Iterator[str]:
    if job.get("submissionMode") == "InteractiveMode" and job.get("backoffLimit"):
        yield "InteractiveMode does not go with backoffLimit"


def ttl_needs_shutdown(job: Manifest) -> Iterator[str]:
    if job.get("ttlSecondsAfterFinished") and not job.get("shutdownAfterJobFinishes"):
        yield "ttlSecondsAfterFinished needs shutdownAfterJobFinishes"


def rules_exclude_shutdown(job: Manifest) -> Iterator[str]:
    if at(job, ("deletionStrategy", "deletionRules")) and job.get("shutdownAfterJobFinishes"):
        yield "deletionRules do not go with shutdownAfterJobFinishes"


def deletion_order(job: Manifest) -> Iterator[str]:
    """Workers go before their cluster, and the cluster before the job; each once for each outcome."""
    times: dict[str, dict[str, int]] = {}
    for rule in at(job, ("deletionStrategy", "deletionRules")) or []:
        condition, policy = rule.get("condition") or {}, rule.get("policy")
        outcome = condition.get("jobStatus") or condition.get("jobDeploymentStatus") or ""
        if policy in times.setdefault(outcome, {}):
            yield f"two deletionRules with {policy} for {outcome}"
        times[outcome][policy] = condition.get("ttlSeconds", 0)
        if policy == "DeleteWorkers" and at(job, ("rayClusterSpec", "enableInTreeAutoscaling")):
            yield "DeleteWorkers does not go with autoscaling"
        if job.get("clusterSelector") and policy in _DELETING[:2]:
            yield f"{policy} does not go with clusterSelector"
    for outcome, policies in times.items():
        ttls = [policies[policy] for policy in _DELETING if policy in policies]
        if ttls != sorted(ttls):
            yield f"deletionRules for {outcome} are out of order: {policies}"


def legacy_deletion(job: Manifest) -> Iterator[str]:
    """onSuccess and onFailure, of which the schema says no more than that both are there."""
    strategy = job.get("deletionStrategy") or {}
    for outcome in ("onSuccess", "onFailure"):
        policy = (strategy.get(outcome) or {}).get("policy")
        if policy == "DeleteWorkers" and at(job, ("rayClusterSpec", "enableInTreeAutoscaling")):
            yield f"{outcome}: DeleteWorkers does not go with autoscaling"
        if policy == "DeleteNone" and job.get("shutdownAfterJobFinishes"):
            yield f"{outcome}: DeleteNone does not go with shutdownAfterJobFinishes"
        if policy in _DELETING[:2] and job.get("clusterSelector"):
            yield f"{outcome}: {policy} does not go with clusterSelector"


def numbers(job: Manifest) -> Iterator[str]:
    for name, least in (("activeDeadlineSeconds", 1), ("backoffLimit", 0), ("ttlSecondsAfterFinished", 0)):
        if job.get(name) is not None and job[name] < least:
            yield f"{name} is {job[name]}; at least {least}"


def runtime_environment(job: Manifest) -> Iterator[str]:
    try:
        if not isinstance(yaml.safe_load(job.get("runtimeEnvYAML") or "{}"), dict):
            yield "runtimeEnvYAML is no mapping"
    except yaml.YAMLError as error:
        yield f"runtimeEnvYAML is no YAML: {str(error).splitlines()[0]}"


JOB_RULES: Mapping[str, Callable[[Manifest], Iterator[str]]] = {
    "suspend-needs-shutdown": suspend_needs_shutdown,
    "cluster-or-selector": cluster_or_selector,
    "submission-mode": submission_mode,
    "selector-excludes-suspend": selector_excludes_suspend,
    "selector-excludes-backoff": selector_excludes_backoff,
    "selector-excludes-sidecar": selector_excludes_sidecar,
    "sidecar-excludes-submitter": sidecar_excludes_submitter,
    "interactive-excludes-backoff": interactive_excludes_backoff,
    "ttl-needs-shutdown": ttl_needs_shutdown,
    "deletion-rules-exclude-shutdown": rules_exclude_shutdown,
    "deletion-order": deletion_order,
    "legacy-deletion": legacy_deletion,
    "job-numbers": numbers,
    "runtime-env": runtime_environment,
}


def names(manifest: Manifest) -> Iterator[str]:
    longest = LONGEST.get(manifest["kind"])
    name = manifest["metadata"].get("name", "")
    if longest is None:
        return
    if len(name) > longest:
        yield f"the name has {len(name)} characters; a {manifest['kind']}'s at most {longest}"
    if not _NAME.fullmatch(name):
        yield f"{name!r} is no name of the form a-z, 0-9 and -, beginning with a letter"


def schedule(manifest: Manifest) -> Iterator[str]:
    if manifest["kind"] in ("RayCronJob", "CronJob"):
        yield from faults(manifest["spec"].get("schedule", ""), manifest["spec"].get("timeZone"))


def upgrade(manifest: Manifest) -> Iterator[str]:
    strategy = at(manifest, ("spec", "upgradeStrategy")) if manifest["kind"] == "RayService" else None
    options = (strategy or {}).get("clusterUpgradeOptions") or {}
    surge, step = options.get("maxSurgePercent", 100), options.get("stepSizePercent", 0)
    if not 0 <= step <= surge <= 100:
        yield f"stepSizePercent {step} and maxSurgePercent {surge}: expected 0 ≤ step ≤ surge ≤ 100"
    if (kind := (strategy or {}).get("type")) not in (None, *_UPGRADES):
        yield f"upgradeStrategy {kind!r} is none of {', '.join(_UPGRADES)}"
    if kind != "NewClusterWithIncrementalUpgrade":
        return
    if not at(manifest, ("spec", "rayClusterConfig", "enableInTreeAutoscaling")):
        yield "an incremental upgrade needs the autoscaler"
    if not options.get("gatewayClassName") or not options.get("intervalSeconds"):
        yield "an incremental upgrade needs gatewayClassName and intervalSeconds"


def service(manifest: Manifest) -> Iterator[str]:
    if manifest["kind"] != "RayService":
        return
    head = at(manifest, ("spec", "rayClusterConfig", "headGroupSpec", "headService", "metadata", "name"))
    if head:
        yield f"headService has a name of its own, {head}; the operator gives it one"
    timeout = (at(manifest, ("metadata", "annotations")) or {}).get("ray.io/initializing-timeout", "")
    if timeout and not _DURATION.fullmatch(timeout):
        yield f"ray.io/initializing-timeout {timeout!r} is no duration such as 30m, nor seconds"


OBJECT_RULES: Mapping[str, Callable[[Manifest], Iterator[str]]] = {
    "name-length": names,
    "schedule": schedule,
    "upgrade-step": upgrade,
    "service-names": service,
}
