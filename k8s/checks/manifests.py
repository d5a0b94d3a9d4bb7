"""What rules look at: rendered objects, the Ray clusters, jobs and pods inside them, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Manifest = dict[str, Any]
Platform = Sequence[Manifest]
"""All objects of a render."""
RAY = "c2b-ray.io/ray"
LEDGER = "c2b-ray.io/ledger"
CLUSTER_API = "c2b-ray.io/cluster-api"
_CLUSTER_IN = {
    "RayCluster": ("spec",),
    "RayService": ("spec", "rayClusterConfig"),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayCronJob": ("spec", "jobTemplate", "rayClusterSpec"),
}
_JOB_IN = {"RayJob": ("spec",), "RayCronJob": ("spec", "jobTemplate")}


@dataclass(frozen=True)
class Violation:
    """One rule that one object breaks."""

    rule: str
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.message} [{self.rule}]"


@dataclass(frozen=True)
class Cluster:
    """The spec of a Ray cluster, wherever it stands."""

    kind: str
    spec: Manifest
    annotations: Mapping[str, str]

    @property
    def head(self) -> Manifest:
        return self.spec.get("headGroupSpec") or {}

    @property
    def workers(self) -> list[Manifest]:
        return self.spec.get("workerGroupSpecs") or []

    @property
    def groups(self) -> list[tuple[str, Manifest]]:
        """Every group with its name, the head's first."""
        return [("head", self.head), *((group.get("groupName", "?"), group) for group in self.workers)]

    @property
    def autoscales(self) -> bool:
        return bool(self.spec.get("enableInTreeAutoscaling"))

    @property
    def autoscaler(self) -> str | None:
        """`v1` or `v2` as the options say; None where there is no autoscaler or they do not say."""
        return (self.spec.get("autoscalerOptions") or {}).get("version") if self.autoscales else None

    @property
    def head_environment(self) -> dict[str, str | None]:
        containers = containers_of(pod_of(self.head))
        return environment(containers[0]) if containers else {}


@dataclass(frozen=True)
class Pod:
    """A pod template: where it stands, its labels, its spec, its annotations."""

    kind: str
    location: str
    labels: Mapping[str, str]
    spec: Manifest
    annotations: Mapping[str, str] = field(default_factory=dict)


def is_object(manifest: Any) -> bool:
    """Whether it has what every object has: a kind, and a name in its metadata."""
    if not isinstance(manifest, dict) or not isinstance(manifest.get("kind"), str):
        return False
    metadata = manifest.get("metadata")
    named = isinstance(metadata, dict) and isinstance(metadata.get("name"), str)
    return named and isinstance(manifest.get("apiVersion"), str) and isinstance(manifest.get("spec", {}), dict)


def subject(manifest: Manifest) -> str:
    return f"{manifest.get('kind')}/{(manifest.get('metadata') or {}).get('name')}"


def at(manifest: Manifest, path: tuple[str, ...]) -> Any:
    """What is at the path; None where a step is missing."""
    value: Any = manifest
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def cluster_of(manifest: Manifest) -> Cluster | None:
    spec = at(manifest, _CLUSTER_IN.get(manifest["kind"], ("none",)))
    annotations = (manifest.get("metadata") or {}).get("annotations") or {}
    return Cluster(manifest["kind"], spec, annotations) if isinstance(spec, dict) else None


def job_of(manifest: Manifest) -> Manifest | None:
    """The spec of a RayJob, or of the one that a RayCronJob makes."""
    return at(manifest, _JOB_IN.get(manifest["kind"], ("none",)))


def pod_of(group: Manifest) -> Manifest:
    return at(group, ("template", "spec")) or {}


def containers_of(pod: Manifest) -> list[Manifest]:
    return pod.get("containers") or []


def all_containers(pod: Manifest) -> list[Manifest]:
    """Those that begin first too: sidecars stand among them."""
    return [*(pod.get("initContainers") or []), *containers_of(pod)]


def environment(container: Manifest) -> dict[str, str | None]:
    """Variables and their values; None where the value is a reference."""
    return {entry["name"]: entry.get("value") for entry in container.get("env") or []}


def pods(value: Any, kind: str, location: str = "") -> Iterator[Pod]:
    """Every pod template at any depth."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from pods(item, kind, f"{location}[{index}]")
    elif isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and spec.get("containers"):
            yield Pod(kind, location, _texts(value, "labels"), spec, _texts(value, "annotations"))
        for key, item in value.items():
            yield from pods(item, kind, f"{location}.{key}" if location else key)


def pods_of(platform: Platform) -> list[Pod]:
    """Every pod template of a render, with the label that the operator adds to Ray's."""
    found = [pod for manifest in platform for pod in pods(manifest, manifest["kind"])]
    return [
        replace(pod, labels={"ray.io/node-type": "any", **pod.labels}) if "Group" in pod.location else pod
        for pod in found
    ]


def of_kind(platform: Platform, kind: str) -> list[Manifest]:
    return [manifest for manifest in platform if manifest["kind"] == kind]


def whole(platform: Platform) -> bool:
    """Whether this is what stands beside the cluster's own objects, rather than one RayCluster or some RayJobs. Its
    namespace may be somebody else's."""
    return bool(of_kind(platform, "Namespace") or of_kind(platform, "Deployment"))


def _texts(template: Manifest, name: str) -> Mapping[str, str]:
    """The labels or annotations of a pod template."""
    found = at(template, ("metadata", name))
    return found if isinstance(found, dict) else {}


def selects(selector: Manifest | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector takes these labels; an empty one takes all. `ray.io/…` labels come from the operator."""
    for key, value in ((selector or {}).get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for wanted in (selector or {}).get("matchExpressions") or []:
        there = wanted["key"] in labels
        if (wanted["operator"] == "Exists" and not there) or (wanted["operator"] == "DoesNotExist" and there):
            return False
        value = labels.get(wanted["key"])
        if (wanted["operator"] == "In" and value not in wanted["values"]) or (
            wanted["operator"] == "NotIn" and value in wanted["values"]
        ):
            return False
    return True
