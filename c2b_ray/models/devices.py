"""Which GPUs a model in this process may use, and in what precision it computes.

On a cluster Ray decides this. Since 2.60 Ray no longer hides GPUs from a process to which it assigned none: every such
process would put its model onto the first GPU that it sees. Therefore the worker of a stage and the replica of a Serve
app call `assign` before they load a model. It knows neither Ray nor any library of models.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import get_args

from c2b_ray.config.placement import Precision
from c2b_ray.errors import ServiceError, SpecError, nearest

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
VISIBLE = "CUDA_VISIBLE_DEVICES"
_OF_A_WORKER = "RAY_RAYLET_PID"
"""The variable that Ray sets in the environment of its workers, and so of the programs that they start."""


@dataclass(frozen=True)
class Assignment:
    """The GPUs that Ray assigned to this process, as `ray.get_gpu_ids()` names them, and the placement's precision."""

    gpus: tuple[str, ...] = ()
    precision: Precision | None = None


_current: Assignment | None = None
_precision: Precision | None = None


def assign(gpus: Iterable[object], precision: str | None = None) -> None:
    """Makes the models of this process use these GPUs and no others from now on; without any, the CPU.

    Raises SpecError for an unknown precision.
    """
    global _current
    _current = Assignment(tuple(map(str, gpus)), _checked(precision))


@contextmanager
def assigned(gpus: Iterable[object], precision: str | None = None) -> Iterator[None]:
    """Like `assign`, until the end of the block."""
    global _current
    before = _current
    assign(gpus, precision)
    try:
        yield
    finally:
        _current = before


@contextmanager
def computing_in(precision: str | None) -> Iterator[None]:
    """Makes models that the block loads or describes compute in this precision, where their specs name none; None
    changes nothing. A driver describes models in the precision of the stage that will load them."""
    global _precision
    before = _precision
    _precision = _checked(precision) or before
    try:
        yield
    finally:
        _precision = before


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
    seen = [name.strip() for name in visible.split(",")] if visible else list(map(str, range(available)))
    for gpu in assigned:
        if gpu not in seen[:available]:
            raise ServiceError(
                f"Ray assigned the GPU {gpu} to this process, which sees {available} GPUs, {VISIBLE}={visible}; leave "
                "that variable to Ray"
            )
    return [seen.index(gpu) for gpu in assigned]


def usable(available: int) -> list[int]:
    """Returns `usable_gpus` of this process."""
    current = assignment()
    if current is not None and current.gpus and not available:
        logging.getLogger(__name__).warning("Ray assigned a GPU to this process, but it sees none: it uses the CPU")
    return usable_gpus(None if current is None else current.gpus, available, os.environ.get(VISIBLE))


def device(wish: str | None, text: str, available: int) -> str:
    """Returns `device=` of the spec `text`, such as cuda:1, where this process may use it; without one, the first
    usable GPU, else `cpu`.

    Inside Ray `cuda` means the assigned GPU. Raises SpecError where Ray assigned another GPU, or none.
    """
    gpus = [f"cuda:{number}" for number in usable(available)]
    if wish is None:
        return gpus[0] if gpus else "cpu"
    current = assignment()
    if current is None or not wish.startswith("cuda"):
        return wish
    if not current.gpus:
        raise SpecError(
            f"{text}: device={wish}, but Ray assigned no GPU to this process; give it GPUs in the placement, or leave "
            "device= out"
        )
    if gpus and wish not in ("cuda", *gpus):
        raise SpecError(f"{text}: device={wish}, but Ray assigned {', '.join(gpus)} to this process; write device=cuda")
    return gpus[0] if gpus and wish == "cuda" else wish


def precision(option: str | None, text: str) -> Precision | None:
    """Returns `precision=` of the spec `text`, else the placement's; None where neither names one."""
    if option is not None:
        return _checked(option, f"{text}: ")
    current = assignment()
    return _precision or (None if current is None else current.precision)


def _checked(name: str | None, prefix: str = "") -> Precision | None:
    if name is None:
        return None
    for known in PRECISIONS:
        if name == known:
            return known
    raise SpecError(f"{prefix}no precision {name!r}; {nearest(name, PRECISIONS)}")
