"""The threads of a replica: some call the model, some decode images, one loads models. Their calls also show the
model's health.

They keep the event loop free for health checks and for the next requests. It knows no role and no model.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import ray

from c2b_ray.errors import InputError, ServiceError
from c2b_ray.models.gpu_meter import GpuMeter
from c2b_ray.serving.meters import rows_answered, worked

P = ParamSpec("P")
R = TypeVar("R")

STUCK_AFTER_S = 900.0
"""A single model call longer than this makes a replica unhealthy, and Serve replaces it."""

MOST_WAITING = 64
"""Calls that wait for other processes at once."""

TEST_EVERY_S = 30.0
"""How long an answer counts as a sign of health, and how often an idle model is tested; rare, to keep idling cheap."""


class Hands:
    """Threads that call a model: one unless the config says more, because tokenizers and scripts do not take two calls
    at once."""

    def __init__(self, deployment: str, threads: int = 1) -> None:
        self.deployment = deployment
        self.threads = threads
        self._batches: deque[int] = deque(maxlen=1000)
        self._pending = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="model")
        self._loading = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._decoding = ThreadPoolExecutor(max(threads, _cpus()), thread_name_prefix="decode")
        self._waiting = ThreadPoolExecutor(MOST_WAITING, thread_name_prefix="wait")
        self._gpu = GpuMeter().start()
        self._running: dict[int, float] = {}
        self._tickets = itertools.count()
        self._sound_at: float | None = None
        self._suspect = False

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls `call` on a thread for model calls and returns its result."""
        ticket = next(self._tickets)
        self._pending += 1

        def timed() -> R:
            self._running[ticket] = began = time.monotonic()
            try:
                result = call(*args, **kwargs)
            except InputError:  # the request is wrong, and not the model
                raise
            except Exception:
                self._suspect = True
                raise
            finally:
                del self._running[ticket]
                worked("model", time.monotonic() - began)
            self._sound_at = time.monotonic()
            return result

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, timed)
        finally:
            self._pending -= 1

    async def run_batch(self, call: Callable[P, R], rows: int, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls `call` as `run` does, and counts it in `statistics` as one batch of `rows` rows."""
        self._batches.append(rows)
        result = await self.run(call, *args, **kwargs)
        rows_answered(rows, self._gpu.now)
        return result

    async def load(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls `call` on the loading thread and returns its result. Loaded models answer meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._loading, lambda: call(*args, **kwargs))

    async def decode(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls `call` beside the model's calls, on as many threads as the replica has CPUs, and returns its result."""
        return await asyncio.get_running_loop().run_in_executor(
            self._decoding, lambda: _decoding(call, *args, **kwargs)
        )

    async def wait(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls `call`, which waits for processes that decode and computes little, on a thread for such calls."""
        return await asyncio.get_running_loop().run_in_executor(self._waiting, lambda: _decoding(call, *args, **kwargs))

    async def check(self, test: Callable[[], object], every_s: float = TEST_EVERY_S) -> None:
        """Raises where a call is stuck, or where `test` raises.

        After a call that failed, `test` runs at once, however busy the model is: a CUDA device that has failed fails
        every later call. Otherwise it runs where the model is idle and has answered nothing for `every_s`.
        """
        now = time.monotonic()
        oldest = max((now - began for began in list(self._running.values())), default=0.0)
        if oldest > STUCK_AFTER_S:
            raise ServiceError(f"{self.deployment}: one model call has been running for {oldest:.0f} s")
        idle = not self._pending and (self._sound_at is None or now - self._sound_at >= every_s)
        if idle or self._suspect:
            self._suspect = True  # until it has passed, whatever it raises
            await self.run(test)
            self._suspect = False

    def statistics(self) -> dict[str, Any]:
        """Returns the sizes of the last 1,000 batches, oldest first, and how many calls run now."""
        return {"batches": list(self._batches), "running": len(self._running)}

    def close(self) -> None:
        """Waits for the calls in progress. Serve has drained the requests before it calls this."""
        self._pool.shutdown(wait=True)
        self._loading.shutdown(wait=True)
        self._decoding.shutdown(wait=True)
        self._waiting.shutdown(wait=True)
        self._gpu.stop()


def _decoding(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    began = time.monotonic()
    try:
        return call(*args, **kwargs)
    finally:
        worked("decoding", time.monotonic() - began)


def _cpus() -> int:
    if not ray.is_initialized():  # Serve's local testing mode
        return 1
    return int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
