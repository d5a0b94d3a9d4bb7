"""Runs tasks of a build on Ray: actors that each hold the models and do a few tasks at once.

An actor that dies, alone or with its node, loses its unfinished tasks only: these are assigned again, and another actor
replaces it where there is room for one. Only an actor that is up gets tasks: no build waits for a node that does not
come while others could work.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ray
import ray.exceptions

from c2b_ray.audits.dataset.shards.passes import OnCounts, OnDone
from c2b_ray.audits.dataset.shards.workers import Counters, Recipe, Task, TaskWorker
from c2b_ray.config.placement import Computing, PlacementConfig
from c2b_ray.engine import cluster
from c2b_ray.engine.placement import Placement, placed
from c2b_ray.engine.ray_worker import as_raised, carried
from c2b_ray.errors import ServiceError
from c2b_ray.models import devices

REPORT_EVERY_S = 1.0
SERVED_THREADS = 4
"""Shards in progress in a process whose models answer from Ray Serve: it waits rather than computes."""
RESTARTS = 5
"""Processes that may die over one task, on nodes that stay alive, while no other task is done."""


class WorkerActor:
    """One actor."""

    def __init__(self, recipe: Recipe, computing: Computing) -> None:
        devices.assign(ray.get_gpu_ids(), computing)  # Ray hides no GPU from an actor that has none
        self._counters, self._recipe = Counters(), recipe
        self._worker: TaskWorker | None = None
        self._making = threading.Lock()

    def node(self) -> str:
        return ray.get_runtime_context().get_node_id()

    def counts(self) -> dict[str, float]:
        return self._counters.snapshot()

    @carried
    def do(self, task: Task) -> Any:
        with self._making:
            if self._worker is None:
                self._worker = TaskWorker(self._recipe, self._counters, lambda: None)
        return self._worker.do(task)


@dataclass
class _Actor:
    """`coming`: the call that returns once the actor is up. `tasks`: by the reference to their results."""

    handle: Any
    coming: Any
    node: str = ""
    tasks: dict[Any, Task] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)


class RayWorkers:
    """Workers on the cluster that this process is connected to. `served`: models answer from Ray Serve."""

    def __init__(self, recipe: Recipe, placement: PlacementConfig | None, served: bool = False) -> None:
        self.lost = self.repeated = 0
        self._recipe = ray.put(recipe)
        self._placement = placed("shards", placement or PlacementConfig(), cluster.cluster(), served)
        self._threads = SERVED_THREADS if served else max(1, self._placement.threads)
        # More processes than shards would load models for nothing.
        self._most = min(self._placement.max_actors, max(1, -(-recipe.plan.shards // self._threads)))
        self._kind: Any = ray.remote(WorkerActor)
        self._actors: list[_Actor] = []
        self._gone: Counter[str] = Counter()  # the counts of dead actors
        self._deaths: Counter[str] = Counter()  # by task, since the last one that was done

    @property
    def placement(self) -> Placement:
        return self._placement

    def run(self, tasks: Iterable[Task], on_done: OnDone, on_counts: OnCounts) -> None:
        coming, to_repeat = iter(tasks), deque[Task]()
        last_report = time.monotonic()
        try:
            while True:
                self._give_out(coming, to_repeat)
                if not to_repeat and not any(actor.tasks for actor in self._actors):
                    if (task := next(coming, None)) is None:
                        break
                    to_repeat.append(task)  # no actor is ready to take it yet
                    self._hire()
                self._await(on_done, to_repeat)
                if time.monotonic() - last_report > REPORT_EVERY_S:
                    on_counts(self._counts())
                    last_report = time.monotonic()
        except BaseException:
            self.close()
            raise
        on_counts(self._counts())

    def close(self) -> None:
        """Kills all actors at once. Whenever a process ends, a file that it was writing is whole or absent."""
        for actor in self._actors:
            ray.kill(actor.handle)
        self._actors = []

    def _hire(self) -> None:
        """Starts as many actors as allowed. Those without room wait for it."""
        while len(self._actors) < self._most:
            placement = self._placement
            options: dict[str, Any] = {
                "num_cpus": placement.cpus,
                "num_gpus": placement.gpus,
                "max_restarts": 0,  # another one replaces it, so that its unfinished work is counted
                "max_concurrency": self._threads + 2,  # two more, for calls that read its counts
                "scheduling_strategy": "SPREAD",
            }
            if placement.labels:
                options["label_selector"] = dict(placement.labels)
            handle = self._kind.options(**options).remote(self._recipe, placement.computing)
            self._actors.append(_Actor(handle, handle.node.remote()))

    def _give_out(self, coming: Iterator[Task], to_repeat: deque[Task]) -> None:
        for actor in self._actors:
            while actor.node and len(actor.tasks) < self._threads:
                task = to_repeat.popleft() if to_repeat else next(coming, None)
                if task is None:
                    return
                actor.tasks[actor.handle.do.remote(task)] = task
        if len(self._actors) < self._most:
            self._hire()

    def _await(self, on_done: OnDone, to_repeat: deque[Task]) -> None:
        """Waits for a while until something ends: a task, the start of an actor, or an actor."""
        waiting = {actor.coming: actor for actor in self._actors if not actor.node}
        working = {reference: actor for actor in self._actors for reference in actor.tasks}
        done, _ = ray.wait([*working, *waiting], num_returns=1, timeout=REPORT_EVERY_S)
        for reference in done:
            actor = working.get(reference) or waiting[reference]
            if actor not in self._actors:  # buried with an earlier one of these
                continue
            try:
                result = ray.get(reference)
            except (ray.exceptions.RayActorError, ray.exceptions.NodeDiedError) as error:
                self._bury(actor, to_repeat, error)
                continue
            except ray.exceptions.RayError as error:
                raise as_raised(error) from None
            if reference in waiting:
                actor.node = result
                continue
            self._deaths.clear()
            on_done(actor.tasks.pop(reference), result)

    def _bury(self, actor: _Actor, to_repeat: deque[Task], error: Exception) -> None:
        self._actors.remove(actor)
        self._gone.update(actor.counts)
        to_repeat.extend(actor.tasks.values())
        self.lost, self.repeated = self.lost + 1, self.repeated + len(actor.tasks)
        if self._alive(actor.node):  # the loss of a node says nothing about the tasks
            self._deaths.update(task.name for task in actor.tasks.values())
            self._deaths.update(["start"] if not actor.tasks else [])
        if max(self._deaths.values(), default=0) > RESTARTS:
            first_line = str(error).strip().partition("\n")[0]
            raise ServiceError(
                f"{RESTARTS + 1} processes in a row died over the same shards, the last with: {first_line}; what is "
                "written is kept; give each process more memory (fewer of them, a smaller batch), and run again"
            ) from None
        self._hire()

    def _alive(self, node: str) -> bool:
        ray_nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        return not node or any(entry["NodeID"] == node and entry["Alive"] for entry in ray_nodes)

    def _counts(self) -> dict[str, float]:
        pending = {actor.handle.counts.remote(): actor for actor in self._actors if actor.node}
        answered, _ = ray.wait(list(pending), num_returns=len(pending), timeout=REPORT_EVERY_S) if pending else ([], [])
        for reference in answered:
            try:
                pending[reference].counts = ray.get(reference)
            except ray.exceptions.RayError:  # it has died, which `_await` handles
                continue
        sums = Counter(self._gone)
        for actor in self._actors:
            sums.update(actor.counts)
        return dict(sums)
