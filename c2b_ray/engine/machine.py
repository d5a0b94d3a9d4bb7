"""What this process may use of its machine: cores, memory and GPUs. It imports no library of models to see them."""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from c2b_ray.config.placement import PlacementConfig, Stage
from c2b_ray.engine.placement import GPU_THREADS, MOST_THREADS, NEEDS, Cluster, NodeResources, Placement, defaults
from c2b_ray.models import devices

# Decides what a stage takes of this machine in a run without Ray. Pure functions of numbers, as `placement`.


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
    placement = defaults(stage, Cluster((NodeResources(cpus=cores),)))
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


STORE_MB = 512
"""Of Ray's object store where no GPU computes: blocks of files, some at a time."""
STORE_PER_GPU_MB = 4096
"""Of the object store for each GPU: a hundred blocks of prepared pictures."""
SHARED = "/dev/shm"  # noqa: S108
GROUPS = "/sys/fs/cgroup"
OWN_GROUPS = "/proc/self/cgroup"
_DEVICE = re.compile(r"nvidia\d+")


def machine() -> Machine:
    return Machine(cores(), gpus())


def cores() -> int:
    """Returns how many cores this process may use: those of its affinity, and no more than the time that the control
    groups of its container grant (`docker run --cpus`, a pod's limit), rounded up."""
    # macOS has no affinity.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def cpu_quota(groups: str | Path = GROUPS, own_groups: str | Path = OWN_GROUPS) -> float | None:
    """Returns the cores' worth of time that control groups grant, such as 1.5; None without a limit.

    `groups`: where control groups are mounted; `own_groups`: the file that names those of this process.
    """
    quotas = []
    for folder in _folders("cpu", groups, own_groups):
        with suppress(OSError, ValueError):
            quota, _, period = (folder / "cpu.max").read_text().partition(" ")
            quotas.append(int(quota) / int(period))
        with suppress(OSError, ValueError):  # version 1, where no limit is -1
            quotas.append(
                int((folder / "cpu.cfs_quota_us").read_text()) / int((folder / "cpu.cfs_period_us").read_text())
            )
    return min((quota for quota in quotas if quota > 0), default=None)


def memory_bytes(groups: str | Path = GROUPS, own_groups: str | Path = OWN_GROUPS) -> int:
    """Returns the bytes of memory that this process may use: the machine's, or the least limit of its control
    groups."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for folder in _folders("memory", groups, own_groups):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):  # "max": no limit
                limits.append(int((folder / name).read_text()))
    return min(limits)


def _folders(controller: str, groups: str | Path, own_groups: str | Path) -> Iterator[Path]:
    """Yields the folders whose limits bind this process: its group and those above, of either version."""
    with suppress(OSError):
        for line in Path(own_groups).read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            root = Path(groups, controllers)
            # A container sees its own group as the root, though the name that the file gives may be the host's.
            for group in (Path(path), *Path(path).parents):
                yield root / str(group).lstrip("/")


def gpus() -> int:
    """Returns how many GPUs of this machine the models of this process may use."""
    assigned = devices.assignment()
    if assigned is not None:
        return len(assigned.gpus)
    n_devices = 0
    with suppress(OSError):
        n_devices = sum(_DEVICE.fullmatch(name) is not None for name in os.listdir("/dev"))
    visible = os.environ.get(devices.VISIBLE)
    if visible is None:
        return n_devices
    names = visible.split(",") if visible else []
    # CUDA ignores what comes after a name that is none.
    valid = next((i for i, name in enumerate(names) if name.strip().startswith("-") or not name.strip()), len(names))
    return min(n_devices, valid)


def object_store_mb() -> int:
    """Returns the size of Ray's object store on this machine: more where prepared pictures wait in it for GPUs, but no
    more than an eighth of the memory, and than what is free in the shared memory that it lies in.

    Says so where a container has too little of that, such as Docker's 64 MB: Ray then keeps it in files.
    """
    wanted_mb = STORE_PER_GPU_MB * gpus()
    if not wanted_mb:
        return STORE_MB
    memory = memory_bytes() >> 20
    free = shutil.disk_usage(SHARED).free >> 20 if os.path.isdir(SHARED) else 0
    if free * 9 // 10 < STORE_MB:
        logging.getLogger(__name__).warning(
            "%s has %d MB free, too little to hand pictures to a GPU through Ray; start the container with "
            "--shm-size=8g, or run with --via here, which does without",
            SHARED,
            free,
        )
        return STORE_MB
    return max(STORE_MB, min(wanted_mb, memory // 8, free * 9 // 10))
