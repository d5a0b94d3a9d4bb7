"""A stage as a pipeline of Ray Data: tasks read, and prepare where that is asked for; actors answer; tasks write.

It builds the pipeline and runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import ray
import ray.data
from ray.data import ActorPoolStrategy, TaskPoolStrategy

from c2b_ray.pipelines.outputs import Outputs, write_part
from c2b_ray.pipelines.placement import Placement
from c2b_ray.pipelines.ray_worker import Assignment, Worker, prepared_there
from c2b_ray.pipelines.row_ids import not_yet
from c2b_ray.pipelines.stage import BLOCK_BYTES, Rows
from c2b_ray.pipelines.worker_errors import carried, carried_rows
from c2b_ray.store.digests import Digests

R = TypeVar("R")
Expand = Callable[[pa.Table], Iterator[pa.Table]]
# CPUs that a reading task reserves. It waits more than it computes; and Ray 2.60 joins neighbouring operators that
# reserve the same into one task, whose blocks are then bounded in rows only (`planned`), however large the images.
READ_CPUS = 0.5
# What a task that writes reserves: no more than Ray keeps free for each step of a stage on two processors. With a whole
# one none was written before the source was through, so that a death lost all that was answered by then.
WRITE_CPUS = 0.25
# What a task reserves that prepares rows: it computes all the time.
PREPARE_CPUS = 1.0
PREPARED_BYTES = 2 * BLOCK_BYTES
"""Of a block of prepared rows, which holds as many as a batch of the model: 256 pictures of 224 pixels take 38 MB. Ray
cuts one of more than half as many again, and the rest is a small batch."""
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


def planned(rows: ray.data.Dataset, assignment: Assignment[R], done: Digests) -> ray.data.Dataset:
    """Returns the stage as a lazy dataset of `SUMMARY` rows, one per part written."""
    job, config, placement = assignment.job, assignment.job.config, assignment.job.config.placement
    if len(done):
        left_out = partial(_not_yet, id_column=job.id_column, done=ray.put(done))
        rows = rows.map_batches(left_out, batch_format="pyarrow", batch_size=None)
    elsewhere = job.prepare is not None and placement.decoders > 0
    # An actor finishes a whole block before any of it can be written. Sources fill blocks up to BLOCK_BYTES, which for
    # small rows would be a run's whole work in one block.
    at_once = min(placement.batch, config.rows_per_file) if elsewhere else config.rows_per_file
    rows = rows.repartition(target_num_rows_per_block=at_once)
    if elsewhere:
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
    context.target_max_block_size = PREPARED_BYTES if elsewhere else BLOCK_BYTES
    return summaries


def _prepared(rows: ray.data.Dataset, assignment: Assignment[R]) -> ray.data.Dataset:
    """Returns the rows as tasks prepare them, a block of a batch each."""
    placement = assignment.job.config.placement
    # Ray joins operators that reserve the same: the actors would prepare.
    alike = placement.cpus == PREPARE_CPUS and not placement.gpus
    return rows.map_batches(
        partial(prepared_there, assignment=ray.put(assignment)),
        batch_format="pyarrow",
        batch_size=None,
        compute=TaskPoolStrategy(placement.decoders),
        num_cpus=PREPARE_CPUS - 0.01 if alike else PREPARE_CPUS,
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
