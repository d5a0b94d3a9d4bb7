"""Answers of a stage in this process to rows that worker processes prepare.

    a thread reads rows │ processes prepare them, a batch each │ threads are in the step, a batch each

This process, which holds the model, touches a picture only as part of a block in shared memory.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from threading import BoundedSemaphore
from typing import Any, Generic, TypeVar

import pyarrow as pa

from c2b_ray.config.placement import PlacementConfig
from c2b_ray.engine.machine import machine, on_this_machine
from c2b_ray.engine.progress import BusyClock, Part, Progress, ProgressCounter, timed, times_of
from c2b_ray.engine.rows import Outputs, SecondTable, WrittenPart, each_once, not_yet, write_part
from c2b_ray.engine.stage import (
    BLOCK_BYTES,
    Job,
    Prepare,
    Rows,
    StageConfig,
    StageResult,
    call_role,
    checked,
    cut,
    parts_of,
    prepared_in,
    record_stage,
    threads_of,
    write_stage,
)
from c2b_ray.models.devices import GpuMeter
from c2b_ray.models.pixels.resize import shaped
from c2b_ray.processes import Processes
from c2b_ray.roles import Shape
from c2b_ray.steps.prepared import PreparedView, prepared
from c2b_ray.storage.parts import Digests

R = TypeVar("R")


def answers_of_fed(batches: Iterator[pa.Table], job: Job[R], clock: BusyClock) -> Generator[pa.Table, None, None]:
    """Yields the step's answer to each batch, in the order of the batches; the processes are ahead by a few batches.

    They begin before the role is built. When closed early, it waits for the batches that are in the step.
    """
    assert job.prepare is not None
    placement = job.config.placement
    threads = threads_of(placement)
    capacity = placement.decoders + threads
    role: Future[R] = Future()
    waiting: deque[Future[pa.Table]] = deque()

    def step(futures: list[Future[pa.Table]], batch: pa.Table) -> pa.Table:
        prepared, seconds, started = times_of(futures.pop().result())
        clock.add("decoders", seconds, started)
        rows, model = checked(prepared, batch, job), role.result()
        del prepared
        with clock.at_work("threads", "model"):
            return _own(call_role(rows, job, model))

    with ExitStack() as stack:
        pool = stack.enter_context(Processes(partial(timed, prepare=job.prepare), placement.decoders, capacity + 1))
        steps = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="step"))
        try:
            for batch in batches:
                waiting.append(steps.submit(step, [pool.submit(batch)], batch))
                if len(waiting) > capacity:
                    _load(role, job)
                    yield waiting.popleft().result()
            while waiting:
                _load(role, job)
                yield waiting.popleft().result()
        finally:
            role.cancel()
            for future in waiting:
                future.cancel()


def _load(role: Future[R], job: Job[R]) -> None:
    if not role.done():
        role.set_result(job.role_factory())


def _own(answer: pa.Table) -> pa.Table:
    """Returns a copy of the answer, which holds no block of the prepared rows in memory."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answer.schema) as writer:
        writer.write_table(answer)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


# How a stage's pictures are prepared for its models, by processes that hold no model.


def preparing(shapes: Iterable[Shape | None], keep_bytes: bool = False) -> Prepare | None:
    """Returns a preparation of `bytes` for models of these shapes; None where no model takes prepared pictures.

    A shape that gives pictures of several sizes counts as none. The bytes stay where a model has none, or
    with `keep_bytes`.
    """
    views, all_usable = usable(shapes)
    return partial(prepared, views=views, keep_bytes=keep_bytes or not all_usable) if views else None


def usable(shapes: Iterable[Shape | None]) -> tuple[tuple[PreparedView, ...], bool]:
    """Returns how pictures can be prepared, each way once, and whether that is all that the models need."""
    shapes = list(shapes)
    distinct_shapes = dict.fromkeys(shape for shape in shapes if shape is not None and shape.frame is not None)
    # Of functions that import little, so that the processes start fast.
    return tuple(PreparedView(shape, shaped) for shape in distinct_shapes), all(
        shape in distinct_shapes for shape in shapes
    )


# Runs stages in this process, without Ray: for runs so small that starting Ray would take longer.


T = TypeVar("T")


class InProcess:
    """Runs stages in this process. An interrupt ends a stage at the next batch; answers up to then are kept."""

    def __init__(self, placement: PlacementConfig | None = None) -> None:
        self._placement = placement or PlacementConfig()
        self.loads_anew = False  # models stay in this process
        self.placements: dict[str, dict[str, Any]] = {}
        self.stages: dict[str, dict[str, Any]] = {}

    def check_paths(self, out: str | None, read: Mapping[str, str]) -> None:
        """Does nothing: all work is done in this process, so no other node has to see the paths."""

    def call(self, function: Callable[[], T], config: StageConfig) -> T:
        return function()

    def iterate(self, function: Callable[[], Iterator[T]], config: StageConfig) -> Iterator[T]:
        return function()

    def call_each(self, functions: Sequence[Callable[[], T]], config: StageConfig) -> list[T]:
        return [function() for function in functions]

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
        if config.stage is not None:
            placement = on_this_machine(config.stage, self._placement, machine(), prepare is not None, config.total)
            config = replace(config, placement=placement)
        job = Job(step, role_factory, id_column, config, prepare, also)
        return record_stage(self, config, write_stage(out, rows, job, on_progress, partial(_written, rows, job)))


def _written(
    rows: Rows, job: Job[R], outputs: Outputs, done: Digests, counter: ProgressCounter
) -> Generator[WrittenPart, None, None]:
    """Writes the answers in parts of `rows_per_file` rows, or fewer where these hold many bytes."""
    answers_held: list[pa.Table] = []
    rows_held = bytes_held = 0

    def write() -> WrittenPart:
        nonlocal rows_held, bytes_held
        table = pa.concat_tables(answers_held)
        answers_held.clear()
        rows_held = bytes_held = 0
        return write_part(table, outputs)

    size = job.config.rows_per_file
    with GpuMeter() as gpu, closing(_answers(_batches(rows, job, done), job, _clock(job, gpu), counter)) as answers:
        try:
            for answer in answers:
                if answers_held and rows_held + answer.num_rows > size:
                    yield write()
                answers_held.append(answer)
                rows_held, bytes_held = rows_held + answer.num_rows, bytes_held + answer.nbytes
                counter.answered(counter.rows, rows_held)
                counter.check()  # where the listener ends the work, at this batch
                if rows_held >= size or bytes_held > BLOCK_BYTES:
                    yield write()
        except BaseException:
            if answers_held:
                write()
            raise
    if answers_held:
        yield write()


def _answers(
    batches: Iterator[pa.Table], job: Job[R], clock: BusyClock, counter: ProgressCounter
) -> Generator[pa.Table, None, None]:
    """Yields the step's answer to each batch, in the order of the batches. Each thread steps one batch at a time.

    When closed early, it waits for the batches that are in the step and begins no other.
    """
    threads = _threads(job)
    counter.busy = clock.busy
    batches_read = _read_ahead(batches, partial(clock.at_work, "reader", "reading"))
    if job.config.placement.decoders and job.prepare is not None:
        with closing(batches_read), closing(answers_of_fed(batches_read, job, clock)) as answers:
            yield from answers
        return
    with closing(batches_read), ThreadPoolExecutor(threads, thread_name_prefix="step") as pool:
        steps: _Steps[R] | None = None  # a model is built for the first batch: where nothing is left to do, none is
        waiting: deque[Future[pa.Table]] = deque()
        try:
            for batch in batches_read:
                steps = steps or _Steps(job, job.role_factory(), clock)
                group = [batch, *islice(batches_read, steps.batches_at_once - 1)]
                futures: list[Future[pa.Table]] = [Future() for _ in group]
                waiting += futures
                pool.submit(steps.answer, group, futures)
                while len(waiting) > 2 * threads * steps.batches_at_once:
                    yield _first(waiting)
            while waiting:
                yield _first(waiting)
        finally:
            for future in waiting:
                future.cancel()


def _first(waiting: deque[Future[pa.Table]]) -> pa.Table:
    """Takes the first answer; an interrupt meanwhile leaves it among those that are cancelled."""
    answer = waiting[0].result()
    waiting.popleft()
    return answer


BATCHES_AT_ONCE = 2
"""Batches that a thread prepares at once, where that is fast and small: each preparation costs some 2 ms more than its
rows, which hold up the other threads too."""
FAST_S = 0.2
"""Seconds of a batch up to which several are prepared at once: an interrupt loses what is answered out of order."""
SMALL_BYTES = 10 * 2**20
"""Bytes of prepared batches up to which they are prepared at once: those of all threads fit the caches."""


class _Steps(Generic[R]):
    """Answers batches in several threads. `batches_at_once`: how many of them a thread should get at once."""

    def __init__(self, job: Job[R], role: R, clock: BusyClock) -> None:
        self.batches_at_once = 1
        self._job, self._role, self._clock = job, role, clock
        self._in_model = BoundedSemaphore(threads_of(job.config.placement))

    def answer(self, batches: Sequence[pa.Table], answers: Sequence[Future[pa.Table]]) -> None:
        """Sets the answer to each batch, in their order; of cancelled ones none is computed."""
        unanswered = list(answers)
        try:
            started = time.monotonic()
            if answers[0].cancelled():
                return
            rows, first = prepared_in(self._clock, pa.concat_tables(batches), self._job), 0
            for batch, future in zip(batches, answers, strict=True):
                if not future.set_running_or_notify_cancel():
                    return
                with self._in_model, self._clock.at_work("threads", "model"):
                    answer = call_role(rows.slice(first, batch.num_rows), self._job, self._role)
                future.set_result(answer)
                unanswered.remove(future)
                first += batch.num_rows
            is_fast = time.monotonic() - started <= FAST_S * len(batches)
            is_small = rows.nbytes * BATCHES_AT_ONCE <= SMALL_BYTES * len(batches)
            is_prepared = self._job.prepare is not None
            self.batches_at_once = BATCHES_AT_ONCE if is_prepared and is_fast and is_small else 1
        except BaseException as error:
            for future in unanswered:
                with suppress(InvalidStateError):  # cancelled meanwhile
                    future.set_exception(error)


def _threads(job: Job[R]) -> int:
    """Returns how many threads are in the step of a stage without processes that prepare: as many as call the model,
    and where they prepare too, one more. While one of them waits for a disk or for Python's lock, a core would idle."""
    return threads_of(job.config.placement) + (job.prepare is not None)


def _clock(job: Job[R], gpu: GpuMeter) -> BusyClock:
    """Returns a clock of the stage's workers: the thread that reads rows, and either processes that decode and threads
    that answer, or threads that do both."""
    placement, parts = job.config.placement, parts_of(job)
    workers: dict[str, tuple[int, tuple[Part, ...]]] = {"reader": (1, ("reading",))}
    if job.prepare is not None and placement.decoders:
        workers["decoders"], parts = (placement.decoders, ("reading", "decoding")), ("model",)
        workers["threads"] = threads_of(placement), parts
    else:
        workers["threads"] = _threads(job), parts
    return BusyClock(workers, lambda: gpu.mean)


def _batches(rows: Rows, job: Job[R], done: Digests) -> Iterator[pa.Table]:
    """Yields the rows that are not done in batches for the step: small tables of a source are joined, large
    ones cut."""
    size = job.config.placement.batch * threads_of(job.config.placement)
    pending: list[pa.Table] = []
    for table in rows.tables():
        for start in range(0, table.num_rows, size):
            part = not_yet(table.slice(start, size), job.id_column, done)
            if not part.num_rows:
                continue  # nothing is held for rows that are done: a resumed stage may have millions
            pending.append(part)
            count, held_bytes = (sum(getattr(part, measure) for part in pending) for measure in ("num_rows", "nbytes"))
            if count >= size or held_bytes > BLOCK_BYTES:
                combined = pa.concat_tables(pending)
                yield from cut(each_once(combined.slice(0, size), job.id_column), job.config)
                pending = [combined.slice(size)]
    remainder = pa.concat_tables(pending) if pending else None
    if remainder is not None and remainder.num_rows:
        yield from cut(each_once(remainder, job.id_column), job.config)


def _read_ahead(items: Iterator[T], at_work: Callable[[], AbstractContextManager[None]]) -> Generator[T, None, None]:
    """Yields the items. A thread reads the next one while this one is used; `at_work` wraps each read."""

    def read() -> T | None:
        with at_work():
            return next(items, None)

    with ThreadPoolExecutor(1, thread_name_prefix="read") as reader:
        future = reader.submit(read)
        while (item := future.result()) is not None:
            future = reader.submit(read)
            yield item
