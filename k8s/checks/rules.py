"""All rules, by name, over all objects of a render."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import yaml

from . import house_clusters, operator_clusters, operator_jobs, schemas
from .house_endpoint import ENDPOINT_POD_RULES, ENDPOINT_RULES
from .house_joins import JOINS_CLUSTER_RULES, JOINS_JOB_RULES, JOINS_OBJECT_RULES, JOINS_POD_RULES, JOINS_RULES
from .house_objects import OBJECTS_PLATFORM_RULES, OBJECTS_POD_RULES, OBJECTS_RULES
from .house_platform import PLATFORM_RULES as _PLATFORM_RULES
from .house_pods import POD_RULES as _POD_RULES
from .manifests import Manifest, Violation, cluster_of, is_object, job_of, pods, subject

CLUSTER_RULES = {**operator_clusters.CLUSTER_RULES, **house_clusters.CLUSTER_RULES, **JOINS_CLUSTER_RULES}
JOB_RULES = {**operator_jobs.JOB_RULES, **house_clusters.JOB_RULES, **JOINS_JOB_RULES}
OBJECT_RULES = {**operator_jobs.OBJECT_RULES, **OBJECTS_RULES, **JOINS_OBJECT_RULES}
POD_RULES = {**_POD_RULES, **ENDPOINT_POD_RULES, **OBJECTS_POD_RULES, **JOINS_POD_RULES}
PLATFORM_RULES = {**_PLATFORM_RULES, **ENDPOINT_RULES, **OBJECTS_PLATFORM_RULES, **JOINS_RULES}
RULES = ("object", *CLUSTER_RULES, *JOB_RULES, *OBJECT_RULES, *POD_RULES, *PLATFORM_RULES)
SCHEMAS = ("schema", "cel", "core-schema")
MALFORMED = (AttributeError, IndexError, KeyError, TypeError, ValueError, yaml.YAMLError)
T = TypeVar("T")


def violations(manifests: Sequence[Manifest], definitions: Path | None) -> list[Violation]:
    """What is wrong with the objects of one render; without definitions, KubeRay's schemas are left out."""
    sound = [manifest for manifest in manifests if is_object(manifest)]
    found = [violation for manifest in sound for violation in schemas.core(manifest)]
    if definitions is not None:
        found += [violation for manifest in sound for violation in schemas.custom(manifest, definitions)]
    return found + list(meaning(manifests))


def meaning(manifests: Sequence[Manifest]) -> Iterator[Violation]:
    """What schemas do not say."""
    sound = [manifest for manifest in manifests if is_object(manifest)]
    yield from (
        Violation("object", "?", f"is no object of Kubernetes: {m!r:.200}") for m in manifests if not is_object(m)
    )
    for manifest in sound:
        name = subject(manifest)
        yield from _broken(OBJECT_RULES, manifest, name)
        if (cluster := cluster_of(manifest)) is not None:
            yield from _broken(CLUSTER_RULES, cluster, name)
        if (job := job_of(manifest)) is not None:
            yield from _broken(JOB_RULES, job, name)
        for pod in pods(manifest, manifest["kind"]):
            yield from _broken(POD_RULES, pod, name, f"{pod.location}: ")
    for rule, check in PLATFORM_RULES.items():
        try:
            yield from [Violation(rule, name, message) for name, message in check(sound)]
        except MALFORMED as error:
            yield Violation(rule, "all objects", f"cannot be read: {type(error).__name__}: {error}")


def _broken(
    rules: Mapping[str, Callable[[T], Iterator[str]]], what: T, name: str, where: str = ""
) -> Iterator[Violation]:
    for rule, check in rules.items():
        try:
            yield from [Violation(rule, name, where + message) for message in check(what)]
        except MALFORMED as error:
            # What has another shape than its schema says can be judged by no rule, and must not pass for it.
            yield Violation(rule, name, f"{where}cannot be read: {type(error).__name__}: {error}")
