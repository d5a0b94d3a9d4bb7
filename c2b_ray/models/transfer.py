"""Copies batches to a model's device ahead of their use: while one is computed, the next is prepared and copied.

It knows tensors and devices, and nothing of what a batch holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

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

    def _ready(self, copy: torch.Tensor, copied: torch.cuda.Event | None) -> torch.Tensor:
        if copied is not None:
            computing = torch.cuda.current_stream(self.device)
            computing.wait_event(copied)
            copy.record_stream(computing)  # else its memory could be reused before it has been read
        return copy
