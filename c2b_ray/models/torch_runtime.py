"""What every PyTorch model here needs: a device, a batch size and a loop over batches.

It knows no library of models: a classifier is any module from a batch of tensors to logits, with the function that
makes a tensor of a picture.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models import devices
from c2b_ray.models.catalog import Spec
from c2b_ray.models.pixels.preprocess import OnArrays, Transform, batched
from c2b_ray.models.spec_options import BATCH, batches, positive
from c2b_ray.roles import Floats, Pixels

CPU_BATCH = 8
"""Rows at once on a CPU. The layers' outputs of more of them outgrow its caches and what the allocator keeps (`_KEPT`),
so that each is asked of the kernel anew."""
# Of mallopt(3), in bytes: M_TRIM_THRESHOLD; M_TOP_PAD, more than the 64 MB of a thread's heap, which glibc otherwise
# unmaps as soon as all of it is free; and M_MMAP_THRESHOLD.
_KEPT = {-1: 256 * 2**20, -2: 65 * 2**20, -3: 64 * 2**20}


def device_of(spec: Spec) -> torch.device:
    """`device=` of a spec (cpu, cuda, cuda:1, mps); without it the GPU that `devices` allows, else the CPU.

    Every model is loaded through here; with a CPU, the process keeps from here on what it frees (`_keep_memory`).
    SpecError for a device that is absent or that Ray assigned to another process.
    """
    name = devices.device(spec.options.get("device"), spec.text, torch.cuda.device_count())
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise SpecError(f"{spec.text}: no device {name!r} here; device=cpu always works") from error
    if device.type == "cpu":
        _keep_memory()
    return device


@cache
def _keep_memory() -> None:
    """From here on glibc keeps what this process and its threads free for the next layer's output.

    It would give every large array back to the kernel, which then clears each of its pages anew for the next. Other C
    libraries are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for name, size in _KEPT.items():
            mallopt(name, size)


def batch_of(spec: Spec, device: torch.device) -> int:
    """`batch=` of a spec; without it, what suits the device."""
    return positive(spec, "batch", CPU_BATCH if device.type == "cpu" else BATCH)


def run(
    module: Callable[[torch.Tensor], Any],
    rows: Sequence[Any],
    prepare: Callable[[Sequence[Any]], torch.Tensor],
    device: torch.device,
    batch: int,
) -> Floats:
    """The module's output for every row, float32 (rows, width), NaN included; (0, 0) for no rows.

    Rows are prepared and run `batch` at a time, so that no more of them are ever decoded into tensors at once.
    """
    found = []
    with torch.inference_mode():
        for part in batches(rows, batch):
            output = module(prepare(part).to(device, non_blocking=True))
            if not isinstance(output, torch.Tensor) or output.ndim != 2 or len(output) != len(part):
                shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
                raise ServiceError(f"a model answered {len(part)} rows with {shape}")
            found.append(output.float().cpu().numpy())
    return np.concatenate(found) if found else np.zeros((0, 0), np.float32)


class TorchClassifier:
    """A classification module with its preprocessing and label names; implements `roles.Classifier`."""

    def __init__(
        self,
        module: nn.Module,
        transform: Transform,
        labels: tuple[str, ...],
        revision: str,
        device: torch.device,
        batch: int = BATCH,
    ) -> None:
        self._prepare = batched(transform)
        channels_last = device.type == "cpu" and isinstance(self._prepare, OnArrays)
        layout = torch.channels_last if channels_last else torch.preserve_format
        self._module = module.eval().requires_grad_(False).to(device, memory_format=layout)  # type: ignore[call-overload]
        self.labels = labels
        self.revision = revision
        self._device = device
        self._batch = batch

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Logits, float32 (images, labels); a NaN that the module computes stays one. `keys` are not looked at."""
        if len(images) == 0:
            return np.zeros((0, len(self.labels)), np.float32)
        found = run(self._module, images, self._prepare, self._device, self._batch)
        if found.shape[1] != len(self.labels):
            raise ServiceError(f"a classifier of {len(self.labels)} labels answered with {found.shape[1]} logits")
        return found
