"""Gathers waiting requests into batches, each answered by one call of the model.

Unlike `serve.batch` it counts rows rather than requests, and runs as many batches at once as the model takes calls; one
model's requests never wait for another's to load. It knows no role.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from c2b_ray.errors import ConfigError
from c2b_ray.serving.meters import batch_filled

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


class Gather(Generic[Item, Reply]):
    """Calls `answer` with the waiting items, in their order, `at_once` batches at a time.

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
        left = self._waiting[0].since + settings.batch_wait_timeout_s - time.monotonic()
        if left <= 0 or sum(waiting.rows for waiting in self._waiting) >= settings.max_batch_size:
            return True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(left, self._start_what_is_due)
        return False

    def _next_batch(self) -> list[_Waiting[Item, Reply]]:
        batch: list[_Waiting[Item, Reply]] = []
        rows, most = 0, self._settings().max_batch_size
        while self._waiting and (not batch or rows + self._waiting[0].rows <= most):
            waiting = self._waiting.popleft()
            if not waiting.reply.done():
                batch.append(waiting)
                rows += waiting.rows
        if batch:
            self._filled(rows / most)
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
