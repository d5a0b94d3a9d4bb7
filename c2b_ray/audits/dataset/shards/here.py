"""Runs tasks of a build in this process: threads share the models, and each works on one shard."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

from c2b_ray.audits.dataset.shards.workers import Cancelled, Counters, Recipe, Task, TaskWorker
from c2b_ray.engine.machine import cores

REPORT_EVERY_S = 0.5
OnDone = Callable[[Task, Any], None]
OnCounts = Callable[[dict[str, float]], None]


class LocalWorkers(Protocol):
    """Workers that do tasks. `lost`: how many of them died. `repeated`: tasks that were repeated because of it."""

    lost: int
    repeated: int

    def run(self, tasks: Iterable[Task], on_done: OnDone, on_counts: OnCounts) -> None:
        """Does all tasks, in any order. Reports each that is done, and at intervals all counts so far.

        What a task raises is raised unchanged, and ends the others at their next batch.
        """
        ...

    def close(self) -> None:
        """Ends the workers."""


class CrewsHere:
    def __init__(self, recipe: Recipe, threads: int | None = None) -> None:
        self.lost = self.repeated = 0
        self._stopped = threading.Event()
        self._counters = Counters()
        self._threads = threads or min(16, cores())
        self._workshop = TaskWorker(recipe, self._counters, self._check)
        # The same threads for all passes, so that each pass reuses the memory of the last.
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="shard")

    def run(self, tasks: Iterable[Task], on_done: OnDone, on_counts: OnCounts) -> None:
        coming = iter(tasks)
        under_way: dict[Future[Any], Task] = {}
        try:
            while True:
                while len(under_way) < self._threads and (task := next(coming, None)) is not None:
                    under_way[self._pool.submit(self._workshop.do, task)] = task
                if not under_way:
                    break
                done, _ = wait(under_way, REPORT_EVERY_S, FIRST_COMPLETED)
                for future in done:
                    on_done(under_way.pop(future), future.result())
                on_counts(self._counters.snapshot())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the tasks in progress at their next batch."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def _check(self) -> None:
        if self._stopped.is_set():
            raise Cancelled
