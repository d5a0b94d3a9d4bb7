"""The passes of a build: which tasks are to be done, in which order, and threads of this process that do them.

Before the passes, damaged files are found; while they run, their counters can be scraped by Prometheus.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from c2b_ray.audits.dataset.shard_files import CANDIDATES, DROPS, ENDING, REPEATS, SHARDS, PlannedCaptions, ShardFiles
from c2b_ray.audits.dataset.shard_files import DRAWS as OF_DRAWS
from c2b_ray.audits.dataset.shards.workers import (
    DRAWS,
    DROPPED,
    IMAGES,
    KEPT,
    SECONDS,
    Cancelled,
    Counters,
    Recipe,
    Task,
    TaskWorker,
)
from c2b_ray.audits.dataset.steps.plan import Ints, Plan
from c2b_ray.engine.machine import cores
from c2b_ray.errors import ConfigError
from c2b_ray.extras import needed_by

# Runs tasks of a build in this process: threads share the models, and each works on one shard.


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


class ThreadWorkers:
    def __init__(self, recipe: Recipe, threads: int | None = None) -> None:
        self.lost = self.repeated = 0
        self._stopped = threading.Event()
        self._counters = Counters()
        self._threads = threads or min(16, cores())
        self._worker = TaskWorker(recipe, self._counters, self._check)
        # The same threads for all passes, so that each pass reuses the memory of the last.
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="shard")

    def run(self, tasks: Iterable[Task], on_done: OnDone, on_counts: OnCounts) -> None:
        coming = iter(tasks)
        under_way: dict[Future[Any], Task] = {}
        try:
            while True:
                while len(under_way) < self._threads and (task := next(coming, None)) is not None:
                    under_way[self._pool.submit(self._worker.do, task)] = task
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


Bits = NDArray[np.bool_]
OnUnits = Callable[[int, int, dict[str, float]], None]
"""Gets the number of units (draws or tasks) that are done, the number of all units, and the counts."""


@dataclass(frozen=True)
class State:
    """Which files each shard has."""

    drawn: Bits
    rows: Bits
    drops: Bits

    @property
    def finished(self) -> Bits:
        return self.rows & self.drops


def state_of(files: ShardFiles, plan: Plan) -> State:
    def there(folder: str, ending: str) -> Bits:
        bits = np.zeros(plan.shards, bool)
        names = files.names(folder)
        for name in names:
            number = name.partition("-")[0]
            if number.isdigit() and int(number) < plan.shards and name == f"{plan.name(int(number))}{ending}":
                bits[int(number)] = True
        return bits

    return State(there(CANDIDATES, f"{OF_DRAWS}{ENDING}"), there(SHARDS, ENDING), there(DROPS, ENDING))


class BuildPasses:
    """One build of a dataset, by `workers`."""

    def __init__(self, recipe: Recipe, workers: LocalWorkers, captions: PlannedCaptions) -> None:
        self._recipe, self._files, self._plan = recipe, recipe.files, recipe.plan
        self._workers, self._captions = workers, captions
        self._state = state_of(self._files, self._plan)

    @property
    def left(self) -> int:
        """The number of shards that are not finished."""
        return int((~self._state.finished).sum())

    def run_first(self, on_units: OnUnits) -> None:
        """Draws the shards that are not drawn, and restores lost rows of finished shards."""
        state, plan = self._state, self._plan
        is_lost = state.drops & ~state.rows & ~state.drawn
        missing = ~state.finished & ~is_lost & ~state.drawn
        sizes = np.diff(np.append(np.arange(plan.shards) * plan.shard_draws, plan.draws))
        before = int(sizes[~missing & ~is_lost].sum())

        def tasks() -> Iterator[Task]:
            yield from (Task("restore", number) for number in np.flatnonzero(is_lost).tolist())
            yield from (Task("first", number) for number in np.flatnonzero(missing).tolist())

        def done(task: Task, _: Any) -> None:
            bits = state.drawn if task.method == "first" else state.rows
            bits[task.number] = True

        def tell(sums: dict[str, float]) -> None:
            # The counts of a process that died may include draws that are drawn again, and lack some that are written.
            draws_written = int(sizes[state.drawn | state.rows & state.drops].sum())
            on_units(min(plan.draws, max(draws_written, before + int(sums.get(DRAWS, 0.0)))), plan.draws, sums)

        on_units(before, plan.draws, {})
        if (missing | is_lost).any():
            self._workers.run(tasks(), done, tell)

    def run_second(self, on_units: OnUnits) -> None:
        """Compares the fingerprints, and finishes the remaining shards."""
        unfinished = np.flatnonzero(~self._state.finished)
        if not len(unfinished):
            return
        plan, distance = self._plan, self._recipe.distance
        buckets = 0 if distance is None else plan.buckets(distance, self._recipe.format)
        total = (plan.groups if buckets else 0) + buckets + plan.groups + len(unfinished)
        progress = _Tasks(self._workers, on_units, total)
        on_units(0, total, {})
        names_of_repeats = set(self._files.names(REPEATS))

        def missing(prefix: str, width: int, count: int) -> Iterator[int]:
            return (number for number in range(count) if f"{prefix}-{number:0{width}d}.arrow" not in names_of_repeats)

        if buckets:
            progress.run(Task("scatter", group) for group in missing("entries", 4, plan.groups))
            progress.run(Task("compare", bucket) for bucket in missing("pairs", 5, buckets))
        ends = np.zeros(plan.shards, np.int64)

        def gathered(task: Task, left_of_last: list[int]) -> None:
            ends[list(plan.shards_of_group(task.number))] = left_of_last

        progress.run((Task("gather", group) for group in range(plan.groups)), gathered)
        before = self._before(ends)
        progress.run((Task("finish", number, int(before[number])) for number in unfinished.tolist()), self._finished)

    def _finished(self, task: Task, _: Any) -> None:
        self._state.rows[task.number] = self._state.drops[task.number] = True

    def _before(self, ends: Ints) -> Ints:
        """Returns for each shard how many failures of its first caption are in earlier shards.

        `ends`: for each shard, the failures of its last caption.
        """
        plan, firsts = self._plan, self._captions.firsts
        starts = np.arange(plan.shards, dtype=np.int64) * plan.shard_draws
        first_caption = np.searchsorted(firsts, starts, side="right") - 1
        before = np.zeros(plan.shards, np.int64)
        for number in range(1, plan.shards):
            if firsts[first_caption[number]] < starts[number]:
                is_one_caption = first_caption[number - 1] == first_caption[number]
                before[number] = ends[number - 1] + (before[number - 1] if is_one_caption else 0)
        return before


class _Tasks:
    """Runs tasks and reports how many of all are done."""

    def __init__(self, workers: LocalWorkers, on_units: OnUnits, total: int) -> None:
        self._workers, self._on_units, self._total, self._done = workers, on_units, total, 0

    def run(self, tasks: Iterator[Task], on_done: Callable[[Task, Any], None] | None = None) -> None:
        def done(task: Task, result: Any) -> None:
            self._done += 1
            if on_done is not None:
                on_done(task, result)

        self._workers.run(tasks, done, lambda sums: self._on_units(self._done, self._total, sums))


# Finds files of a dataset that have changed since they were written: cut short, or with other bytes.


def damaged(
    workers: LocalWorkers, files: ShardFiles, plan: Plan, listed: Sequence[Mapping[str, Any]] | None
) -> list[str]:
    """Returns the names of damaged files. `listed`: the shards of the manifest, by number; None where there is no
    manifest."""
    names: list[str] = []

    def on_done(_: Task, of_task: list[str]) -> None:
        names.extend(of_task)

    tasks = _unfinished(files, plan) if listed is None else _finished(plan, listed)
    workers.run(tasks, on_done, lambda sums: None)
    return sorted(names)


def _finished(plan: Plan, listed: Sequence[Mapping[str, Any]]) -> Iterator[Task]:
    for group in range(plan.groups):
        yield Task("check", group, [listed[number] for number in plan.shards_of_group(group)])


def _unfinished(files: ShardFiles, plan: Plan) -> Iterator[Task]:
    state = state_of(files, plan)
    for group in range(plan.groups):
        shards = plan.shards_of_group(group)
        of_group = slice(shards.start, shards.stop)
        shards_drawn, finished = np.flatnonzero(state.drawn[of_group]), np.flatnonzero(state.finished[of_group])
        if len(shards_drawn) or len(finished):
            yield Task("sound", group, ((shards_drawn + shards.start).tolist(), (finished + shards.start).tolist()))
    for number, name in enumerate(files.names(REPEATS)):
        yield Task("sound_repeats", number, name)


# The counters of a build for Prometheus, over HTTP while the build runs.


_PREFIX = "c2b_dataset_"
_LABELLED = {DROPPED: "reason", IMAGES: "stage", SECONDS: "stage"}
_HELP = {
    DRAWS: "Images drawn",
    KEPT: "Rows that stay",
    DROPPED: "Draws left out, by reason",
    IMAGES: "Images that the models of a stage got",
    SECONDS: "Seconds of a stage, summed over its processes",
}


class ScrapedCounts:
    """The counts that a scrape gets: the last ones reported."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}

    def tell(self, sums: Mapping[str, float]) -> None:
        # Counts that a process had not reported are lost when it dies; a counter must not decrease.
        self._sums = {name: max(value, self._sums.get(name, 0.0)) for name, value in {**self._sums, **sums}.items()}

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        for name, text in _HELP.items():
            label = _LABELLED.get(name)
            family = CounterMetricFamily(f"{_PREFIX}{name}", text, labels=[label] if label else [])
            for key, value in sorted(self._sums.items()):
                counter, _, label_value = key.partition(":")
                if counter == name:
                    family.add_metric([label_value] if label else [], value)
            yield family


@contextmanager
def exposed(port: int | None) -> Iterator[ScrapedCounts]:
    """Serves the counters on a port of this machine until the block ends; None serves nothing.

    Raises ConfigError where the port is taken.
    """
    counts = ScrapedCounts()
    if port is None:
        yield counts
        return
    with needed_by("--metrics-port"):
        from prometheus_client import CollectorRegistry, start_http_server
    registry = CollectorRegistry(auto_describe=False)
    registry.register(counts)
    try:
        server, thread = start_http_server(port, registry=registry)
    except OSError as error:
        raise ConfigError("--metrics-port", f"port {port} cannot be used: {error.strerror or error}") from error
    try:
        yield counts
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
