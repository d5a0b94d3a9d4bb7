"""One stage: a step mapped over all rows of a source, into Parquet parts, resumable after any death.

    rows → those not yet written → step, in a pool of actors that each hold the role → parts

It does not know what the step does or where rows come from. A row is done when a part that holds its id has its name;
a part is whole or absent (`parts`). So after any process has died, the same call goes on where the parts end.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import ray
import ray.data
import ray.exceptions
from ray.data import ActorPoolStrategy

from c2b_ray.errors import ServiceError
from c2b_ray.pipelines.worker_errors import as_given, carried
from c2b_ray.store.parts import Digests, Parts, digests, failed, joined, read_stage, writing

__all__ = ["Progress", "StageConfig", "StageResult", "read_stage", "run_stage"]

R = TypeVar("R")
BLOCK_BYTES = 32 * 2**20
MOST_THREADS = 16
SUMMARY = pa.schema([("rows", pa.int64()), ("errors", pa.int64())])


@dataclass(frozen=True)
class StageConfig:
    """How a stage runs; none of it changes a row.

    `schema`: of every part; the step's table is cast to it. `batch_size`: rows that the step gets at once. `threads`:
    how many of an actor's threads are in the step at once, each with a batch of its own, where step and role allow it;
    0 for `threads_here` of the machine that the actor is on. `rows_per_file`: about; fewer where a row holds many
    bytes; where an actor dies, up to twice as many are done again. `restarts`: how often in all dead actors are
    replaced before the stage gives up. `weigh`: what each row takes, such as its pixels; rows that together weigh more
    than `most_weight` do not get into one batch, save a row alone. `total`: how many rows there are, where the caller
    knows.
    """

    schema: pa.Schema
    batch_size: int = 64
    rows_per_file: int = 512
    actors: int = 1
    threads: int = 1
    num_cpus_per_actor: float = 0.5
    num_gpus_per_actor: float = 0.0
    restarts: int = 5
    weigh: Callable[[pa.Table], Sequence[int]] | None = None
    most_weight: int = 0
    total: int | None = None


@dataclass(frozen=True)
class Progress:
    """`rows` and `errors` written by this call so far; `resumed`: rows that `out` already held when it began."""

    rows: int
    errors: int
    resumed: int
    total: int | None
    rows_per_second: float


@dataclass(frozen=True)
class StageResult:
    """What this call wrote: `rows`, of which `errors` have an error; `resumed` rows were in `out` before."""

    rows: int
    errors: int
    resumed: int
    seconds: float


@dataclass(frozen=True)
class _Job(Generic[R]):
    """What goes to the workers."""

    step: Callable[[pa.Table, R], pa.Table]
    role_factory: Callable[[], R]
    id_column: str
    config: StageConfig
    most_actors: int
    parts: Parts


def run_stage(
    rows: ray.data.Dataset,
    step: Callable[[pa.Table, R], pa.Table],
    role_factory: Callable[[], R],
    out: str,
    *,
    id_column: str,
    config: StageConfig,
    on_progress: Callable[[Progress], None] | None = None,
) -> StageResult:
    """Maps `step` over `rows` into parts under `out`, each id once, leaving out the ids that parts there already hold.

    `step` gives one row per row; `id_column` is in its input and its output and names a row for good. `out` may hold
    the rows of other sources too. RunError where another process writes to `out`; StorageError where the file system
    refuses; what `role_factory` or `step` raises is raised as itself. After any of these, and after a kill, the same
    call resumes.
    """
    began = time.monotonic()
    with writing(out) as parts:
        before = joined(parts.census(id_column))
        done = np.unique(before.ids)
        most_actors = config.actors + config.restarts
        job = _Job(step, role_factory, id_column, config, most_actors, parts)
        written, errors = 0, 0

        def tell() -> None:
            if on_progress is not None:
                rate = written / (time.monotonic() - began)
                on_progress(Progress(written, errors, len(done), config.total, rate))

        tell()
        for summary in _summaries(_plan(rows, job, done, config)):
            written, errors = written + summary["rows"], errors + summary["errors"]
            tell()
        after = parts.drop_repeats(id_column)
        if not parts.names():
            parts.put("part-empty.parquet", config.schema.empty_table())
    gained = int(after.failed.sum()) - int(before.failed.sum())
    return StageResult(len(after.ids) - len(done), gained, len(done), time.monotonic() - began)


def _plan(rows: ray.data.Dataset, job: _Job[R], done: Digests, config: StageConfig) -> ray.data.Dataset:
    """The stage as a lazy dataset of `SUMMARY` rows, one per part written."""
    if len(done):
        left_out = partial(_not_yet, id_column=job.id_column, done=ray.put(done))
        rows = rows.map_batches(left_out, batch_format="pyarrow", batch_size=None)
    # A block is what an actor finishes before anything of it can be written. Sources fill blocks up to BLOCK_BYTES,
    # which for small rows is a run's whole work in one block.
    rows = rows.repartition(target_num_rows_per_block=config.rows_per_file)
    stepped = rows.map_batches(
        _Worker,
        fn_constructor_args=(job,),
        batch_format="pyarrow",
        batch_size=None,  # whole blocks, which the actor cuts
        compute=_pool(config.actors),
        num_cpus=_cpus(config),
        num_gpus=config.num_gpus_per_actor or None,
    )
    write = partial(_write, parts=job.parts, id_column=job.id_column)
    # Images are collected by blocks, which are bounded in bytes: so many rows of them may not fit into memory.
    holds_bytes = any(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) for kind in config.schema.types)
    rows_at_once = None if holds_bytes else config.rows_per_file
    summaries = stepped.map_batches(write, batch_format="pyarrow", batch_size=rows_at_once)
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


def threads_here() -> int:
    """A thread a core: one more takes the caches of the others. Each holds a batch of decoded images."""
    return min(MOST_THREADS, len(os.sched_getaffinity(0)))


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
    known = ray.get(done)  # shared memory, not a copy
    asked = digests(batch[id_column])
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return batch.filter(pa.array(known[place] != asked))


class _Worker(Generic[R]):
    """An actor of the pool: the role, built once, and the step."""

    def __init__(self, job: _Job[R]) -> None:
        self._job = job
        self._error: Exception | None = None
        try:
            # Ray 2.60 replaces dead actors without end, also those that a row or a model that does not fit kills each
            # time, and its own limit (max_restarts) is deprecated for map_batches.
            if job.parts.note("actor") > job.most_actors:
                raise ServiceError(
                    f"the process that runs the model died {job.most_actors} times over, most often for want of "
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
        batch = _each_once(batch, self._job.id_column)
        parts = cut(batch, self._job.config)
        return pa.concat_tables(self._pool.map(partial(_stepped, job=self._job, role=self._role), parts))


def cut(block: pa.Table, config: StageConfig) -> list[pa.Table]:
    """The block in batches of at most `batch_size` rows and `most_weight`, in its order."""
    weights = [0] * block.num_rows if config.weigh is None else list(config.weigh(block))
    starts, rows, weight = [0], 0, 0  # a block without rows is one batch too: what the step makes of it has the schema
    for row, own in enumerate(weights):
        if rows == config.batch_size or (rows and config.weigh is not None and weight + own > config.most_weight):
            starts.append(row)
            rows, weight = 0, 0
        rows, weight = rows + 1, weight + own
    return [block.slice(a, b - a) for a, b in zip(starts, [*starts[1:], block.num_rows], strict=True)]


def _each_once(batch: pa.Table, id_column: str) -> pa.Table:
    ids = batch[id_column]
    if ids.null_count:
        raise ValueError(f"{id_column} is null in {ids.null_count} rows of the source")
    _, first = np.unique(digests(ids), return_index=True)
    return batch if len(first) == batch.num_rows else batch.take(np.sort(first))


def _stepped(batch: pa.Table, job: _Job[R], role: R) -> pa.Table:
    table = job.step(batch, role).select(job.config.schema.names).cast(job.config.schema)
    if sorted(table[job.id_column].to_pylist()) != sorted(batch[job.id_column].to_pylist()):
        raise ValueError(f"a step gives one row per row, but {job.id_column} of its output is not that of its input")
    return table


@carried
def _write(batch: pa.Table, parts: Parts, id_column: str) -> pa.Table:
    if not batch.num_rows:
        return SUMMARY.empty_table()
    parts.write(batch, id_column)
    return pa.table({"rows": [batch.num_rows], "errors": [int(failed(batch).sum())]}, SUMMARY)
