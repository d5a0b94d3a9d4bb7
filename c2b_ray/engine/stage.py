"""A stage: a step mapped over all rows of a source, into Parquet parts, resumable after any death.

    rows → those not yet written → prepare, in any process → step, given a role → parts

`prepare` needs no role, so runners call it in other processes than the one that holds the model. This module holds what
all runners of stages share. It does not know what the step does, where rows come from, or Ray;
`here` runs a stage in this process and `ray_stage` in Ray's. A row is done when a part that holds its id has its final
name; a part is whole or absent (`parts`). So after the death of any process, the same call resumes where the parts end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from c2b_ray.config.placement import Stage
from c2b_ray.engine.machine import cores
from c2b_ray.engine.placement import MOST_THREADS, Placement
from c2b_ray.engine.progress import BusyClock, BusyShares, Part, Progress, ProgressCounter, timed, times_of
from c2b_ray.engine.rows import Outputs, SecondTable, WrittenPart, ids_of, outputs, with_second
from c2b_ray.storage.parts import Digests, absent, distinct, give_back

R = TypeVar("R")
T = TypeVar("T")
Prepare = Callable[[pa.Table], pa.Table]
"""Turns rows into what the step gets: as many rows, with the same ids, in their order.

It is pure, can be sent to other processes, and does not import the library of any model there: such a process starts in
a fraction of a second.
"""
BLOCK_BYTES = 32 * 2**20
ONE_PROCESS = Placement(batch=64)


@dataclass(frozen=True)
class Rows:
    """The source of a stage: small `blocks` that describe rows, and a function that turns a block into tables of rows.

    `expand`: None where the blocks hold the rows themselves; otherwise it can be sent to workers. `total`: the number
    of rows, where known. `ids`: yields the ids of all rows, some at a time, where they are known without `expand`.
    """

    blocks: Sequence[pa.Table]
    expand: Callable[[pa.Table], Iterator[pa.Table]] | None = None
    total: int | None = None
    ids: Callable[[], Iterator[pa.Array]] | None = None

    @staticmethod
    def of(table: pa.Table, at_once: int) -> Rows:
        """Returns the rows of a table, in blocks of `block_rows`; one block without rows where it has none."""
        starts = range(0, max(1, table.num_rows), at_once)
        return Rows([table.slice(start, at_once) for start in starts], total=table.num_rows)

    def tables(self) -> Iterator[pa.Table]:
        """Yields the rows, read in this process."""
        for block in self.blocks:
            if self.expand is None:
                yield block
            else:
                yield from self.expand(block)


@dataclass(frozen=True)
class StageConfig:
    """How a stage runs. No field changes a row.

    `schema`: of every part; the step's table is cast to it. `placement`: how many processes, and what each of them
    takes; a runner replaces it for a `stage` that placement files know by name. `rows_per_file`: about; fewer where a
    row holds many bytes; where an actor dies, up to twice as many are computed again. `restarts`: how many processes
    may die over the same rows before the stage gives up. `weigh`: the weight of each row, such as its pixels; rows that
    together weigh more than `most_weight` do not share a batch. `total`: the number of rows, where the caller knows it.
    """

    schema: pa.Schema
    placement: Placement = ONE_PROCESS
    stage: Stage | None = None
    rows_per_file: int = 512
    restarts: int = 5
    weigh: Callable[[pa.Table], Sequence[int]] | None = None
    most_weight: int = 0
    total: int | None = None


def each_alone(rows: pa.Table) -> list[int]:
    """Weighs rows such that with a `most_weight` of 1 no two share a batch."""
    return [1] * rows.num_rows


@dataclass(frozen=True)
class StageResult:
    """What this call wrote: `rows`, of which `errors` have an error. `resumed`: rows of the source that `out` held
    before.

    `busy`: how busy the stage's workers were, where that was measured.
    Where the ids of the source's rows are not known before they are read, `resumed` counts all rows that `out` held.
    """

    rows: int
    errors: int
    resumed: int
    seconds: float
    busy: BusyShares | None = None


class Runner(Protocol):
    """Runs stages. For a run's record, of each named stage that has written rows: `placements`, its placement, and
    `stages`, how fast it was and what it waited for (`measured`). `loads_anew`: whether each stage loads its models, in
    processes of its own."""

    loads_anew: bool
    placements: dict[str, dict[str, Any]]
    stages: dict[str, dict[str, Any]]

    def check_paths(self, out: str | None, read: Mapping[str, str]) -> None:
        """Raises ConfigError, before work starts, where a path is missing on a node that does the work.

        `out`: a directory that this process has made and workers write into. `read`: path that workers read → the field
        that names it.
        """

    def call(self, function: Callable[[], T], config: StageConfig) -> T:
        """Calls `function` once, in a process placed like those of a stage with this config, and returns its result.

        What it raises is raised here unchanged.
        """
        ...

    def iterate(self, function: Callable[[], Iterator[T]], config: StageConfig) -> Iterator[T]:
        """Yields what `function` yields, as soon as it does, where `call` would call it: work of minutes can say how
        far it is."""
        ...

    def call_each(self, functions: Sequence[Callable[[], T]], config: StageConfig) -> list[T]:
        """Calls each function once, as `call` does, as many at a time as there are processes for; returns their results
        in order."""
        ...

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
        """Maps `step` over `rows` into parts under `out`, each id once, leaving out the ids that parts there hold.

        `step` returns one row per row. `id_column` is in its input and its output and identifies a row permanently.
        Where it is a list of ids in the input, the step returns one row per id, and gets only the ids that are not
        done. With `prepare` the step gets what that returns of rows. With `also` a second table is written: of each
        row that the step gets, the columns of that table. `out` may hold the rows of other sources too. Raises RunError
        where another process writes to `out`; StorageError where the file system refuses; what `role_factory`,
        `prepare` or `step` raises is raised unchanged. After any of these, and after a kill, the same call resumes,
        with this runner or another.
        """


@dataclass(frozen=True)
class Job(Generic[R]):
    """What a stage does with each row. It can be sent to workers."""

    step: Callable[[pa.Table, R], pa.Table]
    role_factory: Callable[[], R]
    id_column: str
    config: StageConfig
    prepare: Prepare | None = None
    also: SecondTable | None = None


def write_stage(
    out: str,
    rows: Rows,
    job: Job[R],
    on_progress: Callable[[Progress], None] | None,
    work: Callable[[Outputs, Digests, ProgressCounter], Generator[WrittenPart, None, None]],
) -> StageResult:
    """Runs a stage as the only writer of `out`: counts the existing rows, has the rest written, drops repeats.

    `work` writes the missing rows. It gets the outputs to write to, the digests of the ids that exist, and the
    `ProgressCounter` to report answered rows to. It is not called where nothing is missing.
    """
    started = time.monotonic()
    with outputs(out, job.config.schema, job.id_column, job.also) as stage_outputs:
        parts = stage_outputs.parts
        census = parts.census(job.id_column)
        done, errors = distinct(census.ids), census.errors
        del census
        resumed, missing = _resumed(rows, job.id_column, done)
        counter = ProgressCounter(on_progress, resumed, job.config.total)
        counter.tell()
        if missing:
            give_back()  # the memory that the census took: a stage may take hours
            with closing(work(stage_outputs, done, counter)) as written:
                for part in written:
                    counter.wrote(part.rows, part.errors)
        give_back()
        count = parts.drop_repeats(job.id_column)
        stage_outputs.settle()
    shares = None if counter.busy is None else counter.busy()
    return StageResult(count.rows - len(done), count.errors - errors, resumed, time.monotonic() - started, shares)


def record_stage(runner: Runner, config: StageConfig, result: StageResult) -> StageResult:
    """Notes in the runner where a named stage ran and how fast it was, earlier calls of it included; returns its
    result."""
    if config.stage is not None and result.rows:
        runner.placements[config.stage] = config.placement.record()
        runner.stages[config.stage] = measured(runner.stages.get(config.stage), result)
    return result


def measured(earlier: Mapping[str, Any] | None, result: StageResult) -> dict[str, Any]:
    """Returns the entry of a stage in a run's manifest, with what earlier calls of it measured."""
    rows = result.rows + (earlier or {}).get("rows", 0)
    seconds = result.seconds + (earlier or {}).get("seconds", 0.0)
    entry = {"rows": rows, "seconds": round(seconds, 3), "rows_per_second": round(rows / max(seconds, 1e-9), 1)}
    return entry if result.busy is None else {**entry, "busy": result.busy.record()}


def _resumed(rows: Rows, id_column: str, done: Digests) -> tuple[int, bool]:
    """Returns how many of the rows are among `done`, and whether any may be missing."""
    if rows.ids is not None:
        ids: Iterator[pa.Array | pa.ChunkedArray] = rows.ids()
    elif rows.expand is None:
        ids = (ids_of(block, id_column) for block in rows.blocks)
    else:
        return len(done), True
    if not len(done):
        return 0, True
    counts = [(len(chunk), int(absent(chunk, done).sum())) for chunk in ids]
    missing = sum(n_absent for _, n_absent in counts)
    return sum(rows for rows, _ in counts) - missing, missing > 0


def cut(block: pa.Table, config: StageConfig) -> list[pa.Table]:
    """Returns the block in batches of at most `batch` rows and `most_weight`, in order."""
    weights = [0] * block.num_rows if config.weigh is None else list(config.weigh(block))
    size, limit = config.placement.batch, config.most_weight
    starts, rows, weight = [0], 0, 0  # a block without rows is one batch too: what the step makes of it has the schema
    for row, row_weight in enumerate(weights):
        if rows == size or (rows and config.weigh is not None and weight + row_weight > limit):
            starts.append(row)
            rows, weight = 0, 0
        rows, weight = rows + 1, weight + row_weight
    return [block.slice(a, b - a) for a, b in zip(starts, [*starts[1:], block.num_rows], strict=True)]


def parts_of(job: Job[Any]) -> tuple[Part, ...]:
    """Returns what the threads that answer do in turn: with the model alone, or the preparation too."""
    return ("model",) if job.prepare is None else ("reading", "decoding", "model")


def answered_in(clock: BusyClock, batch: pa.Table, job: Job[R], role: R) -> pa.Table:
    """Prepares a batch and returns the step's answer to it, as `call_role` does. `clock` counts the time."""
    rows = prepared_in(clock, batch, job)
    with clock.at_work("threads", "model"):
        return call_role(rows, job, role)


def prepared_in(clock: BusyClock, batch: pa.Table, job: Job[R]) -> pa.Table:
    """Returns a batch prepared, where the job says how. `clock` counts the time, as of its "threads"."""
    if job.prepare is None:
        return batch
    rows, seconds, started = times_of(timed(batch, job.prepare))
    clock.add("threads", seconds, started)
    return checked(rows, batch, job)


def checked(rows: pa.Table, batch: pa.Table, job: Job[R]) -> pa.Table:
    """Returns the prepared rows of a batch. Raises ValueError where their ids differ from the batch's."""
    if not rows[job.id_column].equals(batch[job.id_column]):
        raise ValueError(f"rows are prepared one by one, but {job.id_column} is not what it was before")
    return rows


def call_role(rows: pa.Table, job: Job[R], role: R) -> pa.Table:
    """Returns the step's answer to prepared rows, in the stage's schema, with the second table's rows, if any, beside
    it. Raises ValueError where its ids differ from the rows'."""
    table = job.step(rows, role).select(job.config.schema.names).cast(job.config.schema)
    if not _same(table[job.id_column], ids_of(rows, job.id_column)):
        raise ValueError(f"a step gives one row per row, but {job.id_column} of its output is not that of its input")
    return with_second(table, rows, job.id_column, job.also)


def _same(ids: pa.ChunkedArray, expected: pa.ChunkedArray) -> bool:
    """Tells whether the ids are the same in some order."""
    return ids.equals(expected) or sorted(ids.to_pylist()) == sorted(expected.to_pylist())


def threads_of(placement: Placement) -> int:
    """Returns the placement's threads, or one per core of this machine: more would share its caches.

    Each thread holds a batch of decoded images.
    """
    return placement.threads or min(MOST_THREADS, cores())
