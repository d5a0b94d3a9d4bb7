"""What Prometheus reads of a stage on Ray while it runs: its rows, and how busy those are that work for it.

The driver of the run sets them, for all processes of the stage together; Ray exports them beside its own metrics. Their
names are a contract with deployments/monitoring, which lists them as Ray exports them: prefixed with `ray_`. It knows
numbers, and nothing of the stage.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

import pyarrow as pa
import ray
import ray.data
import ray.exceptions
from ray.data import ActorPoolStrategy, TaskPoolStrategy
from ray.util.metrics import Counter, Gauge

from c2b_ray.config.placement import Computing, PlacementConfig
from c2b_ray.engine import cluster
from c2b_ray.engine.cluster import check_on_every_node, node_without, not_shared, working_nodes
from c2b_ray.engine.placement import Cluster, Placement, check, placed, within
from c2b_ray.engine.progress import BusyShares, Part, Progress, ProgressCounter, busy_of
from c2b_ray.engine.ray_worker import Assignment, Reports, Worker, as_raised, carried, carried_rows, prepared_there
from c2b_ray.engine.rows import Outputs, SecondTable, WrittenPart, not_yet, write_part
from c2b_ray.engine.stage import BLOCK_BYTES, Job, Prepare, Rows, StageConfig, StageResult, record_stage, write_stage
from c2b_ray.errors import RunError
from c2b_ray.models import devices
from c2b_ray.storage.parts import Digests, Parts, give_back

NAMES = ("c2b_stage_rows", "c2b_stage_busy")


class StageMeters:
    """The metrics of one stage."""

    def __init__(self, stage: str) -> None:
        self._stage, self._rows = stage, 0
        self._shown: set[Part] = set()

    def show(self, rows: int, busy: BusyShares | None) -> None:
        """Shows the rows answered so far, and shares of 0 to 1."""
        if rows > self._rows:  # never less: rows that a dead process had answered are answered again
            _rows().inc(rows - self._rows, {"stage": self._stage})
            self._rows = rows
        for part, share in (busy.shares if busy is not None else {}).items():
            _busy().set(share, {"stage": self._stage, "part": part})
            self._shown.add(part)

    def end(self, rows: int) -> None:
        """Shows all rows, and that nobody works any more."""
        self.show(rows, None)
        for part in self._shown:
            _busy().set(0.0, {"stage": self._stage, "part": part})


@cache
def _rows() -> Counter:
    return Counter(NAMES[0], "Rows that a stage has answered.", ("stage",))


@cache
def _busy() -> Gauge:
    words = "Share of their time in which those work that read, decode and answer for a stage, and its GPU."
    return Gauge(NAMES[1], words, ("stage", "part"))


# A stage as a pipeline of Ray Data: tasks read the rows, and prepare them where that is asked for; a pool of actors,
# each of which holds the role, answers; tasks write.


Expand = Callable[[pa.Table], Iterator[pa.Table]]
# CPUs that a reading task reserves. It waits more than it computes; and Ray 2.60 joins neighbouring operators that
# reserve the same into one task, whose blocks are then bounded in rows only (`planned`), however large the images.
READ_CPUS = 0.5
# CPUs that a writing task reserves: no more than Ray keeps free for each step of a stage on two processors. With a
# whole CPU no part was written before the source had ended, so that a death lost all answers so far.
WRITE_CPUS = 0.25
# CPUs that a task reserves that prepares rows, which computes all the time.
PREPARE_CPUS = 1.0
PREPARED_BYTES = 2 * BLOCK_BYTES
"""Of a block of prepared rows, which holds as many as a batch of the model: 256 pictures of 224 pixels take 38 MB. Ray
cuts one of more than half as many again, and the rest is a small batch."""
LEAST_PREPARED_BYTES = 2**20
SUMMARY = pa.schema([("rows", pa.int64()), ("errors", pa.int64())])


def dataset(rows: Rows) -> ray.data.Dataset:
    """Returns the rows as a Ray dataset. Ray's workers expand the blocks."""
    blocks = ray.data.from_arrow(list(rows.blocks))
    if rows.expand is None:
        return blocks
    # Put once: it may hold the ids of all rows that are wanted, which workers then share uncopied.
    expand = partial(_expanded, expand=ray.put(rows.expand))
    return blocks.map_batches(expand, batch_format="pyarrow", batch_size=None, num_cpus=READ_CPUS)


@carried_rows
def _expanded(block: pa.Table, expand: ray.ObjectRef[Expand]) -> Iterator[pa.Table]:
    yield from ray.get(expand)(block)


def prepared_bytes(decoders: int, store: int | None) -> int:
    """Returns the most bytes of a block of prepared rows, of which each of the tasks makes one while another waits.

    They are to fill no more than half of a node's object store, of `store` bytes: Ray would write the others to disk
    and read them again. A container with Docker's 64 MB of shared memory has one of 512 MB, in files.
    """
    share = PREPARED_BYTES if store is None else store // (4 * max(1, decoders))
    return max(LEAST_PREPARED_BYTES, min(PREPARED_BYTES, share))


def planned(
    rows: ray.data.Dataset, assignment: Assignment[R], done: Digests, store: int | None = None
) -> ray.data.Dataset:
    """Returns the stage as a lazy dataset of `SUMMARY` rows, one per part written. `store`: bytes of a node's object
    store."""
    job, config, placement = assignment.job, assignment.job.config, assignment.job.config.placement
    if len(done):
        without_done = partial(_not_yet, id_column=job.id_column, done=ray.put(done))
        rows = rows.map_batches(without_done, batch_format="pyarrow", batch_size=None)
    prepares_apart = job.prepare is not None and placement.decoders > 0
    # An actor finishes a whole block before any of it can be written. Sources fill blocks up to BLOCK_BYTES, which for
    # small rows would be a run's whole work in one block.
    rows_per_block = min(placement.batch, config.rows_per_file) if prepares_apart else config.rows_per_file
    rows = rows.repartition(target_num_rows_per_block=rows_per_block)
    if prepares_apart:
        rows = _prepared(rows, assignment)
        assignment = replace(assignment, job=replace(job, prepare=None))
    # Not `map_batches`: Ray 2.60's refuses a process with a GPU that takes whole blocks.
    answers = rows.map_batches_internal(
        Worker,
        fn_constructor_args=(assignment,),
        batch_format="pyarrow",
        batch_size=None,  # whole blocks, which the actor cuts
        compute=_pool(placement),
        num_cpus=placement.cpus,
        num_gpus=placement.gpus or None,
        label_selector=dict(placement.labels) or None,
    )
    write = partial(_write, to=assignment.to)
    # Images are collected by blocks, which are bounded in bytes: so many rows of them may not fit into memory.
    holds_bytes = any(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) for kind in config.schema.types)
    holds_bytes = holds_bytes or (job.also is not None and "bytes" in job.also.schema.names)
    rows_at_once = None if holds_bytes else config.rows_per_file
    summaries = answers.map_batches(write, batch_format="pyarrow", batch_size=rows_at_once, num_cpus=WRITE_CPUS)
    context = summaries.context  # that of `rows`, and of this pipeline alone
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.raise_original_map_exception = True
    context.target_max_block_size = prepared_bytes(placement.decoders, store) if prepares_apart else BLOCK_BYTES
    return summaries


def _prepared(rows: ray.data.Dataset, assignment: Assignment[R]) -> ray.data.Dataset:
    """Returns the rows as tasks prepare them, a block of a batch each."""
    placement = assignment.job.config.placement
    # Ray joins operators that reserve the same: the actors would prepare.
    same_resources = placement.cpus == PREPARE_CPUS and not placement.gpus
    return rows.map_batches(
        partial(prepared_there, assignment=ray.put(assignment)),
        batch_format="pyarrow",
        batch_size=None,
        compute=TaskPoolStrategy(placement.decoders),
        num_cpus=PREPARE_CPUS - 0.01 if same_resources else PREPARE_CPUS,
    )


def _pool(placement: Placement) -> ActorPoolStrategy:
    """Returns a pool whose actors take two blocks each, so that threads that are through with one begin the next; or as
    many as they have threads, where a block is a batch."""
    return ActorPoolStrategy(
        min_size=placement.min_actors,
        max_size=placement.max_actors,
        max_concurrent_calls_per_actor=max(2, placement.threads) if placement.decoders else 2,
        enable_true_multi_threading=True,
    )


@carried
def _not_yet(batch: pa.Table, id_column: str, done: ray.ObjectRef[Digests]) -> pa.Table:
    return not_yet(batch, id_column, ray.get(done))  # shared memory, not a copy


@carried
def _write(batch: pa.Table, to: Outputs) -> pa.Table:
    if not batch.num_rows:
        return SUMMARY.empty_table()
    written = write_part(batch, to)
    return pa.table({"rows": [written.rows], "errors": [written.errors]}, SUMMARY)


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
        self.loads_anew = not served
        self.placements: dict[str, dict[str, Any]] = {}
        self.stages: dict[str, dict[str, Any]] = {}

    def check_placement(self) -> None:
        """Raises ConfigError where the placement requires what no node has, before the first stage."""
        check(self._placement, cluster.present())

    def check_paths(self, out: str | None, read: Mapping[str, str]) -> None:
        check_on_every_node(out, read)

    def gpus(self, config: StageConfig) -> float:
        """Returns the GPUs of each process of a stage."""
        return self._placed(config).placement.gpus

    def call(self, function: Callable[[], T], config: StageConfig) -> T:
        (result,) = self.call_each([function], config)
        return result

    def iterate(self, function: Callable[[], Iterator[T]], config: StageConfig) -> Iterator[T]:
        placement = self._placed(config).placement
        task = _placed_task(placement, _iterated).options(num_returns="streaming")
        try:
            for value in task.remote(ray.put(function), placement.computing):
                yield ray.get(value)
        except ray.exceptions.RayError as error:
            raise as_raised(error) from None

    def call_each(self, functions: Sequence[Callable[[], T]], config: StageConfig) -> list[T]:
        placement = self._placed(config).placement
        task = _placed_task(placement, _called)
        results: list[T] = []
        # Some at a time, so that few are wasted where one fails. None is cancelled: Ray 2.60 ends the whole process
        # where a task completes while it is cancelled ("Tried to complete task that was not pending").
        for start in range(0, len(functions), CALLS_AT_ONCE):
            batch = functions[start : start + CALLS_AT_ONCE]
            # Put into the object store first: a function may hold much, and then travels by shared memory.
            calls = [task.remote(ray.put(function), placement.computing) for function in batch]
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
        also: SecondTable | None = None,
    ) -> StageResult:
        config = self._placed(config, prepare is not None)
        job = Job(step, role_factory, id_column, config, prepare, also)
        return record_stage(self, config, write_stage(out, rows, job, on_progress, partial(self._written, rows, job)))

    def _placed(self, config: StageConfig, prepared: bool = False) -> StageConfig:
        if self._cluster is None:  # before any stage of this runner holds GPUs
            self._cluster = cluster.cluster()
        placement = config.placement
        if config.stage is not None:
            placement = placed(config.stage, self._placement, self._cluster, self._served, prepared)
        if config.total is not None:  # more processes than blocks would load a model for nothing
            min_actors = self._placement.stage(config.stage).min_actors if config.stage else placement.min_actors
            useful_actors = max(min_actors or 1, math.ceil(config.total / config.rows_per_file))
            fewest, useful_actors = (
                min(number, useful_actors) for number in (placement.min_actors, placement.max_actors)
            )
            placement = replace(placement, min_actors=fewest, max_actors=useful_actors)
        return replace(config, placement=within(placement, cluster.free_cpus(), self._cluster.elastic))

    def _written(
        self, rows: Rows, job: Job[R], outputs: Outputs, done: Digests, counter: ProgressCounter
    ) -> Generator[WrittenPart, None, None]:
        for parts in outputs.all:
            self._check_shared(parts)
        reports = Reports(outputs.parts.run)
        assignment = Assignment(job, outputs, reports)
        with _watched(reports, counter, job.config):
            for summary in _summaries(planned(dataset(rows), assignment, done, cluster.object_store_bytes())):
                yield WrittenPart(summary["rows"], summary["errors"])

    def _check_shared(self, parts: Parts) -> None:
        """Raises RunError where a node does not see the file that this process has just made in the stage's
        directory."""
        if not parts.local:
            return
        parent = parts.path.rpartition("/")[0]
        other_nodes = [node for node in working_nodes() if (node, parent) not in self._shared]
        if node_lacking := node_without([f"{parts.path}/{parts.run}/writer"], other_nodes):
            raise RunError(not_shared(parts.out, node_lacking[1]))
        self._shared |= {(node, parent) for node in other_nodes}


@contextmanager
def _watched(reports: Reports, counter: ProgressCounter, config: StageConfig) -> Iterator[None]:
    """Reports answered rows every second, and how busy the stage's processes are. When the body ends, these end at
    their next batch."""
    ended, meters = threading.Event(), StageMeters(config.stage or "other")
    busy: list[BusyShares | None] = [None]

    def watch() -> None:
        returned = measured_at = time.monotonic()
        with suppress(ray.exceptions.RayError):  # the cluster has gone, which the stage itself will report
            while not ended.wait(1):
                if time.monotonic() - measured_at >= MEASURE_SECONDS:
                    measure()
                    measured_at = time.monotonic()
                written = (
                    counter.rows
                )  # read first: a row that is just being written then counts nowhere rather than twice
                waiting = reports.open_rows()
                counter.answered(written, waiting)
                meters.show(written + waiting, busy[0])
                if time.monotonic() - returned >= GIVE_BACK_SECONDS:
                    give_back()  # what Ray's threads let go
                    returned = time.monotonic()

    def measure() -> None:
        busy[0] = busy_of(reports.records(), {"decoders": config.placement.decoders})

    counter.busy = lambda: busy[0]
    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        with suppress(ray.exceptions.RayError):
            reports.stop()
            watcher.join()
            measure()
            reports.clear()
            meters.end(counter.rows)


@carried
def _called(function: Callable[[], T], computing: Computing) -> T:
    with devices.assigned(ray.get_gpu_ids(), computing):
        return function()


@carried_rows
def _iterated(function: Callable[[], Iterator[T]], computing: Computing) -> Iterator[T]:
    with devices.assigned(ray.get_gpu_ids(), computing):
        for value in function():  # Ray sends None into what it iterates, which not all iterators take  # noqa: UP028
            yield value


def _placed_task(placement: Placement, function: Callable[..., Any]) -> Any:
    """Returns a Ray task that is placed like the processes of a stage."""
    labels: Any = dict(placement.labels) or None
    return ray.remote(num_cpus=placement.cpus, num_gpus=placement.gpus, label_selector=labels)(function)


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
