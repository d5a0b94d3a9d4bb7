"""Answers of a stage in this process to rows that worker processes prepare.

    a thread reads rows │ processes prepare them, a batch each │ threads are in the step, a batch each

This process, which holds the model, touches a picture only as part of a block in shared memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import pyarrow as pa

from c2b_ray.engine.progress import BusyClock, timed, times_of
from c2b_ray.engine.stage import Job, Prepare, call_role, checked, threads_of
from c2b_ray.models.pixels.shape import shaped
from c2b_ray.processes.pool import Processes
from c2b_ray.roles import Shape
from c2b_ray.steps.prepared import PreparedView, prepared

R = TypeVar("R")


def answers_of_fed(batches: Iterator[pa.Table], job: Job[R], clock: BusyClock) -> Generator[pa.Table, None, None]:
    """Yields the step's answer to each batch, in the order of the batches; the processes are ahead by a few batches.

    They begin before the role is built. When closed early, it waits for the batches that are in the step.
    """
    assert job.prepare is not None
    placement = job.config.placement
    threads = threads_of(placement)
    most = placement.decoders + threads
    role: Future[R] = Future()
    waiting: deque[Future[pa.Table]] = deque()

    def step(coming: list[Future[pa.Table]], batch: pa.Table) -> pa.Table:
        prepared, seconds, began = times_of(coming.pop().result())
        clock.add("decoders", seconds, began)
        rows, model = checked(prepared, batch, job), role.result()
        del prepared
        with clock.at_work("threads", "model"):
            return _own(call_role(rows, job, model))

    with ExitStack() as stack:
        pool = stack.enter_context(Processes(partial(timed, prepare=job.prepare), placement.decoders, most + 1))
        steps = stack.enter_context(ThreadPoolExecutor(threads, thread_name_prefix="step"))
        try:
            for batch in batches:
                waiting.append(steps.submit(step, [pool.submit(batch)], batch))
                if len(waiting) > most:
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
    views, every = usable(shapes)
    return partial(prepared, views=views, keep_bytes=keep_bytes or not every) if views else None


def usable(shapes: Iterable[Shape | None]) -> tuple[tuple[PreparedView, ...], bool]:
    """Returns how pictures can be prepared, each way once, and whether that is all that the models need."""
    shapes = list(shapes)
    known = dict.fromkeys(shape for shape in shapes if shape is not None and shape.frame is not None)
    # Of functions that import little, so that the processes start fast.
    return tuple(PreparedView(shape, shaped) for shape in known), all(shape in known for shape in shapes)
