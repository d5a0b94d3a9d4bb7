"""Decides what a stage takes of this machine in a run without Ray. Pure functions of numbers, as `placement`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from c2b_ray.config.placement import PlacementConfig, Stage
from c2b_ray.pipelines.placement import GPU_THREADS, MOST_THREADS, NEEDS, Cluster, Node, Placement, defaults

READ_HERE = 64
"""Images that one thread of a process without Ray reads at once."""
FEWEST_ROWS = 1000
"""Rows from which on processes prepare them: starting each takes half a second of a core."""


@dataclass(frozen=True)
class Machine:
    """The machine of this process, as far as it may use it."""

    cores: int
    gpus: int = 0


def on_this_machine(
    stage: Stage, config: PlacementConfig, machine: Machine, prepared: bool = False, rows: int | None = None
) -> Placement:
    """Returns the placement in one process without Ray, for which a file sets only `batch`, `threads` and `decoders`.

    `prepared`: whether other processes can prepare the stage's `rows`. They do where a GPU computes, or where there are
    more than two cores; on two, whatever decodes takes its time from the model. A few
    rows are done before they would have started.
    """
    section, cores = config.stage(stage), machine.cores
    placement = defaults(stage, Cluster((Node(cpus=cores),)))
    if not NEEDS[stage].model:  # no other process shares the work, and each thread holds a batch of encoded images
        placement = Placement(min(placement.batch, READ_HERE), min(MOST_THREADS, cores))
    elif machine.gpus and NEEDS[stage].gpu_batch:
        placement = replace(placement, batch=NEEDS[stage].gpu_batch)
    decoders = 0
    if prepared:
        decoders = section.decoders if section.decoders is not None else _decoders(machine, rows)
    if decoders and machine.gpus and NEEDS[stage].threads:
        placement = replace(placement, threads=GPU_THREADS)
    batch, threads = section.batch or placement.batch, section.threads or placement.threads
    return Placement(batch, threads, cpus=0.0, decoders=decoders)


def _decoders(machine: Machine, rows: int | None) -> int:
    """Returns how many processes decode on a machine, beside one that computes."""
    if rows is not None and rows < FEWEST_ROWS:
        return 0
    if machine.gpus:
        return max(1, machine.cores - 1)
    return machine.cores // 2 if machine.cores > 2 else 0
