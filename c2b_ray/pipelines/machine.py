"""What this process may use of its machine: cores and GPUs. It imports no library of models to see them."""

from __future__ import annotations

import logging
import os
import re
import shutil
from contextlib import suppress

from c2b_ray.models import devices
from c2b_ray.pipelines.placement_here import Machine

STORE_MB = 512
"""Of Ray's object store where no GPU computes: blocks of files, some at a time."""
STORE_PER_GPU_MB = 4096
"""Of the object store for each GPU: a hundred blocks of prepared pictures."""
_SHARED = "/dev/shm"  # noqa: S108
_DEVICE = re.compile(r"nvidia\d+")


def machine() -> Machine:
    return Machine(len(os.sched_getaffinity(0)), gpus())


def gpus() -> int:
    """Returns how many GPUs of this machine the models of this process may use."""
    assigned = devices.assignment()
    if assigned is not None:
        return len(assigned.gpus)
    there = 0
    with suppress(OSError):
        there = sum(_DEVICE.fullmatch(name) is not None for name in os.listdir("/dev"))
    visible = os.environ.get(devices.VISIBLE)
    if visible is None:
        return there
    names = visible.split(",") if visible else []
    # CUDA ignores what comes after a name that is none.
    valid = next((i for i, name in enumerate(names) if name.strip().startswith("-") or not name.strip()), len(names))
    return min(there, valid)


def object_store_mb() -> int:
    """Returns the size of Ray's object store on this machine: more where prepared pictures wait in it for GPUs, but no
    more than an eighth of the memory, and than what is free in the shared memory that it lies in.

    Says so where a container has too little of that, such as Docker's 64 MB: Ray then keeps it in files.
    """
    wanted = STORE_PER_GPU_MB * gpus()
    if not wanted:
        return STORE_MB
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    free = shutil.disk_usage(_SHARED).free >> 20 if os.path.isdir(_SHARED) else 0
    if free * 9 // 10 < STORE_MB:
        logging.getLogger(__name__).warning(
            "%s has %d MB free, too little to hand pictures to a GPU through Ray; start the container with "
            "--shm-size=8g, or run with --via here, which does without",
            _SHARED,
            free,
        )
        return STORE_MB
    return max(STORE_MB, min(wanted, memory // 8, free * 9 // 10))
