"""What this process may use of its machine: cores and GPUs. It imports no library of models to see them."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from c2b_ray.models import devices
from c2b_ray.pipelines.placement import Machine

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
