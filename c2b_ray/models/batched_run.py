"""Runs rows through a module in batches: prepared and copied ahead, computed, and copied back while it computes on.

A batch for which a device has no memory is halved. It knows modules from a batch of tensors to a batch of rows, and not
what they are.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from c2b_ray.config.placement import Decoder
from c2b_ray.errors import ServiceError
from c2b_ray.models.pixels.preprocess import Preparation
from c2b_ray.models.spec_options import BATCH, batches
from c2b_ray.roles import Floats

# Copies batches to a model's device ahead of their use: while one is computed, the next is prepared and copied.


T = TypeVar("T")


class Transfer:
    """Copies to one device. `overlap`: by a thread, and on a GPU by a stream, of its own; so it is on a GPU.

    On a CPU there is nothing to overlap: the model computes with the threads that would prepare.
    """

    def __init__(self, device: torch.device, overlap: bool | None = None) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._overlap = device.type == "cuda" if overlap is None else overlap

    @property
    def pinned(self) -> bool:
        """Tells whether batches should be made in pinned memory. PyTorch keeps such memory for the next batch, and
        gives none out that a copy still reads, so that two buffers take turns."""
        return self._stream is not None

    def __call__(self, prepare: Callable[[T], torch.Tensor], parts: Iterable[T]) -> Iterator[torch.Tensor]:
        """Yields `prepare(part)` on the device, in the order of `parts`, at most one part ahead of its use.

        An error of `prepare` is raised in its part's turn.
        """
        if not self._overlap:
            for part in parts:
                yield prepare(part).to(self.device)
            return
        with ThreadPoolExecutor(1, "ahead") as pool:
            waiting: Future[tuple[torch.Tensor, torch.cuda.Event | None]] | None = None
            for part in parts:
                following = pool.submit(self._load, prepare, part)
                if waiting is not None:
                    yield self._ready(*waiting.result())
                waiting = following
            if waiting is not None:
                yield self._ready(*waiting.result())

    def _load(self, prepare: Callable[[T], torch.Tensor], part: T) -> tuple[torch.Tensor, torch.cuda.Event | None]:
        if self._stream is None:
            return prepare(part).to(self.device), None
        with torch.cuda.stream(self._stream):  # also what `prepare` does on the device, such as decoding
            copy = prepare(part).to(self.device, non_blocking=True)
            return copy, self._stream.record_event()

    def _ready(self, copy: torch.Tensor, copy_done: torch.cuda.Event | None) -> torch.Tensor:
        if copy_done is not None:
            computing = torch.cuda.current_stream(self.device)
            computing.wait_event(copy_done)
            copy.record_stream(computing)  # else its memory could be reused before it has been read
        return copy


log = logging.getLogger(__name__)
Compute = Callable[[torch.Tensor], Any]
COMPILER: dict[str, str | int | bool | Callable[..., Any]] = {}
"""Options of TorchInductor for compiled models: its defaults. Choosing kernels by timing them takes minutes."""


@dataclass
class Limit:
    """The most rows of a batch that a device's memory was seen to have room for."""

    rows: int = sys.maxsize

    def halve(self, rows: int, device: torch.device) -> None:
        """Notes that `rows` were too many, and returns the memory of the failed batch to the device."""
        if rows // 2 < self.rows:
            self.rows = rows // 2
            log.warning("%s has no memory for a batch of %d: batches of %d from here on", device, rows, self.rows)
        if device.type == "cuda":
            torch.cuda.empty_cache()


@dataclass(frozen=True)
class Runtime:
    """A model's device, batch size and precision; whether it is compiled, and what decodes JPEGs for it.

    `tf32`: whether a GPU may round the factors of float32 products to 10 bits (TensorFloat-32), at three times the
    speed.
    """

    device: torch.device
    batch: int = BATCH
    dtype: torch.dtype = torch.float32
    compiled: bool = False
    decoder: Decoder = "cpu"
    tf32: bool = False
    limit: Limit = field(default_factory=Limit, compare=False)

    @property
    def rows(self) -> int:
        """The rows of a batch: `batch`, or what the device's memory has room for."""
        return min(self.batch, self.limit.rows)


def compiled(module: Compute) -> Compute:
    """Returns the module compiled for one size of batch, at its first call (docs/guide/running.md)."""
    result: Compute = torch.compile(module, dynamic=False, options=COMPILER)
    return result


def run(module: Compute, rows: Any, prepare: Preparation, runtime: Runtime) -> Floats:
    """Returns the module's output for every row, float32 (rows, width), NaN included; (0, 0) for no rows.

    Rows are prepared and run `runtime.batch` at a time, so that no more than two batches are ever decoded into tensors.
    """
    answers = OutputCopies(runtime.device)
    transfer = Transfer(runtime.device)
    with torch.inference_mode():
        parts = batches(rows, runtime.rows)
        for stacked in transfer(partial(prepare.stacked, pinned=transfer.pinned), parts):
            for output in computed(module, stacked, prepare, runtime):
                answers.add(output)
    return answers.gathered()


def computed(module: Compute, stacked: torch.Tensor, prepare: Preparation, runtime: Runtime) -> Iterator[torch.Tensor]:
    """Yields the module's outputs for a batch on its device, in order: one, or more where its memory does not suffice
    for the whole batch. Later batches are then smaller. Raises ServiceError where not even one row fits."""
    size = runtime.rows
    if len(stacked) > size:
        for part in torch.split(stacked, size):
            yield from computed(module, part, prepare, runtime)
        return
    try:
        output = _forward(module, stacked, prepare, runtime, size)
    except torch.OutOfMemoryError as error:
        if len(stacked) == 1:
            reason = str(error).partition("\n")[0]
            raise ServiceError(f"{runtime.device} has no memory for a batch of one row: {reason}") from error
        output = None
    if output is None:  # not in the handler, where the error still holds what was computed
        runtime.limit.halve(len(stacked), runtime.device)
        yield from computed(module, stacked, prepare, runtime)
    else:
        yield output


def _forward(module: Compute, stacked: torch.Tensor, prepare: Preparation, runtime: Runtime, size: int) -> torch.Tensor:
    count = len(stacked)
    if runtime.compiled and count < size:  # else it would be compiled again for this size
        stacked = torch.cat([stacked, stacked[-1:].expand(size - count, *stacked.shape[1:])])
    values = prepare.normalised(stacked)
    values = values.to(runtime.dtype) if values.is_floating_point() else values
    with rounding(runtime):
        output = module(values)
    if not isinstance(output, torch.Tensor) or output.ndim != 2 or len(output) != len(stacked):
        shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        raise ServiceError(f"a model answered {len(stacked)} rows with {shape}")
    return output[:count]


_one_rounding = threading.Lock()


@contextmanager
def rounding(runtime: Runtime) -> Iterator[None]:
    """Has float32 products of a GPU rounded as the runtime says, while work for it is begun. By default cuDNN rounds
    them. The setting is the whole process's, so that one thread at a time begins work in float32."""
    if runtime.device.type != "cuda" or runtime.dtype != torch.float32:
        yield
        return
    with _one_rounding:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = runtime.tf32
        yield


class OutputCopies:
    """Collects a model's outputs while it computes on: they are copied to the CPU by the device itself.

    No more than two copies are in flight, so that the memory of many batches is not held.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies: list[tuple[torch.Tensor, torch.cuda.Event | None]] = []

    def add(self, output: torch.Tensor) -> None:
        if self._device.type != "cuda":
            self._copies.append((output.float().cpu(), None))
            return
        host = torch.empty(output.shape, dtype=torch.float32, pin_memory=True)
        host.copy_(output.float(), non_blocking=True)
        event = torch.cuda.current_stream(self._device).record_event()
        self._copies.append((host, event))
        if len(self._copies) > 2 and (earlier_copy := self._copies[-3][1]) is not None:
            earlier_copy.synchronize()

    def gathered(self) -> Floats:
        """Returns all outputs, float32 (rows, width); (0, 0) for none."""
        if self._copies and (last := self._copies[-1][1]) is not None:
            last.synchronize()
        parts = [host.numpy() for host, _ in self._copies]
        return np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)
