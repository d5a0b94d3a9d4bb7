"""How many processes run a stage, and what each takes: from what the nodes have, and what a placement file says.

Pure functions of nodes and numbers: it does not know Ray (`nodes` reads them there), nor what a stage does.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from c2b_ray.config.placement import PlacementConfig, Precision, Stage, StagePlacement
from c2b_ray.errors import ConfigError

MOST_THREADS = 16
"""Batches under way in one process. More threads than that wait for Python's lock."""
READ_HERE = 64
"""Images that one thread of a process without Ray reads at once."""
SMALLEST_SHARE = 0.1
"""Of a GPU. Of a GPU with less of it free no share is taken by default."""
ELASTIC_ACTORS = 16
"""Processes that a stage grows to where nobody knows yet which nodes an autoscaler can start."""


@dataclass(frozen=True)
class Node:
    """A node that is there, or that an autoscaler can start; `free_gpus`: those that nobody has reserved."""

    cpus: float
    gpus: float = 0.0
    free_gpus: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus_left(self) -> float:
        return self.gpus if self.free_gpus is None else self.free_gpus


@dataclass(frozen=True)
class Cluster:
    """`nodes` that are there, and those that an autoscaler can start besides, as far as it says which."""

    nodes: tuple[Node, ...]
    startable: tuple[Node, ...] = ()

    @property
    def elastic(self) -> bool:
        """Whether nodes are still to come: without CPUs no stage could ever run."""
        return bool(self.startable) or not any(node.cpus for node in self.nodes)


@dataclass(frozen=True)
class Placement:
    """The processes of a stage. `threads`: 0 for as many as the process's machine has cores."""

    batch: int
    threads: int = 1
    min_actors: int = 1
    max_actors: int = 1
    cpus: float = 0.5
    gpus: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    precision: Precision | None = None

    def record(self) -> dict[str, Any]:
        """What a run's manifest says of it."""
        return {**vars(self), "labels": dict(self.labels)}


@dataclass(frozen=True)
class _Needs:
    """What a stage needs: rows at once on CPUs and on a GPU, and the most CPUs that one process can keep busy.

    `model`: whether it computes, so that it takes CPUs or a GPU for itself. `threads`: whether its roles take several
    batches at once. `reads`: whether other processes read and write for it, to which CPUs are left.
    """

    batch: int
    width: float
    gpu_batch: int = 0
    model: bool = True
    threads: bool = False
    per_node: bool = False
    reads: bool = True


NEEDS: dict[Stage, _Needs] = {
    "fetch": _Needs(batch=256, width=8, model=False),
    "generate": _Needs(batch=64, width=8, gpu_batch=64),
    "verify": _Needs(batch=64, width=8, gpu_batch=64),
    "classify": _Needs(batch=32, width=MOST_THREADS, gpu_batch=256, threads=True),
    "embed": _Needs(batch=32, width=MOST_THREADS, gpu_batch=256, threads=True),
    # Each process holds the whole index in memory, so that there is one a node.
    "search": _Needs(batch=256, width=1024, per_node=True),
    # A dataset's generator and classifiers in one process; its batch is the dataset's own.
    "shards": _Needs(batch=1, width=1, gpu_batch=1, reads=False),
}


def placed(stage: Stage, config: PlacementConfig, cluster: Cluster, served: bool = False) -> Placement:
    """The stage's placement: what `config` says, and the defaults for what it leaves open.

    `served`: the models answer from Ray Serve, so that the stage's processes only wait for them. ConfigError where
    `config` asks for nodes that this cluster can never have.
    """
    section = config.stage(stage)
    # An autoscaler does not say which labels its nodes will have.
    here = tuple(node for node in cluster.nodes if matches(section.labels or {}, node.labels))
    usable = Cluster(here, cluster.startable)
    if not cluster.elastic:
        _check_possible(stage, section, here, config.file)
    placement = defaults(stage, usable, served, section.gpus)
    placement = replace(placement, **section.model_dump(exclude_none=True))
    if section.min_actors is None:
        return replace(placement, min_actors=min(placement.min_actors, placement.max_actors))
    return replace(placement, max_actors=max(placement.min_actors, placement.max_actors))


def on_this_machine(stage: Stage, config: PlacementConfig, cores: int) -> Placement:
    """The stage in one process without Ray, for which a file says `batch` and `threads` alone."""
    section = config.stage(stage)
    placement = defaults(stage, Cluster((Node(cpus=cores),)))
    if not NEEDS[stage].model:  # no other process shares the work, and each thread holds a batch of encoded images
        placement = Placement(min(placement.batch, READ_HERE), min(MOST_THREADS, cores))
    batch, threads = section.batch or placement.batch, section.threads or placement.threads
    return Placement(batch, threads, cpus=0.0)


def defaults(stage: Stage, cluster: Cluster, served: bool = False, gpus: float | None = None) -> Placement:
    """What suits a cluster: one process a GPU where the stage has a model and there is one, else CPUs in large lots.

    A quarter of the CPUs, and one of each lot, are left to what reads and writes. Pools begin with one process. `gpus`
    of each process, where that is decided already.
    """
    needs = NEEDS[stage]
    nodes = [*cluster.nodes, *cluster.startable]
    if gpus is None and needs.gpu_batch and not served:
        gpus = _share(nodes)
    if needs.model and gpus and not served:
        return _on_gpus(needs, nodes, gpus)
    if not any(node.cpus for node in nodes):
        return Placement(needs.batch, max_actors=1 if needs.per_node else ELASTIC_ACTORS, cpus=1.0)
    return _waiting(needs, nodes) if served or not needs.model else _on_cpus(needs, nodes)


def within(placement: Placement, free_cpus: Sequence[float], elastic: bool = False) -> Placement:
    """The placement with so few CPUs that one node keeps a whole CPU for reads and writes, wherever Ray puts the first
    `min_actors`. `free_cpus`: of each node.

    Without a whole one on a single node they wait for ever, as a pool's first processes are never taken away again. How
    far it grows beyond them is Ray Data's to say, which keeps a share for each other operator; but it bounds only
    processes that reserve what they take, so a pool without room for its first ones does not grow. Processes of 0 CPUs
    run too: Ray counts and withholds none. Where nodes are still to come (`elastic`), what is free now says little.
    """

    def leaves_one(cpus: float) -> bool:
        # So many processes on a node leave less than a CPU there.
        blocking = (math.floor((free - 1) / cpus + 1e-9) + 1 for free in free_cpus if free >= 1)
        return sum(blocking) > placement.min_actors

    if elastic or not placement.cpus or leaves_one(placement.cpus):
        return placement
    hundredths = range(1, math.ceil(placement.cpus * 100))
    cpus = bisect_left(hundredths, True, key=lambda n: not leaves_one(n / 100)) / 100
    return replace(placement, cpus=cpus, max_actors=placement.min_actors)


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is one that the label selector of Ray selects."""
    for name, wanted in selector.items():
        negated = wanted.startswith("!")
        listed = re.fullmatch(r"in\((.*)\)", wanted.removeprefix("!"))
        values = [value.strip() for value in listed[1].split(",")] if listed else [wanted.removeprefix("!")]
        if (labels.get(name) in values) == negated:
            return False
    return True


def _waiting(needs: _Needs, nodes: Sequence[Node]) -> Placement:
    """Processes that wait for files or services: a quarter of a CPU each, one for every few CPUs."""
    most = max(1, sum(int(node.cpus // needs.width) for node in nodes))
    threads = min(MOST_THREADS, _largest(nodes)) if needs.threads else 1
    return Placement(needs.batch, threads, max_actors=most, cpus=0.25)


def _share(nodes: Sequence[Node]) -> float:
    """Of a GPU for each process: a whole one where one is free, else what others, such as replicas of Serve, leave."""
    left = [node.gpus_left for node in nodes if node.gpus_left >= SMALLEST_SHARE]
    return 0.0 if not left else 1.0 if max(left) >= 1 else math.floor(min(left) * 100) / 100


def _on_gpus(needs: _Needs, nodes: Sequence[Node], gpus: float) -> Placement:
    """As many processes as the free GPUs have such shares, each with its part of the CPUs beside them."""
    able = [node for node in nodes if node.gpus_left >= gpus]
    most = sum(int(node.gpus_left / gpus + 1e-6) for node in able)
    width = min([needs.width, *(node.cpus * gpus / node.gpus for node in able)])
    threads = max(1, int(width)) if needs.threads else 1
    return Placement(needs.gpu_batch or needs.batch, threads, max_actors=max(1, most), cpus=_reserved(width), gpus=gpus)


def _on_cpus(needs: _Needs, nodes: Sequence[Node]) -> Placement:
    """Lots of at most `width` CPUs, as large as the largest node gives them; smaller nodes are left to reads."""
    largest = _largest(nodes)
    width = largest // math.ceil(largest / needs.width)
    most = sum(int(node.cpus // width) for node in nodes)
    cpus = _reserved(width) if needs.reads else float(width)
    return Placement(needs.batch, int(width) if needs.threads else 1, max_actors=most, cpus=cpus)


def _reserved(width: float) -> float:
    """Of the CPUs that a process can keep busy: most of them, so that Ray puts no second process on the same ones."""
    return max(0.5, math.floor(0.75 * width * 100) / 100 - 1)


def _largest(nodes: Sequence[Node]) -> int:
    return max(1, int(max(node.cpus for node in nodes)))


def _check_possible(stage: Stage, section: StagePlacement, nodes: Sequence[Node], file: str | None) -> None:
    """ConfigError where a stage would wait for ever: for nodes or GPUs that no node has and no autoscaler brings."""
    if section.labels and not nodes:
        labels = ", ".join(f"{name}={value}" for name, value in section.labels.items())
        why = f"no node of this cluster has {labels}; `ray start --labels` gives a node its labels"
        raise ConfigError(f"stages.{stage}.labels", why, location=file)
    for name, wanted in (("gpus", section.gpus or 0.0), ("cpus", section.cpus or 0.0)):
        if wanted > (most := max((getattr(node, name) for node in nodes), default=0.0)):
            why = f"{wanted:g} for one process is more than the {most:g} of any node that the stage may run on"
            raise ConfigError(f"stages.{stage}.{name}", why, location=file)
