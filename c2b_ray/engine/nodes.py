"""Reads what the nodes of the connected Ray cluster have, and what its autoscaler can start. It decides nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
import ray._private.state

from c2b_ray.engine.placement import Cluster, Node

SETTLE_S = 3.0
MOST_STARTABLE = 1000
"""The most nodes of one group that are counted; an autoscaler may allow any number."""


def cluster() -> Cluster:
    """Returns the cluster as it is now.

    Where GPUs are reserved it looks again for a few seconds: processes of a stage that has just ended, or of an index
    build before the audit, release their GPUs within seconds; replicas of Serve do not.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        nodes = _nodes()
        if all(node.gpus_left == node.gpus for node in nodes) or time.monotonic() > deadline:
            return Cluster(tuple(nodes), startable(nodes, ray._private.state.state.get_cluster_config()))
        time.sleep(0.25)


def present() -> Cluster:
    """Returns the cluster as it is at this moment, whoever holds its GPUs."""
    nodes = _nodes()
    return Cluster(tuple(nodes), startable(nodes, ray._private.state.state.get_cluster_config()))


def _nodes() -> list[Node]:
    free = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
    nodes = []
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"]:
            resources, free_resources = node["Resources"], free.get(node["NodeID"], {})
            gpus = float(resources.get("GPU", 0.0))
            nodes.append(
                Node(
                    float(resources.get("CPU", 0.0)), gpus, float(free_resources.get("GPU", 0.0)), dict(node["Labels"])
                )
            )
    return nodes


def object_store_bytes() -> int | None:
    """Returns the size of the smallest object store of a node with CPUs; None where no node says."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    sizes = [
        int(resources_of_node.get("object_store_memory", 0))
        for resources_of_node in resources
        if resources_of_node.get("CPU")
    ]
    return min((size for size in sizes if size), default=None)


def free_cpus() -> list[float]:
    """Returns the free CPUs of each node."""
    free = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return [float(resources.get("CPU", 0.0)) for resources in free.values()]


def startable(nodes: Sequence[Node], config: Any) -> tuple[Node, ...]:
    """Returns nodes that an autoscaler can start besides the present ones, by its `ClusterConfig`; none without one.

    It names groups of nodes by their resources, because Ray Data, too, tells a node's group by them.
    """
    startable_nodes: list[Node] = []
    for group in config.node_group_configs if config else ():
        cpus, gpus = float(group.resources.get("CPU", 0)), float(group.resources.get("GPU", 0))
        n_present = sum((node.cpus, node.gpus) == (cpus, gpus) for node in nodes)
        limit = group.max_count if group.max_count >= 0 else MOST_STARTABLE  # -1 where there is no limit
        startable_nodes += [Node(cpus, gpus)] * max(0, min(limit, MOST_STARTABLE) - n_present)
    return tuple(node for node in startable_nodes if node.cpus)
