"""How busy a GPU is while a stage runs. It knows the driver's library, and nothing of what the GPU computes."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Self

from c2b_ray.models import devices, nvml

EVERY_S = 0.2


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
    assignment = devices.assignment()
    if assignment is not None:
        return assignment.gpus[0] if assignment.gpus else None
    visible = os.environ.get(devices.VISIBLE)
    if visible is not None:
        first = visible.partition(",")[0].strip()
        return first if first and first != "-1" else None
    return "0" if nvml.count() else None
