"""The shared runtime of PyTorch models: device, batch size, precision, and what of them makes a revision of its own.

It knows no library of models: a classifier is any module from a batch of tensors to logits, with the function that
makes a tensor of a picture.
"""

from __future__ import annotations

import copy
import ctypes
import logging
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from c2b_ray.config.placement import Decoder, Precision
from c2b_ray.errors import ServiceError, SpecError, WeightsError
from c2b_ray.models import devices
from c2b_ray.models.batched_run import Compute, Runtime, compiled, run
from c2b_ray.models.catalog import Spec
from c2b_ray.models.devices import why_unused
from c2b_ray.models.pixels.gpu_decode import decoder_name
from c2b_ray.models.pixels.preprocess import OnArrays, Transform, batched
from c2b_ray.models.spec_options import GPU_BATCH, batches, positive
from c2b_ray.roles import Blocks, Description, Floats, Head, ModelFact, Pixels, Shape
from c2b_ray.tables import content_id

log = logging.getLogger(__name__)

DTYPES: dict[Precision, torch.dtype] = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}

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
        _say(_why_unused())
    return device


@cache
def _say(reason: str | None) -> None:
    if reason:
        log.warning("the model runs on the CPU: %s", reason)


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


def runtime_of(spec: Spec) -> Runtime:
    """Returns `device=`, `batch=`, `precision=` and `compile=` of a classifier's spec; by default the process's device,
    a batch size that suits it, what the placement says, and on a GPU TF32 (`devices.ON_A_GPU`).

    Raises SpecError for TF32 on a CPU."""
    device, precision = device_of(spec), _precision(spec)
    check_tf32(precision, device, spec)
    compiled = devices.compiled(spec.options.get("compile"), spec.text)
    batch, decoder = batch_of(spec, device), decoder_for(spec, device)
    return Runtime(device, batch, DTYPES[precision], compiled, decoder, precision == "tf32")


def check_tf32(precision: str, device: torch.device, spec: Spec) -> None:
    """Raises SpecError for TF32, in which only GPUs compute, on another device."""
    if precision == "tf32" and device.type != "cuda":
        raise SpecError(f"{spec.text}: precision tf32 is for GPUs, and this model is on the {device.type}; write fp32")


def as_computed(description: Description, spec: Spec) -> Description:
    """Returns the description of a classifier as this process computes it: answers in less than float32, of pictures
    that a GPU decodes, or by compiled code differ by rounding, and so have revisions of their own.

    A process that knows not on which device the model will be leaves that to the process that does (`of_device`).
    """
    precision, changes = _precision(spec), image_changes(spec)
    revision = description.revision
    if precision != "fp32" or changes:
        revision = content_id(revision, precision, *changes)
    return replace(
        description,
        revision=revision,
        of_device=description.of_device or of_device(spec),
        shape=None if devices.computing().decode == "gpu" else description.shape,
        facts=(*description.facts, *computing_facts(spec, precision, _device_name(spec))),
    )


def image_changes(spec: Spec) -> list[str]:
    """Returns what changes a model's answers to images by rounding, beside its precision: a GPU's decoder, compiled
    code."""
    decoding = [decoder_name()] if devices.computing().decode == "gpu" else []
    return [*decoding, *(["compiled"] if devices.compiled(spec.options.get("compile"), spec.text) else [])]


def decoder_for(spec: Spec, device: torch.device) -> Decoder:
    """Returns what decodes JPEGs for a model. Raises SpecError for a GPU that is not there."""
    return devices.decoder(device.type, spec.text, _why_unused())


def of_device(spec: Spec) -> bool:
    """Tells whether the precision of a classifier depends on the device of the process that will load it, which this
    process does not know."""
    return devices.assignment() is None and "device" not in spec.options and _named(spec) is None


def with_precision(spec: Spec) -> Spec:
    """Returns the spec of a classifier with its precision stated."""
    return replace(spec, options={**spec.options, "precision": spec.options.get("precision") or _precision(spec)})


def computing_facts(spec: Spec, precision: str, device: str) -> tuple[ModelFact, ...]:
    """Returns how a model computes, and who says so."""
    if "precision" in spec.options:
        source = "spec"
    elif _named(spec) is not None:
        source = "placement"
    else:
        source = f"default on {'a GPU' if device.startswith('cuda') else f'the {device}'}"
    facts = [ModelFact("precision", precision, source, option="precision")]
    if devices.computing().decode == "gpu":
        facts.append(ModelFact("decoding", f"on the GPU, by {decoder_name()}", "placement"))
    if devices.compiled(spec.options.get("compile"), spec.text):
        facts.append(
            ModelFact("compiled", "yes", "spec" if "compile" in spec.options else "placement", option="compile")
        )
    return tuple(facts)


def _named(spec: Spec) -> Precision | None:
    return devices.precision(spec.options.get("precision"), spec.text)


def _precision(spec: Spec) -> Precision:
    return _named(spec) or (devices.ON_A_GPU if _device_name(spec).startswith("cuda") else "fp32")


def _device_name(spec: Spec) -> str:
    return devices.device(spec.options.get("device"), spec.text, torch.cuda.device_count())


def _why_unused() -> str | None:
    return why_unused(torch.version.cuda, torch.cuda.device_count())


def batch_of(spec: Spec, device: torch.device) -> int:
    """Returns `batch=` of a spec; by default a size that suits the device."""
    return positive(spec, "batch", CPU_BATCH if device.type == "cpu" else GPU_BATCH)


def placed(module: nn.Module, runtime: Runtime, layout: torch.memory_format) -> nn.Module:
    """Prepares the module for inference on the runtime's device and in its precision, with weights laid out for it.

    Weights that a library keeps in the half precision of their file are widened: pictures come in the runtime's.
    Statistics of batch normalisation stay float32, as its kernels allow: 8 bits of a variance are too few. Raises
    WeightsError where a weight is beyond the range of float16.
    """
    module = module.eval().requires_grad_(False)
    module.float().to(runtime.device, memory_format=layout)  # type: ignore[call-overload]
    if runtime.dtype != torch.float32:
        norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
        exact = [{name: tensor.clone() for name, tensor in norm.state_dict().items()} for norm in norms]
        module.to(runtime.dtype)
        for norm, state in zip(norms, exact, strict=True):
            norm.float().load_state_dict(state)
        if runtime.dtype == torch.float16:
            _check_range(module)
    return module


def _check_range(module: nn.Module) -> None:
    parameters = [(name, values) for name, values in module.named_parameters() if values.device.type != "meta"]
    finite = torch.stack([values.isfinite().all() for _, values in parameters]).tolist() if parameters else []
    for (name, _), is_finite in zip(parameters, finite, strict=True):
        if not is_finite:
            raise WeightsError(f"{name} has values that float16 cannot hold (beyond 65504): write precision=bf16")


class WithComplement(nn.Module):
    """A module of one score z as one of two logits, 0 and z (`models.heads`)."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.module(pixels).reshape(len(pixels), 1)
        return torch.cat([torch.zeros_like(scores), scores], dim=1)


def with_complement(module: nn.Module, outputs: int) -> nn.Module:
    """Returns a module with a logit for each of two labels, where it has one output."""
    return WithComplement(module) if outputs == 1 else module


_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a library raises about pictures, such as their size, and about much else."""


def takes(module: nn.Module, stacked: torch.Tensor) -> bool:
    """Returns whether a module takes tensors of this shape, without computing: on the meta device, so that neither a
    device nor memory nor a compiler can be what fails."""
    state = {name: tensor.to("meta") for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    try:
        functional_call(module, state, (stacked.to("meta"),))
    except _FAILURES:
        return False
    return True


class TorchClassifier:
    """A classification module with its preprocessing and label names; implements `roles.Classifier`.

    `facts`, `head`: as in `roles.Description`.
    """

    def __init__(
        self,
        module: nn.Module,
        transform: Transform,
        labels: tuple[str, ...],
        revision: str,
        runtime: Runtime,
        facts: tuple[ModelFact, ...] = (),
        head: Head = "softmax",
    ) -> None:
        self.preparation = batched(transform)
        channels_last = isinstance(self.preparation, OnArrays) or runtime.device.type == "cuda"
        self.module = placed(module, runtime, torch.channels_last if channels_last else torch.preserve_format)
        self.labels, self.revision, self.facts, self.head = labels, revision, facts, head
        self.runtime = runtime
        self.compute: Compute = compiled(self.module) if runtime.compiled else self.module
        self._exact: nn.Module | None = None
        self._making = threading.Lock()

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Logits, float32 (images, labels); a NaN of the module stays one. `keys` are ignored."""
        if len(images) == 0:
            return np.zeros((0, len(self.labels)), np.float32)
        return self._answers(images, self.preparation)

    @property
    def shape(self) -> Shape | None:
        """How pictures are prepared, where another process can do that (`roles.ShapedClassifier`)."""
        return self.preparation.shape if isinstance(self.preparation, OnArrays) else None

    def logits_of_shaped(self, images: Blocks) -> Floats:
        """Returns `logits` of pictures prepared by `shape`, uint8 (images, height, width, 3)."""
        if len(images) == 0:
            return np.zeros((0, len(self.labels)), np.float32)
        assert isinstance(self.preparation, OnArrays)
        return self._answers(images, self.preparation.prepared)

    def _answers(self, rows: Any, prepare: Any) -> Floats:
        try:
            logits = self.checked(run(self.compute, rows, prepare, self.runtime))
        except (torch.OutOfMemoryError, torch.AcceleratorError):  # others handle these
            raise
        except _FAILURES as error:
            raise self._failure(rows, prepare, error) from error
        if len(overflowed := self.beyond(logits)):
            part: Any = rows[overflowed] if isinstance(rows, np.ndarray) else [rows[i] for i in overflowed]
            logits[overflowed] = run(self.exact, part, prepare, self.exactly)
        return logits

    def _failure(self, rows: Any, prepare: Any, error: Exception) -> WeightsError | ServiceError:
        """Returns what is at fault: how pictures are prepared, or the process that computes."""
        reason = " ".join(str(error).split())[:300].rstrip(" .")
        try:
            parts = [prepare.normalised(prepare.stacked(part)) for part in batches(rows, self.runtime.rows)]
            suit = all(takes(self.module, part.to(self.runtime.dtype)) for part in parts)
        except _FAILURES:
            suit = False
        if not suit:
            return WeightsError(
                f"the classifier fails on pictures as they are prepared for it: {reason}. If their size or channels do "
                "not suit it, correct them in the spec or in the file that states the preprocessing"
            )
        hint = "compile=false leaves it uncompiled" if self.runtime.compiled else "a smaller batch= needs less memory"
        return ServiceError(
            f"the classifier failed on the {self.runtime.device}, and the size of the pictures is not why: "
            f"{type(error).__name__}: {reason}; {hint}"
        )

    def checked(self, logits: Floats) -> Floats:
        """Returns `logits` after checking their number."""
        if logits.shape[1] != len(self.labels):
            raise ServiceError(f"a classifier of {len(self.labels)} labels answered with {logits.shape[1]} logits")
        return logits

    def beyond(self, logits: Floats) -> NDArray[np.intp]:
        """Returns the rows in which a float16 may have overflowed, which are to be answered in float32 (`exact`)."""
        if self.runtime.dtype != torch.float16:
            return np.zeros(0, np.intp)
        return np.flatnonzero(~np.isfinite(logits).all(axis=1))

    @property
    def exactly(self) -> Runtime:
        """The runtime of `exact`."""
        return replace(self.runtime, dtype=torch.float32, compiled=False, tf32=False)

    @property
    def exact(self) -> nn.Module:
        """The module in float32, made when the first row needs it."""
        with self._making:
            if self._exact is None:
                log.warning("answers of this model overflow float16; those pictures are answered again in float32")
                self._exact = copy.deepcopy(self.module).float()
            return self._exact

    def features(self, images: Sequence[Pixels]) -> Floats:
        """Returns the input of the last layer, float32 (images, dimension). Raises SpecError where no linear layer
        computes the logits."""
        outputs = 1 if isinstance(self.module, WithComplement) else len(self.labels)
        head = last_layer(self.module, outputs)
        captured = threading.local()  # other threads may be in the module too
        handle = head.register_forward_pre_hook(lambda _, inputs: setattr(captured, "inputs", inputs[0]))

        def penultimate(values: torch.Tensor) -> torch.Tensor:
            self.module(values)
            result: torch.Tensor = captured.inputs.flatten(1)
            return result

        try:
            return run(penultimate, images, self.preparation, self.runtime)
        finally:
            handle.remove()


def last_layer(module: nn.Module, outputs: int) -> nn.Module:
    """Returns the last linear layer with that many outputs, also where it is written as a convolution of one pixel."""
    for part in reversed(list(module.modules())):
        if isinstance(part, nn.Linear) and part.out_features == outputs:
            return part
        if isinstance(part, nn.Conv2d) and part.out_channels == outputs and part.kernel_size == (1, 1):
            return part
    raise SpecError(f"{type(module).__name__} has no linear layer of {outputs} outputs, whose inputs would be features")
