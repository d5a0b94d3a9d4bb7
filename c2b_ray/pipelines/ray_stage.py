"""Stages in Ray: rows are read by tasks, stepped by a pool of actors that each hold the role, and written by tasks.

What a stage is, and what it promises, is said in `stage`; this module knows Ray Data alone.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa
import ray
import ray.data
import ray.exceptions
from ray.data import ActorPoolStrategy

from c2b_ray.errors import ServiceError
from c2b_ray.pipelines.stage import (
    BLOCK_BYTES,
    Job,
    Progress,
    Rows,
    StageConfig,
    StageResult,
    Written,
    cut,
    each_once,
    not_yet,
    stepped,
    threads_here,
    write_part,
    write_stage,
)
from c2b_ray.pipelines.worker_errors import as_given, carried, carried_rows
from c2b_ray.store.parts import Digests, Parts

R = TypeVar("R")
Expand = Callable[[pa.Table], Iterator[pa.Table]]
# What a task that reads reserves. It waits more than it computes; and Ray 2.60 joins neighbours that reserve the same
# into one task, whose blocks are then bounded in rows alone (`_plan`), however large the images.
READ_CPUS = 0.5
SUMMARY = pa.schema([("rows", pa.int64()), ("errors", pa.int64())])


class OnRay:
    """Runs stages on the cluster that this process is connected to (`cluster.ensure_ray`)."""

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
    ) -> StageResult:
        job = Job(step, role_factory, id_column, config)
        return write_stage(out, job, on_progress, partial(_written, rows, job))


@dataclass(frozen=True)
class _Assignment(Generic[R]):
    """What goes to the workers."""

    job: Job[R]
    parts: Parts


def _written(rows: Rows, job: Job[R], parts: Parts, done: Digests) -> Generator[Written, None, None]:
    for summary in _summaries(_plan(dataset(rows), _Assignment(job, parts), done)):
        yield Written(summary["rows"], summary["errors"])


def dataset(rows: Rows) -> ray.data.Dataset:
    """The rows as Ray has them; blocks are expanded by its workers."""
    blocks = ray.data.from_arrow(list(rows.blocks))
    if rows.expand is None:
        return blocks
    # Put once: it may hold the ids of all rows that are wanted, which workers then share uncopied.
    expand = partial(_expanded, expand=ray.put(rows.expand))
    return blocks.map_batches(expand, batch_format="pyarrow", batch_size=None, num_cpus=READ_CPUS)


@carried_rows
def _expanded(block: pa.Table, expand: ray.ObjectRef[Expand]) -> Iterator[pa.Table]:
    yield from ray.get(expand)(block)


def _plan(rows: ray.data.Dataset, assignment: _Assignment[R], done: Digests) -> ray.data.Dataset:
    """The stage as a lazy dataset of `SUMMARY` rows, one per part written."""
    job, config = assignment.job, assignment.job.config
    if len(done):
        left_out = partial(_not_yet, id_column=job.id_column, done=ray.put(done))
        rows = rows.map_batches(left_out, batch_format="pyarrow", batch_size=None)
    # A block is what an actor finishes before anything of it can be written. Sources fill blocks up to BLOCK_BYTES,
    # which for small rows is a run's whole work in one block.
    rows = rows.repartition(target_num_rows_per_block=config.rows_per_file)
    answers = rows.map_batches(
        _Worker,
        fn_constructor_args=(assignment,),
        batch_format="pyarrow",
        batch_size=None,  # whole blocks, which the actor cuts
        compute=_pool(config.actors),
        num_cpus=_cpus(config),
        num_gpus=config.num_gpus_per_actor or None,
    )
    write = partial(_write, parts=assignment.parts, id_column=job.id_column)
    # Images are collected by blocks, which are bounded in bytes: so many rows of them may not fit into memory.
    holds_bytes = any(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) for kind in config.schema.types)
    rows_at_once = None if holds_bytes else config.rows_per_file
    summaries = answers.map_batches(write, batch_format="pyarrow", batch_size=rows_at_once)
    context = summaries.context  # that of `rows`, and of this pipeline alone
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.raise_original_map_exception = True
    context.target_max_block_size = BLOCK_BYTES
    return summaries


def _pool(actors: int) -> ActorPoolStrategy:
    """Two blocks at once in each actor, for the same `threads`: those that are through with one begin the next."""
    return ActorPoolStrategy(size=actors, max_concurrent_calls_per_actor=2, enable_true_multi_threading=True)


def _cpus(config: StageConfig) -> float:
    there, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    return actor_cpus(config, float(there.get("CPU", 0.0)), float(free.get("CPU", 0.0)))


def actor_cpus(config: StageConfig, there: float, free: float) -> float:
    """An actor's CPUs, so few that all actors, beside what is taken already (replicas of Serve), leave one CPU: without
    it reads and writes wait for ever. `there`: CPUs of the cluster, of which `free` are reserved by nobody.

    Actors of the stage before may still be leaving, and make it fewer than it could be. An actor of 0 CPUs runs too:
    Ray counts CPUs and withholds none.
    """
    if there == 0:  # workers of an autoscaling cluster that are still to come
        return config.num_cpus_per_actor
    spare = math.floor(max(0.0, free - 1) / config.actors * 100) / 100
    return min(config.num_cpus_per_actor, spare)


def _summaries(dataset: ray.data.Dataset) -> Iterator[dict[str, int]]:
    """Runs the stage; errors as they were raised where they arose."""
    with warnings.catch_warnings():
        # Raised by Ray 2.60 as a warning where fewer blocks than actors are left to do.
        warnings.filterwarnings("ignore", message="The minimum number of concurrent actors")
        try:
            batches: Any = dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
            for batch in batches:
                yield from batch.to_pylist()
        except ray.exceptions.RayError as error:
            raise as_given(error) from None


@carried
def _not_yet(batch: pa.Table, id_column: str, done: ray.ObjectRef[Digests]) -> pa.Table:
    return not_yet(batch, id_column, ray.get(done))  # shared memory, not a copy


class _Worker(Generic[R]):
    """An actor of the pool: the role, built once, and the step."""

    def __init__(self, assignment: _Assignment[R]) -> None:
        self._job = job = assignment.job
        self._error: Exception | None = None
        try:
            # Ray 2.60 replaces dead actors without end, also those that a row or a model that does not fit kills each
            # time, and its own limit (max_restarts) is deprecated for map_batches.
            most_actors = job.config.actors + job.config.restarts
            if assignment.parts.note("actor") > most_actors:
                raise ServiceError(
                    f"the process that runs the model died {most_actors} times over, most often for want of "
                    "memory; make batches smaller or give it more memory, and run again to go on"
                )
            self._role = job.role_factory()
            self._pool = ThreadPoolExecutor(job.config.threads or threads_here(), thread_name_prefix="step")
        except (
            Exception
        ) as error:  # an actor that fails to start is reported without its reason; one that runs, with it
            self._error = error

    @carried
    def __call__(self, batch: pa.Table) -> pa.Table:
        if self._error is not None:
            raise self._error
        batch = each_once(batch, self._job.id_column)
        batches = cut(batch, self._job.config)
        return pa.concat_tables(self._pool.map(partial(stepped, job=self._job, role=self._role), batches))


@carried
def _write(batch: pa.Table, parts: Parts, id_column: str) -> pa.Table:
    if not batch.num_rows:
        return SUMMARY.empty_table()
    written = write_part(batch, parts, id_column)
    return pa.table({"rows": [written.rows], "errors": [written.errors]}, SUMMARY)
