"""The shared runtime of PyTorch models: device, batch size, precision and a loop over batches.

It knows no library of models: a classifier is any module from a batch of tensors to logits, with the function that
makes a tensor of a picture.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from c2b_ray.config.placement import Precision
from c2b_ray.errors import ServiceError, SpecError
from c2b_ray.models import devices
from c2b_ray.models.catalog import Spec
from c2b_ray.models.pixels.preprocess import OnArrays, Preparation, Prepared, Transform, batched
from c2b_ray.models.spec_options import BATCH, GPU_BATCH, batches, positive
from c2b_ray.models.transfer import Transfer
from c2b_ray.roles import Blocks, Floats, ModelFact, Pixels, Shape
from c2b_ray.schemas import content_id

DTYPES: dict[Precision, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

CPU_BATCH = 8
"""Rows in a batch on a CPU. The layers' outputs of more of them outgrow its caches and what the allocator keeps
(`_KEPT`), so that each is allocated anew by the kernel."""
# Of mallopt(3), in bytes: M_TRIM_THRESHOLD; M_TOP_PAD, more than the 64 MB of a thread's heap, which glibc otherwise
# unmaps as soon as all of it is free; and M_MMAP_THRESHOLD.
_KEPT = {-1: 256 * 2**20, -2: 65 * 2**20, -3: 64 * 2**20}


def device_of(spec: Spec) -> torch.device:
    """Returns `device=` of a spec (cpu, cuda, cuda:1, mps); without it the GPU that `devices` allows, else the CPU.

    Every model is loaded through this function; on a CPU it makes the process keep freed memory (`_keep_memory`).
    Raises SpecError for a device that is absent or that Ray assigned to another process.
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
    """Makes glibc keep the memory that this process and its threads free, for the next layer's output.

    By default it returns every large array to the kernel, which then clears each page again for the next array. Other C
    libraries are left unchanged.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for name, size in _KEPT.items():
            mallopt(name, size)


@dataclass(frozen=True)
class Runtime:
    """A model's device, batch size and precision."""

    device: torch.device
    batch: int = BATCH
    dtype: torch.dtype = torch.float32


def runtime_of(spec: Spec) -> Runtime:
    """Returns `device=`, `batch=` and `precision=` of a spec; by default the process's device, a batch size that suits
    it, and the placement's precision, or float32."""
    device = device_of(spec)
    return Runtime(device, batch_of(spec, device), DTYPES[_precision(spec)])


def revised(revision: str, spec: Spec) -> str:
    """Returns the revision of a model in the spec's precision, because answers in half precision differ by rounding."""
    precision = _precision(spec)
    return revision if precision == "fp32" else content_id(revision, precision)


def _precision(spec: Spec) -> Precision:
    return devices.precision(spec.options.get("precision"), spec.text) or "fp32"


def batch_of(spec: Spec, device: torch.device) -> int:
    """Returns `batch=` of a spec; by default a size that suits the device."""
    return positive(spec, "batch", CPU_BATCH if device.type == "cpu" else GPU_BATCH)


def placed(module: nn.Module, runtime: Runtime, layout: torch.memory_format) -> nn.Module:
    """Prepares the module for inference on the runtime's device and in its precision, with weights laid out for it.

    Statistics of batch normalisation stay float32, as its kernels allow: 8 bits of a variance are too few.
    """
    module = module.eval().requires_grad_(False)
    if runtime.dtype != torch.float32:
        norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
        exact = [{name: tensor.clone() for name, tensor in norm.state_dict().items()} for norm in norms]
        module.to(runtime.dtype)
        for norm, state in zip(norms, exact, strict=True):
            norm.float().load_state_dict(state)
    elif runtime.device.type == "cuda":
        # float32 is float32: by default cuDNN rounds the factors of a convolution to 10 bits.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return module.to(runtime.device, memory_format=layout)  # type: ignore[call-overload,no-any-return]


def run(module: Callable[[torch.Tensor], Any], rows: Sequence[Any], prepare: Preparation, runtime: Runtime) -> Floats:
    """Returns the module's output for every row, float32 (rows, width), NaN included; (0, 0) for no rows.

    Rows are prepared and run `runtime.batch` at a time, so that no more than two batches are ever decoded into tensors.
    """
    results = []
    transfer = Transfer(runtime.device)
    with torch.inference_mode():
        parts = list(batches(rows, runtime.batch))
        loaded = transfer(partial(prepare.stacked, pinned=transfer.pinned), parts)
        for part, stacked in zip(parts, loaded, strict=True):
            values = prepare.normalised(stacked)
            output = module(values.to(runtime.dtype) if values.is_floating_point() else values)
            if not isinstance(output, torch.Tensor) or output.ndim != 2 or len(output) != len(part):
                shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
                raise ServiceError(f"a model answered {len(part)} rows with {shape}")
            results.append(output.float().cpu().numpy())
    return np.concatenate(results) if results else np.zeros((0, 0), np.float32)


class TorchClassifier:
    """A classification module with its preprocessing and label names; implements `roles.Classifier`."""

    def __init__(
        self,
        module: nn.Module,
        transform: Transform,
        labels: tuple[str, ...],
        revision: str,
        runtime: Runtime,
        facts: tuple[ModelFact, ...] = (),
    ) -> None:
        self.preparation = batched(transform)
        channels_last = isinstance(self.preparation, OnArrays) or runtime.device.type == "cuda"
        self.module = placed(module, runtime, torch.channels_last if channels_last else torch.preserve_format)
        self.labels = labels
        self.revision = revision
        self.facts = facts
        self._runtime = runtime

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Logits, float32 (images, labels); a NaN of the module stays one. `keys` are ignored."""
        if len(images) == 0:
            return np.zeros((0, len(self.labels)), np.float32)
        return self._checked(run(self.module, images, self.preparation, self._runtime))

    @property
    def shape(self) -> Shape | None:
        """How pictures are prepared, where another process can do that (`roles.ShapedClassifier`)."""
        return self.preparation.shape if isinstance(self.preparation, OnArrays) else None

    def logits_of_shaped(self, images: Blocks) -> Floats:
        """Returns `logits` of pictures prepared by `shape`, uint8 (images, height, width, 3)."""
        if len(images) == 0:
            return np.zeros((0, len(self.labels)), np.float32)
        assert isinstance(self.preparation, OnArrays)
        return self._checked(run(self.module, images, Prepared(self.preparation), self._runtime))

    def _checked(self, logits: Floats) -> Floats:
        if logits.shape[1] != len(self.labels):
            raise ServiceError(f"a classifier of {len(self.labels)} labels answered with {logits.shape[1]} logits")
        return logits

    def features(self, images: Sequence[Pixels]) -> Floats:
        """Returns the input of the last layer, float32 (images, dimension). Raises SpecError where no linear layer
        computes the logits."""
        head = last_layer(self.module, len(self.labels))
        seen = threading.local()  # other threads may be in the module too
        hook = head.register_forward_pre_hook(lambda _, inputs: setattr(seen, "inputs", inputs[0]))

        def penultimate(values: torch.Tensor) -> torch.Tensor:
            self.module(values)
            result: torch.Tensor = seen.inputs.flatten(1)
            return result

        try:
            return run(penultimate, images, self.preparation, self._runtime)
        finally:
            hook.remove()


def last_layer(module: nn.Module, outputs: int) -> nn.Module:
    """Returns the last linear layer with that many outputs, also where it is written as a convolution of one pixel."""
    for part in reversed(list(module.modules())):
        if isinstance(part, nn.Linear) and part.out_features == outputs:
            return part
        if isinstance(part, nn.Conv2d) and part.out_channels == outputs and part.kernel_size == (1, 1):
            return part
    raise SpecError(f"{type(module).__name__} has no linear layer of {outputs} outputs, whose inputs would be features")
