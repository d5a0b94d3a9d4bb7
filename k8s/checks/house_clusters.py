"""What this project wants of every Ray cluster and job: see k8s/README.md for why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from .house_pods import SHARED_MEMORY
from .manifests import Cluster, Manifest, containers_of, pod_of
from .operator_clusters import FT_ANNOTATION
from .quantities import gpus, quantity, same

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"
BATCH, SERVING = "c2b-ray-batch", "c2b-ray-serving"


def head_computes_nothing(cluster: Cluster) -> Iterator[str]:
    params, resources = cluster.head.get("rayStartParams") or {}, cluster.head.get("resources") or {}
    if not same(resources.get("CPU", params.get("num-cpus")), 0):
        yield 'the head\'s rayStartParams need num-cpus: "0"'


def autoscaler_is_v2(cluster: Cluster) -> Iterator[str]:
    if cluster.autoscales and cluster.autoscaler != "v2":
        yield "autoscalerOptions.version is not v2"


def autoscaler_is_confined(cluster: Cluster) -> Iterator[str]:
    if not cluster.autoscales:
        return
    options = cluster.spec.get("autoscalerOptions") or {}
    context, resources = options.get("securityContext") or {}, options.get("resources") or {}
    if context.get("allowPrivilegeEscalation") is not False or context.get("readOnlyRootFilesystem") is not True:
        yield "the autoscaler's container has no securityContext as all others have"
    request, limit = ((resources.get(key) or {}).get("memory") for key in ("requests", "limits"))
    if not same(request, limit):
        yield f"the autoscaler's memory is requested as {request} and limited to {limit}"


def gcs_outlives_its_head(cluster: Cluster) -> Iterator[str]:
    """A RayService's apps must; a RayJob is started anew, and a store of the old cluster would only confuse it."""
    annotated = cluster.annotations.get(FT_ANNOTATION, "").lower() == "true"
    there = annotated or cluster.spec.get("gcsFaultToleranceOptions") is not None
    if cluster.kind == "RayService" and not there:
        yield "a RayService needs gcsFaultToleranceOptions"
    if cluster.kind != "RayService" and there:
        yield f"a {cluster.kind} has no use for gcsFaultToleranceOptions"


def ray_of_the_lock(cluster: Cluster) -> Iterator[str]:
    if (version := cluster.spec.get("rayVersion")) != locked_ray():
        yield f"rayVersion is {version}; requirements.lock has {locked_ray()}"


def guarded_by_a_token(cluster: Cluster) -> Iterator[str]:
    if (cluster.spec.get("authOptions") or {}).get("mode") != "token":
        yield "anyone who reaches the cluster may run code on it: authOptions.mode is not token"


def store_fits_its_memory(cluster: Cluster) -> Iterator[str]:
    """Ray writes past the folder's size with files on disk, slowly, or dies of it."""
    for name, group in cluster.groups:
        wanted = (group.get("rayStartParams") or {}).get("object-store-memory")
        for volume in pod_of(group).get("volumes") or []:
            size = (volume.get("emptyDir") or {}).get("sizeLimit")
            if (volume.get("emptyDir") or {}).get("medium") != "Memory" or size is None:
                continue
            if wanted is None:
                yield f"group {name}: object-store-memory is not set; {SHARED_MEMORY} has {size}"
            elif int(wanted) > quantity(size):
                yield f"group {name}: object-store-memory {wanted} is more than {SHARED_MEMORY} has, {size}"


def priorities(cluster: Cluster) -> Iterator[str]:
    wanted = BATCH if cluster.kind in ("RayJob", "RayCronJob") else SERVING
    for name, group in cluster.groups:
        if (actual := pod_of(group).get("priorityClassName")) != wanted:
            yield f"group {name}: priorityClassName is {actual}, of a {cluster.kind} {wanted}"


def gpus_in_a_gpu_image(cluster: Cluster) -> Iterator[str]:
    """As far as an image's name or tag tells, by ending with -cpu or -gpu."""
    for name, group in cluster.groups:
        for container in containers_of(pod_of(group)):
            limits = (container.get("resources") or {}).get("limits") or {}
            image, has = container.get("image", ""), bool(gpus(limits))
            ends = image_kinds(image)
            if ends and ("gpu" in ends) != has:
                yield f"group {name}: image {image} {'for' if has else 'without'} GPUs of its own"


def image_kinds(image: str) -> list[str]:
    """Returns `cpu` or `gpu` for each of an image's name and tag that ends with it."""
    return re.findall(r"[-/:]([cg]pu)(?=[:@]|$)", image.rpartition("/")[2])


@cache
def locked_ray() -> str:
    match = re.search(r"^ray\[?[^=]*==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None, f"{LOCK} has no Ray"
    return match[1]


CLUSTER_RULES: Mapping[str, Callable[[Cluster], Iterator[str]]] = {
    "head-computes-nothing": head_computes_nothing,
    "autoscaler-is-v2": autoscaler_is_v2,
    "autoscaler-is-confined": autoscaler_is_confined,
    "gcs-outlives-its-head": gcs_outlives_its_head,
    "ray-of-the-lock": ray_of_the_lock,
    "guarded-by-a-token": guarded_by_a_token,
    "store-fits-its-memory": store_fits_its_memory,
    "cluster-priorities": priorities,
    "gpu-image": gpus_in_a_gpu_image,
}


def backoff_or_deadline(job: Manifest) -> Iterator[str]:
    """The operator never retries a job that met its deadline: with both, the deadline ends what resuming is for."""
    if job.get("backoffLimit") and job.get("activeDeadlineSeconds"):
        yield "both backoffLimit and activeDeadlineSeconds are set; a deadline is never retried"
    if not job.get("backoffLimit") and not job.get("activeDeadlineSeconds"):
        yield "neither backoffLimit nor activeDeadlineSeconds: the job is neither retried nor ended"


def ends_its_cluster(job: Manifest) -> Iterator[str]:
    if not job.get("shutdownAfterJobFinishes") or not job.get("ttlSecondsAfterFinished"):
        yield "a job that ended keeps its nodes: set shutdownAfterJobFinishes and ttlSecondsAfterFinished"


JOB_RULES: Mapping[str, Callable[[Manifest], Iterator[str]]] = {
    "backoff-or-deadline": backoff_or_deadline,
    "ends-its-cluster": ends_its_cluster,
}
