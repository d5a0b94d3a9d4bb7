"""Runs stages in Ray: tasks read the rows, a pool of actors that each hold the role steps them, and tasks write them.

`stage` defines what a stage is and promises; `ray_plan` makes a pipeline of Ray Data of it; this module runs it and
watches over it.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import ray
import ray.data
import ray.exceptions

from c2b_ray.config.placement import Computing, PlacementConfig
from c2b_ray.errors import RunError
from c2b_ray.models import devices
from c2b_ray.pipelines import nodes
from c2b_ray.pipelines.busy import Busy, busy_of
from c2b_ray.pipelines.meters import StageMeters
from c2b_ray.pipelines.outputs import Also, Outputs, Written
from c2b_ray.pipelines.placement import Cluster, check, placed, within
from c2b_ray.pipelines.progress import Progress, Teller
from c2b_ray.pipelines.ray_plan import dataset, planned
from c2b_ray.pipelines.ray_worker import Assignment
from c2b_ray.pipelines.reports import Reports
from c2b_ray.pipelines.shared_paths import check_on_every_node, node_without, not_shared, working_nodes
from c2b_ray.pipelines.stage import (
    Job,
    Prepare,
    Rows,
    StageConfig,
    StageResult,
    measured,
    write_stage,
)
from c2b_ray.pipelines.worker_errors import as_raised, carried
from c2b_ray.store.digests import Digests
from c2b_ray.store.memory import give_back
from c2b_ray.store.parts import Parts

R = TypeVar("R")
T = TypeVar("T")
GIVE_BACK_SECONDS = 10.0
MEASURE_SECONDS = 2.0
"""How often it is measured who is busy: a millisecond for each process."""
CALLS_AT_ONCE = 64


class OnRay:
    """Runs stages on the cluster that this process is connected to (`cluster.ensure_ray`).

    `served`: models answer from Ray Serve, so that a stage's own processes only wait for them.
    """

    def __init__(self, placement: PlacementConfig | None = None, served: bool = False) -> None:
        self._placement, self._served = placement or PlacementConfig(), served
        self._cluster: Cluster | None = None
        self._shared: set[tuple[str, str]] = set()
        self.placements: dict[str, dict[str, Any]] = {}
        self.stages: dict[str, dict[str, Any]] = {}

    def check_placement(self) -> None:
        """Raises ConfigError where the placement requires what no node has, before the first stage."""
        check(self._placement, nodes.present())

    def check_paths(self, out: str | None, read: Mapping[str, str]) -> None:
        check_on_every_node(out, read)

    def gpus(self, config: StageConfig) -> float:
        """Returns the GPUs of each process of a stage."""
        return self._placed(config).placement.gpus

    def call(self, function: Callable[[], T], config: StageConfig) -> T:
        (result,) = self.call_each([function], config)
        return result

    def call_each(self, functions: Sequence[Callable[[], T]], config: StageConfig) -> list[T]:
        placement = self._placed(config).placement
        labels: Any = dict(placement.labels) or None
        task: Any = ray.remote(num_cpus=placement.cpus, num_gpus=placement.gpus, label_selector=labels)(_called)
        results: list[T] = []
        # Some at a time, so that few are wasted where one fails. None is cancelled: Ray 2.60 ends the whole process
        # where a task completes while it is cancelled ("Tried to complete task that was not pending").
        for start in range(0, len(functions), CALLS_AT_ONCE):
            some = functions[start : start + CALLS_AT_ONCE]
            # Put into the object store first: a function may hold much, and then travels by shared memory.
            calls = [task.remote(ray.put(function), placement.computing) for function in some]
            try:
                results += ray.get(calls)
            except ray.exceptions.RayError as error:
                raise as_raised(error) from None
        return results

    def run(
        self,
        rows: Rows,
        step: Callable[[pa.Table, R], pa.Table],
        role_factory: Callable[[], R],
        out: str,
        *,
        id_column: str,
        config: StageConfig,
        on_progress: Callable[[Progress], None] | None = None,
        prepare: Prepare | None = None,
        also: Also | None = None,
    ) -> StageResult:
        config = self._placed(config, prepare is not None)
        job = Job(step, role_factory, id_column, config, prepare, also)
        result = write_stage(out, rows, job, on_progress, partial(self._written, rows, job))
        if config.stage is not None and result.rows:
            self.placements[config.stage] = config.placement.record()
            self.stages[config.stage] = measured(self.stages.get(config.stage), result)
        return result

    def _placed(self, config: StageConfig, prepared: bool = False) -> StageConfig:
        if self._cluster is None:  # before any stage of this runner holds GPUs
            self._cluster = nodes.cluster()
        placement = config.placement
        if config.stage is not None:
            placement = placed(config.stage, self._placement, self._cluster, self._served, prepared)
        if config.total is not None:  # more processes than blocks would load a model for nothing
            least = self._placement.stage(config.stage).min_actors if config.stage else placement.min_actors
            most = max(least or 1, math.ceil(config.total / config.rows_per_file))
            fewest, most = (min(number, most) for number in (placement.min_actors, placement.max_actors))
            placement = replace(placement, min_actors=fewest, max_actors=most)
        return replace(config, placement=within(placement, nodes.free_cpus(), self._cluster.elastic))

    def _written(
        self, rows: Rows, job: Job[R], to: Outputs, done: Digests, teller: Teller
    ) -> Generator[Written, None, None]:
        for parts in to.all:
            self._check_shared(parts)
        reports = Reports(to.parts.run)
        assignment = Assignment(job, to, reports)
        with _watched(reports, teller, job.config):
            for summary in _summaries(planned(dataset(rows), assignment, done)):
                yield Written(summary["rows"], summary["errors"])

    def _check_shared(self, parts: Parts) -> None:
        """Raises RunError where a node does not see the file that this process has just made in the stage's
        directory."""
        if not parts.local:
            return
        above = parts.path.rpartition("/")[0]
        others = [node for node in working_nodes() if (node, above) not in self._shared]
        if lacking := node_without([f"{parts.path}/{parts.run}/writer"], others):
            raise RunError(not_shared(parts.out, lacking[1]))
        self._shared |= {(node, above) for node in others}


@contextmanager
def _watched(reports: Reports, teller: Teller, config: StageConfig) -> Iterator[None]:
    """Reports answered rows every second, and how busy the stage's processes are. When the body ends, these end at
    their next batch."""
    over, meters = threading.Event(), StageMeters(config.stage or "other")
    busy: list[Busy | None] = [None]

    def watch() -> None:
        returned = measured_at = time.monotonic()
        with suppress(ray.exceptions.RayError):  # the cluster has gone, which the stage itself will report
            while not over.wait(1):
                if time.monotonic() - measured_at >= MEASURE_SECONDS:
                    measure()
                    measured_at = time.monotonic()
                written = teller.rows  # first: rows on their way into a part then count nowhere rather than twice
                waiting = reports.open_rows()
                teller.answered(written, waiting)
                meters.show(written + waiting, busy[0])
                if time.monotonic() - returned >= GIVE_BACK_SECONDS:
                    give_back()  # what Ray's threads let go
                    returned = time.monotonic()

    def measure() -> None:
        busy[0] = busy_of(reports.records(), {"decoders": config.placement.decoders})

    teller.busy = lambda: busy[0]
    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        with suppress(ray.exceptions.RayError):
            reports.stop()
            watcher.join()
            measure()
            reports.clear()
            meters.end(teller.rows)


@carried
def _called(function: Callable[[], T], computing: Computing) -> T:
    with devices.assigned(ray.get_gpu_ids(), computing):
        return function()


def _summaries(dataset: ray.data.Dataset) -> Iterator[dict[str, int]]:
    """Runs the stage and yields its summaries. Workers' errors are raised as they were raised there."""
    with warnings.catch_warnings():
        # Ray 2.60 warns where fewer blocks than actors are left.
        warnings.filterwarnings("ignore", message="The minimum number of concurrent actors")
        try:
            batches: Any = dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
            for batch in batches:
                yield from batch.to_pylist()
        except ray.exceptions.RayError as error:
            raise as_raised(error) from None
