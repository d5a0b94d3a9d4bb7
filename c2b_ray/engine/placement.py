"""Decides how many processes run a stage, and what each takes, from the nodes' resources and a placement file.

Pure functions of nodes and numbers: it does not know Ray (`nodes` reads the cluster), nor what a stage does.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from c2b_ray.config.placement import Computing, Decoder, PlacementConfig, Precision, Stage, StagePlacement
from c2b_ray.errors import ConfigError

MOST_THREADS = 16
"""Batches in progress in one process. More threads would wait for Python's lock."""
SMALLEST_SHARE = 0.1
"""Share of a GPU. By default no process shares a GPU with less than this free."""
ELASTIC_ACTORS = 16
"""Processes that a stage may grow to where the nodes that an autoscaler can start are not known."""


GPU_THREADS = 3
"""Batches in progress in a process that owns a GPU and gets prepared rows: one is computed, one copied, one written."""


FED_CPUS = 1.0
"""CPUs that a process reserves whose rows come prepared: it copies blocks and writes answers while its GPU computes."""


@dataclass(frozen=True)
class NodeResources:
    """A node that is present, or that an autoscaler can start. `free_gpus`: GPUs that nobody has reserved;
    None: all."""

    cpus: float
    gpus: float = 0.0
    free_gpus: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus_left(self) -> float:
        return self.gpus if self.free_gpus is None else self.free_gpus


@dataclass(frozen=True)
class Cluster:
    """`nodes`: the present ones. `startable`: further ones that an autoscaler can start, as far as it lists them."""

    nodes: tuple[NodeResources, ...]
    startable: tuple[NodeResources, ...] = ()

    @property
    def elastic(self) -> bool:
        """Whether nodes are still to come. A cluster without CPUs counts as elastic, for no stage could run on it as it
        is."""
        return bool(self.startable) or not any(node.cpus for node in self.nodes)


@dataclass(frozen=True)
class Placement:
    """The processes of a stage. `threads`: 0 for one per core of the process's machine. `decoders`: processes that
    prepare rows for those of the model; 0: these prepare rows themselves."""

    batch: int
    threads: int = 1
    min_actors: int = 1
    max_actors: int = 1
    cpus: float = 0.5
    gpus: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    precision: Precision | None = None
    decoders: int = 0
    decode: Decoder | None = None
    compile: bool | None = None

    @property
    def computing(self) -> Computing:
        return Computing(self.precision, self.decode, self.compile)

    def record(self) -> dict[str, Any]:
        """Returns the entry in a run's manifest."""
        return {**vars(self), "labels": dict(self.labels)}


@dataclass(frozen=True)
class _Needs:
    """What a stage needs: rows per batch on CPUs and on a GPU, and the most CPUs that one process can keep busy.

    `model`: whether the stage computes, and so takes CPUs or a GPU for itself. `threads`: whether its roles take
    several batches at once. `reads`: whether other processes read and write for it, and need CPUs.
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
    # Each process holds the whole index in memory, so each node gets one.
    "search": _Needs(batch=256, width=1024, per_node=True),
    # A dataset's generator and classifiers in one process; its batch is the dataset's own.
    "shards": _Needs(batch=1, width=1, gpu_batch=1, reads=False),
    # One thread a process, which decodes and computes with NumPy. As many as one node can run, if Ray puts all on it.
    "measure": _Needs(batch=64, width=4, model=False),
}


def placed(
    stage: Stage, config: PlacementConfig, cluster: Cluster, served: bool = False, prepared: bool = False
) -> Placement:
    """Returns the stage's placement: the values of `config`, and defaults for the rest.

    `served`: the models answer from Ray Serve, so that the stage's processes only wait for them. `prepared`: whether
    other processes can prepare the stage's rows. Raises ConfigError where `config` requires nodes that this cluster can
    never have.
    """
    section = config.stage(stage)
    # An autoscaler does not say which labels its nodes will have.
    matching = tuple(node for node in cluster.nodes if matches(section.labels or {}, node.labels))
    usable_cluster = Cluster(matching, cluster.startable)
    if not cluster.elastic:
        _check_possible(stage, section, matching, config.file)
    placement = defaults(stage, usable_cluster, served, section.gpus)
    if prepared and not served:
        placement = _fed(placement, usable_cluster, section.decoders)
    placement = replace(placement, **section.model_dump(exclude_none=True))
    if section.min_actors is None:
        return replace(placement, min_actors=min(placement.min_actors, placement.max_actors))
    return replace(placement, max_actors=max(placement.min_actors, placement.max_actors))


def check(config: PlacementConfig, cluster: Cluster) -> None:
    """Raises ConfigError where a stage of the file requires nodes that this cluster can never have, before any stage
    begins."""
    for stage in NEEDS:
        section = config.stage(stage)
        if not cluster.elastic:
            matching = tuple(node for node in cluster.nodes if matches(section.labels or {}, node.labels))
            _check_possible(stage, section, matching, config.file)


def defaults(stage: Stage, cluster: Cluster, served: bool = False, gpus: float | None = None) -> Placement:
    """Returns the default placement on a cluster.

    A stage with a model gets one process per GPU where there are GPUs, otherwise large lots of CPUs. A quarter of the
    CPUs, and one CPU of each lot, are left for reading and writing. Pools begin with one process. `gpus`: of each
    process, where that is already decided.
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


def _fed(placement: Placement, cluster: Cluster, decoders: int | None) -> Placement:
    """Returns the placement where tasks prepare the rows: of processes with a GPU, unless `decoders` says otherwise.

    Such a process computes on few cores, and all that there may be start at once: they load while the first rows are
    prepared.
    """
    if decoders == 0 or (decoders is None and not placement.gpus):
        return placement
    cpus = min(placement.cpus, FED_CPUS)
    nodes = [*cluster.nodes, *cluster.startable]
    free_cpus = int(sum(node.cpus for node in nodes) - cpus * placement.max_actors - 1)
    placement = replace(placement, cpus=cpus, decoders=max(1, free_cpus) if decoders is None else decoders)
    if not placement.gpus:
        return placement
    processes = placement.max_actors
    threads = min(placement.threads, GPU_THREADS)
    return replace(placement, threads=threads, min_actors=1 if cluster.elastic else processes)


def within(placement: Placement, free_cpus: Sequence[float], elastic: bool = False) -> Placement:
    """Returns the placement with `cpus` reduced until one node keeps a whole CPU for reads and writes, wherever Ray
    puts the first `min_actors`.

    `free_cpus`: of each node. Without a whole free CPU on a single node, reads and writes would wait forever, because a
    pool's first processes are never taken away. How far the pool grows beyond them is decided by Ray Data, which keeps
    a share for each other operator; but it bounds only processes that reserve what they take, so a pool without room
    for its first ones does not grow. Processes of 0 CPUs run too: Ray neither counts nor withholds them. With
    `elastic`, nodes are still to come, and the placement is not reduced.
    """

    def leaves_one(cpus: float) -> bool:
        # The number of processes on a node that leaves less than a CPU there.
        blocking = (math.floor((free - 1) / cpus + 1e-9) + 1 for free in free_cpus if free >= 1)
        return sum(blocking) > placement.min_actors

    if elastic or not placement.cpus or leaves_one(placement.cpus):
        return placement
    hundredths = range(1, math.ceil(placement.cpus * 100))
    cpus = bisect_left(hundredths, True, key=lambda n: not leaves_one(n / 100)) / 100
    return replace(placement, cpus=cpus, max_actors=placement.min_actors)


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Returns whether Ray's label selector `selector` selects a node with these labels."""
    for name, pattern in selector.items():
        negated = pattern.startswith("!")
        alternatives = re.fullmatch(r"in\((.*)\)", pattern.removeprefix("!"))
        values = (
            [value.strip() for value in alternatives[1].split(",")] if alternatives else [pattern.removeprefix("!")]
        )
        if (labels.get(name) in values) == negated:
            return False
    return True


def _waiting(needs: _Needs, nodes: Sequence[NodeResources]) -> Placement:
    """Returns a placement for processes that wait for files or services: a quarter of a CPU each, one per few CPUs."""
    processes = max(1, sum(int(node.cpus // needs.width) for node in nodes))
    threads = min(MOST_THREADS, _largest(nodes)) if needs.threads else 1
    return Placement(needs.batch, threads, max_actors=processes, cpus=0.25)


def _share(nodes: Sequence[NodeResources]) -> float:
    """Returns the share of a GPU for each process: a whole GPU if one is free, else what others, such as replicas of
    Serve, leave."""
    free_shares = [node.gpus_left for node in nodes if node.gpus_left >= SMALLEST_SHARE]
    return 0.0 if not free_shares else 1.0 if max(free_shares) >= 1 else math.floor(min(free_shares) * 100) / 100


def _on_gpus(needs: _Needs, nodes: Sequence[NodeResources], gpus: float) -> Placement:
    """Returns as many processes as the free GPUs have such shares, each with its part of the node's CPUs."""
    usable_nodes = [node for node in nodes if node.gpus_left >= gpus]
    processes = sum(int(node.gpus_left / gpus + 1e-6) for node in usable_nodes)
    width = min([needs.width, *(node.cpus * gpus / node.gpus for node in usable_nodes)])
    threads = max(1, int(width)) if needs.threads else 1
    return Placement(
        needs.gpu_batch or needs.batch, threads, max_actors=max(1, processes), cpus=_reserved(width), gpus=gpus
    )


def _on_cpus(needs: _Needs, nodes: Sequence[NodeResources]) -> Placement:
    """Returns lots of at most `width` CPUs, sized to divide the largest node; the CPUs of smaller nodes are left to
    reads."""
    largest = _largest(nodes)
    width = largest // math.ceil(largest / needs.width)
    processes = sum(int(node.cpus // width) for node in nodes)
    cpus = _reserved(width) if needs.reads else float(width)
    return Placement(needs.batch, int(width) if needs.threads else 1, max_actors=processes, cpus=cpus)


def _reserved(width: float) -> float:
    """Returns most of the CPUs that a process can keep busy, so that Ray puts no second process on the same ones."""
    return max(0.5, math.floor(0.75 * width * 100) / 100 - 1)


def _largest(nodes: Sequence[NodeResources]) -> int:
    return max(1, int(max(node.cpus for node in nodes)))


def _check_possible(stage: Stage, section: StagePlacement, nodes: Sequence[NodeResources], file: str | None) -> None:
    """Raises ConfigError where a stage would wait forever for nodes or GPUs that no node has and no autoscaler
    brings."""
    if section.labels and not nodes:
        labels = ", ".join(f"{name}={value}" for name, value in section.labels.items())
        problem = f"no node of this cluster has {labels}; `ray start --labels` gives a node its labels"
        raise ConfigError(f"stages.{stage}.labels", problem, location=file)
    for name, required in (("gpus", section.gpus or 0.0), ("cpus", section.cpus or 0.0)):
        if required > (largest := max((getattr(node, name) for node in nodes), default=0.0)):
            problem = f"{required:g} for one process is more than the {largest:g} of any node that the stage may run on"
            raise ConfigError(f"stages.{stage}.{name}", problem, location=file)
