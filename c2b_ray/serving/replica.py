"""What replicas do alike: model calls off the event loop, batch settings, self-tests, several models on a shelf.

It knows Serve's ways and no role: what a model is asked, and what a sound answer is, its deployment's file says.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import ray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray import serve

from c2b_ray.errors import ConfigError, ServiceError, SpecError
from c2b_ray.models import catalog, devices

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

STUCK_AFTER_S = 900.0
"""A single model call longer than this makes a replica unhealthy, and Serve replaces it."""

# A made-up question proves nothing about these, and harms some: a URL that charges, a script that runs out, a table
# that rightly has no answer.
UNPROBED = frozenset({"openai", "http", "https", "scripted", "table"})


def can_be_probed(spec: str) -> bool:
    """Whether a self-test may ask this model a question that no user asked."""
    return catalog.parse(spec).scheme not in UNPROBED


def take_gpus() -> None:
    """The models of this replica use the GPUs that Ray assigned to it, and no others; called before one loads."""
    if ray.is_initialized():  # not where Serve's local testing mode runs it in the caller's process
        devices.assign(ray.get_gpu_ids())


class Hands:
    """The threads that call a model, so that the event loop stays free for health checks and batching.

    One thread unless more are asked for: tokenizers and scripts are not made to be called from two at once.
    """

    def __init__(self, deployment: str, threads: int = 1) -> None:
        self.deployment = deployment
        self._batches: deque[int] = deque(maxlen=1000)
        self._asked = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="model")
        self._running: dict[int, float] = {}
        self._tickets = itertools.count()

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The result of `call`, made on a thread of its own."""
        ticket = next(self._tickets)
        self._asked += 1

        def timed() -> R:
            self._running[ticket] = time.monotonic()
            try:
                return call(*args, **kwargs)
            finally:
                del self._running[ticket]

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, timed)
        finally:
            self._asked -= 1

    async def run_batch(self, call: Callable[P, R], rows: int, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `run`, counted in `statistics` as one batch of so many rows."""
        self._batches.append(rows)
        return await self.run(call, *args, **kwargs)

    async def check(self, test: Callable[[], None]) -> None:
        """Runs `test` if no call is under way or waits; a busy model is taken at its word until it seems stuck."""
        now = time.monotonic()
        oldest = max((now - began for began in list(self._running.values())), default=0.0)
        if oldest > STUCK_AFTER_S:
            raise ServiceError(f"{self.deployment}: one model call has been running for {oldest:.0f} s")
        if not self._asked:
            await self.run(test)

    def statistics(self) -> dict[str, Any]:
        """The sizes of the last 1,000 batches, oldest first, and how many calls run now."""
        return {"batches": list(self._batches), "running": len(self._running)}

    def close(self) -> None:
        """Lets the calls under way finish; Serve has drained the requests before it comes here."""
        self._pool.shutdown(wait=True)


class BatchSettings(BaseModel):
    """A deployment's `user_config`: how single requests are gathered. Can be changed while it serves."""

    model_config = ConfigDict(extra="forbid")

    max_batch_size: int = Field(default=32, ge=1)
    batch_wait_timeout_s: float = Field(default=0.01, ge=0)


def apply_settings(user_config: dict[str, Any], *batched: Any) -> None:
    """Sets every `@serve.batch` method to the given settings; ConfigError names a field that is wrong."""
    try:
        settings = BatchSettings.model_validate(user_config)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in ("user_config", *first["loc"]))
        raise ConfigError(field, first["msg"]) from error
    for method in batched:
        method.set_max_batch_size(settings.max_batch_size)
        method.set_batch_wait_timeout_s(settings.batch_wait_timeout_s)


def refuse_other_model(deployment: str, serves: str, asked: str) -> None:
    """ServiceError where a caller wants another model than the one served: an audit must never take one for another."""
    if asked != serves:
        raise ServiceError(
            f"{deployment} serves {serves!r}, and was asked for {asked!r}: the app was redeployed, or the caller is"
            " connected to the wrong one; deploy the model under another app name, or run the audit again"
        )


class Held(Generic[T]):
    """One loaded model. Serve calls `__del__` when it unloads it, and drops it afterwards."""

    def __init__(self, model: T) -> None:
        self.model: T | None = model

    def __del__(self) -> None:
        if self.model is not None:
            self.model = None
            gc.collect()  # modules of neural networks refer to each other in circles


class Shelf(Generic[T]):
    """Several models on one replica, loaded when first asked for; the one unused for longest makes room."""

    def __init__(self, hands: Hands, load: Callable[[str], T], check: Callable[[str], object], most: int) -> None:
        self._hands = hands
        self._check = check
        self._checked: set[str] = set()
        self._loaded: WeakValueDictionary[str, Held[T]] = WeakValueDictionary()

        async def take(name: str) -> Held[T]:
            held = Held(await hands.run(load, name))
            self._loaded[name] = held
            return held

        self._take = serve.multiplexed(max_num_models_per_replica=most)(take)

    async def asked_for(self) -> T:
        """The model that the request names; SpecError and WeightsError as its loader raises them."""
        name = serve.get_multiplexed_model_id()
        if not name:
            raise SpecError(f"{self._hands.deployment}: the request names no model")
        if name not in self._checked:
            # Serve makes room before it loads: a misspelt name would throw out a model that others use.
            await self._hands.run(self._check, name)
            self._checked.add(name)
        held: Held[T] = await self._take(name)
        model = held.model
        if model is None:
            raise ServiceError(f"{self._hands.deployment}: {name} was unloaded while it was asked for")
        return model

    def names(self) -> Sequence[str]:
        """The models in memory now."""
        return sorted(self._loaded)
