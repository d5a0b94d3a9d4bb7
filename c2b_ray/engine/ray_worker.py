"""An actor of a stage's pool in Ray, and the messages between it and the driver."""

from __future__ import annotations

import functools
import pickle
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, ParamSpec, TypeVar

import pyarrow as pa
import ray
import ray.exceptions
from ray import cloudpickle
from ray.experimental import internal_kv

from c2b_ray.engine.placement import Placement
from c2b_ray.engine.progress import BusyClock, Record, timed, times_of
from c2b_ray.engine.rows import Outputs, each_once, ids_of
from c2b_ray.engine.stage import Job, answered_in, checked, cut, parts_of, threads_of
from c2b_ray.errors import C2BError, ServiceError
from c2b_ray.models import devices
from c2b_ray.models.devices import GpuMeter
from c2b_ray.processes import Processes, keep_memory
from c2b_ray.roles import Remote
from c2b_ray.storage.parts import digests

# Messages between a stage's processes and its driver while it runs: answered rows, time, deaths, the signal to
# stop.


NAMESPACE = "c2b_ray"
EVERY_S = 0.5
LOADING = "loading"


class StageStopped(Exception):
    """Raised where the driver has ended the stage: no more batches are to be computed."""


@dataclass(frozen=True)
class Reports:
    """The reports of one stage, named `stage`. It can be sent to workers."""

    stage: str

    # The driver's side.

    def open_rows(self) -> int:
        """Returns the number of answered rows in blocks that no process has finished yet."""
        return sum(int(internal_kv._internal_kv_get(key, namespace=NAMESPACE) or 0) for key in self._keys("open"))

    def records(self) -> list[Record]:
        """Returns what each process has reported of the time that it spent."""
        stored = (internal_kv._internal_kv_get(key, namespace=NAMESPACE) for key in self._keys("busy"))
        return [Record.loads(value) for value in stored if value]

    def stop(self) -> None:
        """Ends every process of the stage after its current batch."""
        self._put("stop", "")

    def clear(self) -> None:
        """Deletes the stage's messages except the signal to stop: a process on another node may still be at work."""
        for kind in ("open", "busy", "at", "death", "attempt"):
            internal_kv._internal_kv_del(f"{self.stage}/{kind}/", del_by_prefix=True, namespace=NAMESPACE)

    # A process's side.

    def stopped(self) -> bool:
        return bool(internal_kv._internal_kv_exists(f"{self.stage}/stop", namespace=NAMESPACE))

    def put_open(self, process: str, rows: int) -> None:
        self._put(f"open/{process}", str(rows))

    def put_record(self, process: str, record: Record) -> None:
        """Notes the time that this process has spent."""
        self._put(f"busy/{process}", record.dumps())

    def begin(self, process: str, what: str) -> None:
        """Notes what this process works on. If it dies, its successor reads that here."""
        self._put(f"at/{process}/{what}", "")

    def end(self, process: str, what: str) -> None:
        internal_kv._internal_kv_del(f"{self.stage}/at/{process}/{what}", namespace=NAMESPACE)

    def deaths_before(self, process: str) -> dict[str, int]:
        """Returns what the predecessor of this process worked on when it died, and how often that work has killed a
        process of the stage, on any node.

        A predecessor is a process that Ray restarted under the same name. Empty at a first start.
        """
        counts = {}
        for key in self._keys(f"at/{process}"):
            work = key.rpartition("/")[2]
            self._put(f"death/{work}/{uuid.uuid4().hex}", "")
            counts[work] = len(self._keys(f"death/{work}"))
            self.end(process, work)
        return counts

    def attempt(self, what: str) -> int:
        """Notes that a task begins `work`; returns how many tasks began it before and did not succeed: they died."""
        attempts = len(self._keys(f"attempt/{what}"))
        self._put(f"attempt/{what}/{uuid.uuid4().hex}", "")
        return attempts

    def succeeded(self, what: str) -> None:
        internal_kv._internal_kv_del(f"{self.stage}/attempt/{what}/", del_by_prefix=True, namespace=NAMESPACE)

    def forgive(self, what: str) -> None:
        """Deletes the deaths at `work`, which has succeeded since."""
        internal_kv._internal_kv_del(f"{self.stage}/death/{what}/", del_by_prefix=True, namespace=NAMESPACE)

    def _put(self, key: str, value: str) -> None:
        internal_kv._internal_kv_put(f"{self.stage}/{key}", value, namespace=NAMESPACE)

    def _keys(self, kind: str) -> list[str]:
        return [key.decode() for key in internal_kv._internal_kv_list(f"{self.stage}/{kind}/", namespace=NAMESPACE)]


class Reporter:
    """One process's reports: how many rows it has answered, what it works on, and whether it has to stop."""

    def __init__(self, reports: Reports, process: str, most_deaths: int, record: Callable[[], Record]) -> None:
        """`record`: returns the time that this process has spent. Raises ServiceError where the work at which its
        predecessors died has killed more than `most_deaths` processes."""
        self._reports, self._process, self._record = reports, process, record
        self._lock = threading.Lock()
        self._open, self._reported_at, self._stopped = 0, 0.0, False
        deaths = reports.deaths_before(process)
        reports.put_open(process, 0)
        for work, count in deaths.items():
            if count > most_deaths:
                when = "while it loaded" if work == LOADING else "over the same rows"
                raise ServiceError(
                    f"the process that runs the model died {count} times {when}, most often for want of memory; make "
                    "batches smaller or give it more memory, and run again to go on"
                )

    @contextmanager
    def loading(self) -> Iterator[None]:
        with self._at(LOADING):
            yield
        self._reports.forgive(LOADING)

    @contextmanager
    def block(self, name: str, rows: int) -> Iterator[None]:
        """Wraps the work on a block of `rows` rows. When it ends, all are answered and leave the count of open rows."""
        self._look()
        with self._at(name):
            yield
        with self._lock:
            self._open -= rows
            remaining = self._open
        # Before the block leaves, so that the driver never counts its rows twice.
        self._reports.put_open(self._process, remaining)
        self._reports.put_record(self._process, self._record())

    @contextmanager
    def _at(self, work: str) -> Iterator[None]:
        self._reports.begin(self._process, work)
        try:
            yield
        finally:  # also where it raises, which is not a death
            self._reports.end(self._process, work)

    def answered(self, rows: int) -> None:
        """Counts the rows of a batch that was answered. Raises Stopped where the driver has ended the stage."""
        with self._lock:
            self._open += rows
            if time.monotonic() - self._reported_at < EVERY_S:
                return
            self._reported_at = time.monotonic()
            waiting = self._open
        self._reports.put_open(self._process, waiting)
        self._reports.put_record(self._process, self._record())
        self._look()

    def check(self) -> None:
        """Raises Stopped where this process already knows that the driver has ended the stage. Called before each
        batch; costs nothing."""
        if self._stopped:
            raise StageStopped

    def _look(self) -> None:
        self._stopped = self._stopped or self._reports.stopped()
        self.check()


# Carries exceptions from Ray Data's workers to the driver, as they were raised.


P = ParamSpec("P")
T = TypeVar("T")


class CarriedError(Exception):
    """Carries a pickled exception. `advice`: what Ray appends to the arguments of an exception that it passes on."""

    def __init__(self, payload: bytes, *advice: object) -> None:
        super().__init__(payload, *advice)
        self.payload = payload


def carried(function: Callable[P, T]) -> Callable[P, T]:
    """Wraps `function` so that its exceptions reach the driver as they were raised."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise CarriedError(_packed(error)) from None

    return call


def carried_rows(function: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """Wraps a generator function as `carried` wraps a function."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from function(*args, **kwargs)
        except Exception as error:
            raise CarriedError(_packed(error)) from None

    return call


def as_raised(error: ray.exceptions.RayError) -> Exception:
    """Returns the exception that a worker raised; a ServiceError for what happened to Ray itself."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, CarriedError):
        return _unpacked(cause.payload)
    if isinstance(cause, Exception) and not isinstance(cause, ray.exceptions.RayError):  # of the source's own workers
        cause.add_note(str(error))
        return cause
    first_line = str(error).strip().partition("\n")[0]
    return ServiceError(f"Ray stopped the stage: {first_line}; what is written is kept, run again to go on")


def _packed(error: Exception) -> bytes:
    """Pickles type, arguments and attributes, which works also for exceptions whose constructor takes other
    arguments."""
    trace = "".join(traceback.format_exception(error))
    if not isinstance(error, C2BError):  # a bug: where it was raised is what is wanted
        error.add_note("In a worker of Ray:\n" + trace)
    try:
        data = pickle.dumps((type(error), error.args, vars(error)))
        _unpacked(data)
    except Exception:  # of a class, or with a value, that cannot leave its process
        return pickle.dumps((RuntimeError, (trace,), {}))
    return data


def _unpacked(data: bytes) -> Exception:
    kind, args, attributes = pickle.loads(data)  # noqa: S301  # written by our own worker
    error: Exception = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(attributes)
    return error


R = TypeVar("R")


@dataclass(frozen=True)
class Assignment(Generic[R]):
    """What is sent to the workers."""

    job: Job[R]
    to: Outputs
    reports: Reports


def _threads(placement: Placement, role: object) -> int:
    """Returns the placement's threads, or as many as a role that computes elsewhere takes calls, if more: those threads
    wait."""
    threads = threads_of(placement)
    return max(threads, role.calls_at_once) if isinstance(role, Remote) else threads


class Worker(Generic[R]):
    """An actor of the pool: the role, built once, and the step."""

    def __init__(self, assignment: Assignment[R]) -> None:
        self._job = job = assignment.job
        self._error: Exception | None = None
        try:
            # Ray 2.60 replaces dead actors without end, also those that a row or a model that does not fit kills each
            # time, and its own limit (max_restarts) is deprecated for map_batches. An actor keeps its id then.
            name = ray.get_runtime_context().get_actor_id() or ""
            self._reporter = Reporter(assignment.reports, name, job.config.restarts, lambda: self._clock.record())
            # Ray hides no GPU from an actor that has none.
            devices.assign(ray.get_gpu_ids(), job.config.placement.computing)
            with self._reporter.loading():
                self._role = job.role_factory()
            threads = _threads(job.config.placement, self._role)
            self._gpu = GpuMeter().start()  # until the process ends
            self._clock = BusyClock({"threads": (threads, parts_of(job))}, lambda: self._gpu.mean)
            self._pool = ThreadPoolExecutor(threads, thread_name_prefix="step")
        except Exception as error:  # raised at the first batch: Ray does not pass on why an actor failed to start
            self._error = error

    @carried
    def __call__(self, block: pa.Table) -> pa.Table:
        if self._error is not None:
            raise self._error
        block = each_once(block, self._job.id_column)
        with self._reporter.block(_name(block, self._job.id_column), len(ids_of(block, self._job.id_column))):
            return pa.concat_tables(self._pool.map(self._answered, cut(block, self._job.config)))

    def _answered(self, batch: pa.Table) -> pa.Table:
        self._reporter.check()
        answer = answered_in(self._clock, batch, self._job, self._role)
        self._reporter.answered(answer.num_rows)
        return answer


@carried
def prepared_there(block: pa.Table, assignment: ray.ObjectRef[Assignment[R]]) -> pa.Table:
    """Prepares a block, in a task. Where a task has died over it before, a process of the task's own takes the risk:
    a row over which that dies too becomes an error."""
    assigned = ray.get(assignment)
    job, name = assigned.job, f"prepare-{_name(block, assigned.job.id_column)}"
    died_before = assigned.reports.attempt(name)
    if died_before and job.prepare is not None:
        with Processes(job.prepare, 1, 1, cloudpickle.dumps) as process:
            rows = checked(process.one_by_one(block), block, job)
    elif job.prepare is not None:
        keep_memory()
        rows, seconds, started = times_of(timed(block, job.prepare))
        _clock_of(assigned.reports.stage).add("decoders", seconds, started)
        assigned.reports.put_record(_PROCESS, _clock_of(assigned.reports.stage).record())
        rows = checked(rows, block, job)
    else:
        rows = block
    assigned.reports.succeeded(name)
    return rows


_PROCESS = uuid.uuid4().hex
"""A name of this process among all that prepare rows."""


@lru_cache(1)
def _clock_of(stage: str) -> BusyClock:
    return BusyClock({"decoders": (1, ("reading", "decoding"))})


def _name(block: pa.Table, id_column: str) -> str:
    """Returns a name for the block that is the same in every process that gets these rows."""
    first = digests(ids_of(block.slice(0, 1), id_column).slice(0, 1))
    return f"{first[0].hex() if len(first) else 'none'}-{block.num_rows}"
