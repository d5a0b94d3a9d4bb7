"""Checks that local paths exist on every node: a path that only one node has would fail in the middle of a stage.

It knows paths and nodes, not what is at the paths. Object stores are the same everywhere and are not checked.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from c2b_ray.errors import ConfigError
from c2b_ray.filesystems import is_remote

PATIENCE_S = 60.0
ADVICE = "put it on s3://, or on a disk that all nodes mount at the same path"


def check_on_every_node(out: str | None, read: Mapping[str, str]) -> None:
    """Raises ConfigError where a node of the cluster lacks a path that this process has. On one node it checks nothing.

    `out`: the directory that workers write into, which must be the same directory on every node; this process has made
    it. `read`: file or folder that workers read, of which each node may have a copy → the field that names it.
    """
    here = {os.path.abspath(os.path.expanduser(path)): field for path, field in read.items() if not is_remote(path)}
    here = {path: field for path, field in here.items() if os.path.exists(path)}  # an absent one is refused for that
    nonce = None if out is None or is_remote(out) else os.path.join(os.path.abspath(out), f".nodes-{uuid.uuid4().hex}")
    if nonce is not None:
        open(nonce, "xb").close()
    try:
        lacking = node_without([*here, *([nonce] if nonce else [])])
    finally:
        if nonce is not None:
            with suppress(FileNotFoundError):
                os.unlink(nonce)
    if lacking is None:
        return
    path, address = lacking
    if path == nonce:
        raise ConfigError("out", not_shared(str(out), address))
    raise ConfigError(here[path], f"node {address} of the cluster does not have {path}, which this one has; {ADVICE}")


def not_shared(directory: str, address: str) -> str:
    return f"{directory} is not the same directory on every node of the cluster: node {address} differs; {ADVICE}"


def node_without(paths: list[str], nodes: Iterable[str] | None = None) -> tuple[str, str] | None:
    """Returns a path that some node lacks, and the address of that node; None where all nodes have all of them.

    `nodes`: the ids of the nodes, by default all `working_nodes`. A node that does not answer in time is taken to be
    leaving.
    """
    working = working_nodes()
    others = {node: working[node] for node in (working if nodes is None else nodes) if node in working}
    if not paths or not others:
        return None
    looks = {
        _look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(paths): address
        for node, address in others.items()
    }
    ready, late = ray.wait(list(looks), num_returns=len(looks), timeout=PATIENCE_S)
    for look in late:
        ray.cancel(look, force=True)
    for look in ready:
        with suppress(ray.exceptions.RayError):  # its node has gone
            if lacking := ray.get(look):
                return lacking[0], looks[look]
    return None


def working_nodes() -> dict[str, str]:
    """Returns id → address of the nodes with CPUs except this process's; nodes without CPUs run no stage's work."""
    here = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return {
        node["NodeID"]: node["NodeManagerAddress"]
        for node in nodes
        if node["Alive"] and node["Resources"].get("CPU") and node["NodeID"] != here
    }


def absent(paths: list[str]) -> list[str]:
    """Returns the paths that are not on this machine."""
    return [path for path in paths if not os.path.exists(path)]


@ray.remote(num_cpus=0, max_retries=0)
def _look(paths: list[str]) -> list[str]:
    return absent(paths)
