"""Says why a model is on the CPU of a machine that has GPUs, and how to use them. It knows the driver, not PyTorch."""

from __future__ import annotations

import os

from c2b_ray.models import devices, nvml


def why_unused(torch_cuda: str | None, seen: int) -> str | None:
    """Returns one sentence on why a model of this process runs on the CPU although the machine has GPUs; None where it
    has none.

    `torch_cuda`: the version of CUDA that PyTorch was built for, such as "13.0", or None; `seen`: how many GPUs
    PyTorch sees.
    """
    there = nvml.count()
    if not there:
        return None
    gpus = f"this machine has {there} GPU{'s' if there > 1 else ''}"
    visible, assignment = os.environ.get(devices.VISIBLE), devices.assignment()
    if torch_cuda is None:
        return f"{gpus}, but this PyTorch is built for CPUs: install its CUDA build (docs/install.md)"
    driver = nvml.cuda_of_driver()
    if not seen and driver is not None and driver < _version(torch_cuda):
        return (
            f"{gpus}, but the driver knows CUDA up to {driver[0]}.{driver[1]} and this PyTorch is built for "
            f"{torch_cuda}: update the driver, or install a PyTorch for CUDA {driver[0]}.{driver[1]} or older"
        )
    if assignment is not None and not assignment.gpus:
        return f"{gpus}, but Ray assigned none to this process: write `gpus: 1` for this stage in the placement"
    if not seen and visible is not None:
        return f"{gpus}, but {devices.VISIBLE}={visible} hides them: unset it"
    if not seen:
        return f"{gpus}, but PyTorch cannot use them: see what `python -c 'import torch; torch.zeros(1).cuda()'` says"
    return f"{gpus}, which device=cpu leaves idle: leave device= out, or write device=cuda"


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor.partition(".")[0] or 0)
