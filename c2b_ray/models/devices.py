"""Which GPUs a model in this process may use, how it computes there, and how busy its GPU is.

On a cluster Ray decides this. Since 2.60 Ray no longer hides GPUs from a process to which it assigned none: every such
process would put its model onto the first GPU that it sees. Therefore the worker of a stage and the replica of a Serve
app call `assign` before they load a model. It knows the driver (`nvml`), and neither Ray nor any library of models.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self, get_args

from c2b_ray.config.placement import UNSAID, Computing, Decoder, Precision
from c2b_ray.errors import ServiceError, SpecError, nearest
from c2b_ray.models import nvml

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
EVERY_S = 0.2
"""Seconds between two samples of a `GpuMeter`."""
ON_A_GPU: Precision = "tf32"
"""The precision of a classifier on a GPU where neither its spec nor the placement names one (docs/guide/running.md)."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
_OF_A_WORKER = "RAY_RAYLET_PID"
"""The variable that Ray sets in the environment of its workers, and so of the programs that they start."""


@dataclass(frozen=True)
class Assignment:
    """The GPUs that Ray assigned to this process, as `ray.get_gpu_ids()` names them, and what the placement says."""

    gpus: tuple[str, ...] = ()
    computing: Computing = UNSAID


_current: Assignment | None = None
_computing = UNSAID


def assign(gpus: Iterable[object], computing: Computing = UNSAID) -> None:
    """Makes the models of this process use these GPUs and no others from now on; without any, the CPU.

    Raises SpecError for an unknown precision.
    """
    global _current
    _checked(computing.precision)
    _current = Assignment(tuple(map(str, gpus)), computing)


@contextmanager
def assigned(gpus: Iterable[object], computing: Computing = UNSAID) -> Iterator[None]:
    """Like `assign`, until the end of the block."""
    global _current
    previous = _current
    assign(gpus, computing)
    try:
        yield
    finally:
        _current = previous


@contextmanager
def computing_in(computing: Computing) -> Iterator[None]:
    """Makes models that the block loads or describes compute like this, where their specs say nothing else; None in a
    field changes nothing. A driver describes models as the stage that will load them computes."""
    global _computing
    previous = _computing
    _checked(computing.precision)
    _computing = computing.over(previous)
    try:
        yield
    finally:
        _computing = previous


@contextmanager
def exactly() -> Iterator[None]:
    """Makes classifiers that the block loads or describes compute in float32 where neither spec nor placement says
    otherwise: for gradients, which vanish in half precision, and for distances of features."""
    with computing_in(computing().over(Computing("fp32", "cpu", compile=False))):
        yield


def computing() -> Computing:
    """Returns what the placement says for this process, or for the block of `computing_in`."""
    current = assignment()
    return _computing if current is None else _computing.over(current.computing)


def assignment() -> Assignment | None:
    """Returns the current assignment; no GPU in a worker of Ray where `assign` was not called; None in a process
    without Ray."""
    if _current is None and _OF_A_WORKER in os.environ:
        return Assignment()
    return _current


def usable_gpus(assigned: Sequence[str] | None, available: int, visible: str | None) -> list[int]:
    """Returns CUDA's numbers, in this process, of the GPUs that it may use: those that Ray assigned; all without Ray
    (None).

    `available`: how many the process sees; `visible`: its CUDA_VISIBLE_DEVICES, in whose order CUDA counts. Empty where
    the process sees no GPU at all, as on a machine that only claims to have some. Raises ServiceError where it sees
    other GPUs than the assigned ones.
    """
    if assigned is None or available == 0:
        return list(range(available))
    visible_gpus = [name.strip() for name in visible.split(",")] if visible else list(map(str, range(available)))
    for gpu in assigned:
        if gpu not in visible_gpus[:available]:
            raise ServiceError(
                f"Ray assigned the GPU {gpu} to this process, which sees {available} GPUs, {VISIBLE}={visible}; leave "
                "that variable to Ray"
            )
    return [visible_gpus.index(gpu) for gpu in assigned]


def usable(available: int) -> list[int]:
    """Returns `usable_gpus` of this process."""
    current = assignment()
    if current is not None and current.gpus and not available:
        logging.getLogger(__name__).warning("Ray assigned a GPU to this process, but it sees none: it uses the CPU")
    return usable_gpus(None if current is None else current.gpus, available, os.environ.get(VISIBLE))


def device(name: str | None, text: str, available: int) -> str:
    """Returns `device=` of the spec `text`, such as cuda:1, where this process may use it; without one, the first
    usable GPU, else `cpu`.

    Inside Ray `cuda` means the assigned GPU. Raises SpecError where Ray assigned another GPU, or none.
    """
    gpus = [f"cuda:{number}" for number in usable(available)]
    if name is None:
        return gpus[0] if gpus else "cpu"
    current = assignment()
    if current is None or not name.startswith("cuda"):
        return name
    if not current.gpus:
        raise SpecError(
            f"{text}: device={name}, but Ray assigned no GPU to this process; give it GPUs in the placement, or leave "
            "device= out"
        )
    if gpus and name not in ("cuda", *gpus):
        raise SpecError(f"{text}: device={name}, but Ray assigned {', '.join(gpus)} to this process; write device=cuda")
    return gpus[0] if gpus and name == "cuda" else name


def precision(option: str | None, text: str) -> Precision | None:
    """Returns `precision=` of the spec `text`, else the placement's; None where neither names one."""
    return _checked(option, f"{text}: ") if option is not None else computing().precision


def decoder(device_name: str, text: str, reason: str | None = None) -> Decoder:
    """Returns what decodes JPEGs for the model of the spec `text` on this device.

    Raises SpecError where the placement has a GPU decode for a model on a CPU; `reason`: why it is not on a GPU.
    """
    if computing().decode != "gpu":
        return "cpu"
    if not device_name.startswith("cuda"):
        raise SpecError(
            f"{text}: the placement's `decode: gpu` needs a GPU, and this model runs on the {device_name} "
            f"({reason or 'this process sees no GPU'}); write `decode: cpu`"
        )
    return "gpu"


def compiled(option: str | None, text: str) -> bool:
    """Returns `compile=` of the spec `text`, else the placement's; False where neither says it."""
    if option not in (None, "true", "false"):
        raise SpecError(f"{text}: compile={option!r} is neither true nor false")
    return option == "true" if option is not None else bool(computing().compile)


def _checked(name: str | None, prefix: str = "") -> Precision | None:
    if name is None:
        return None
    for candidate in PRECISIONS:
        if name == candidate:
            return candidate
    raise SpecError(f"{prefix}no precision {name!r}; {nearest(name, PRECISIONS)}")


# Says why a model is on the CPU of a machine that has GPUs, and how to use them. It knows the driver, not PyTorch.


def why_unused(torch_cuda: str | None, seen: int) -> str | None:
    """Returns one sentence on why a model of this process runs on the CPU although the machine has GPUs; None where it
    has none.

    `torch_cuda`: the version of CUDA that PyTorch was built for, such as "13.0", or None; `seen`: how many GPUs
    PyTorch sees.
    """
    n_gpus = nvml.count()
    if not n_gpus:
        return None
    gpus = f"this machine has {n_gpus} GPU{'s' if n_gpus > 1 else ''}"
    visible, assigned = os.environ.get(VISIBLE), assignment()
    if torch_cuda is None:
        return f"{gpus}, but this PyTorch is built for CPUs: install its CUDA build (docs/install.md)"
    driver = nvml.cuda_of_driver()
    if not seen and driver is not None and driver < _version(torch_cuda):
        return (
            f"{gpus}, but the driver knows CUDA up to {driver[0]}.{driver[1]} and this PyTorch is built for "
            f"{torch_cuda}: update the driver, or install a PyTorch for CUDA {driver[0]}.{driver[1]} or older"
        )
    if assigned is not None and not assigned.gpus:
        return f"{gpus}, but Ray assigned none to this process: write `gpus: 1` for this stage in the placement"
    if not seen and visible is not None:
        return f"{gpus}, but {VISIBLE}={visible} hides them: unset it"
    if not seen:
        return f"{gpus}, but PyTorch cannot use them: see what `python -c 'import torch; torch.zeros(1).cuda()'` says"
    return f"{gpus}, which device=cpu leaves idle: leave device= out, or write device=cuda"


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor.partition(".")[0] or 0)


class GpuMeter:
    """Samples the busy share of one GPU in a thread of its own, from `start` to `stop`, or from entry to exit.

    `gpu`: as in CUDA_VISIBLE_DEVICES; by default the first that this process may use. Where there is no GPU or no
    driver, nothing runs and every share is None.
    """

    def __init__(self, gpu: str | None = None, every: float = EVERY_S) -> None:
        self._gpu, self._every = gpu or first_gpu(), every
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._sum, self._samples, self._last = 0.0, 0, None if self._gpu is None else nvml.busy(self._gpu)

    def start(self) -> Self:
        """Begins to sample."""
        if self._last is not None:
            self._thread = threading.Thread(target=self._watch, name="gpu-meter", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Ends sampling; the mean stays."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def now(self) -> float | None:
        """The busy share in the latest sample, 0 to 1; None without a GPU."""
        with self._lock:
            return self._last

    @property
    def mean(self) -> float | None:
        """The mean busy share since the start, 0 to 1; None without a GPU or before the first sample."""
        with self._lock:
            return self._sum / self._samples if self._samples else None

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            share = None if self._gpu is None else nvml.busy(self._gpu)
            if share is not None:
                with self._lock:
                    self._sum, self._samples, self._last = self._sum + share, self._samples + 1, share


def first_gpu() -> str | None:
    """Returns the name of the first GPU that this process may use, as in CUDA_VISIBLE_DEVICES; None without any."""
    assigned = assignment()
    if assigned is not None:
        return assigned.gpus[0] if assigned.gpus else None
    visible = os.environ.get(VISIBLE)
    if visible is not None:
        first = visible.partition(",")[0].strip()
        return first if first and first != "-1" else None
    return "0" if nvml.count() else None
