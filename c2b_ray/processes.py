"""Calls a function on tables in worker processes; the results are read from shared memory, uncopied.

    submit(table) → a worker calls function(table) → shared memory → the table that the future returns

A worker starts where one is needed, in a fraction of a second: it imports what the function needs, not the program's
main module. Workers end with the pool, and with the process that owns it, also where that is killed. A worker that dies
over a table is replaced, and the table's rows are tried again one by one; a row over which others die too is called
with an `error`, which the function takes as a reason not to open the row. One that was killed from outside, as by a
system that wants its memory, says little about the row: more of them have to die.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection
from queue import SimpleQueue
from socket import socketpair
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from c2b_ray.errors import ServiceError

Function = Callable[[pa.Table], pa.Table]
_PROGRAM = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); import c2b_ray.processes as w; w.main()"
_ENDS_WITHIN_S = 2.0
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Of each worker: there is one for each core. OpenBLAS would start as many threads in each, of which every one computes
nothing for a tenth of a second when the worker starts."""
TRIES_ALONE = 2
"""How many processes may crash over a row that is alone: something else may have ended the first."""
TRIES_KILLED = 8
"""How many may be killed from outside over a row that is alone, or while they start."""
TRIES_MARKED = 5


_NO_ROOM = "SIGBUS"
"""Ends a process that writes into mapped memory for which the system has no room, or no disk."""


class _Died(Exception):
    """The worker is gone; the message says how it ended. `killed`: whether from outside."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.killed = how in ("SIGKILL", "SIGTERM", _NO_ROOM)


class _Cannot(Exception):
    """No worker can load the function; the message says why."""


class Processes:
    """Up to `workers` processes that call `function`, with at most `ahead` results that nobody has dropped.

    `cannot`: why no other process can load the function, or None; threads of this one then call it.

    `submit` waits while there are so many: a result counts until the table is dropped with all that was taken from it
    uncopied. Results have to be dropped in the order in which they were asked for.
    """

    def __init__(
        self,
        function: Function,
        workers: int,
        ahead: int,
        dumps: Callable[[Any], bytes] = pickle.dumps,
    ) -> None:
        self._function, self._pickled = function, b""
        self.cannot: str | None = None
        try:
            self._pickled = dumps(function)
        except Exception as error:  # whatever its parts raise
            self.cannot = f"{type(error).__name__}: {error}"
        self._memory = [_Slot(number) for number in range(ahead)]
        self._free: SimpleQueue[_Slot] = SimpleQueue()
        for slot in self._memory:
            self._free.put(slot)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="prepare")
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._closed = False

    def submit(self, table: pa.Table) -> Future[pa.Table]:
        """Has a worker call the function on a table. What it raises there, the future raises."""
        slot = self._free.get()
        try:
            return self._threads.submit(self._called, table, slot)
        except BaseException:
            self._free.put(slot)
            raise

    def close(self) -> None:
        """Ends the workers, also those at work, and drops what waits."""
        with self._lock:
            self._closed = True
            workers = list(self._all)
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.end()
        self._threads.shutdown(wait=True)
        for slot in self._memory:
            slot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _called(self, table: pa.Table, slot: _Slot) -> pa.Table:
        is_lent = False
        try:
            if self.cannot is None:
                try:
                    size = self._once(table, slot)
                    is_lent = True
                    return slot.read(size, self._free)
                except _Cannot as reason:
                    self.cannot = str(reason)
                except _Died:
                    return self._one_by_one(table, slot)
            return self._function(table)
        finally:
            if not is_lent:
                self._free.put(slot)

    def one_by_one(self, table: pa.Table) -> pa.Table:
        """Returns the function of each row of a table over which a process has died. Raises ServiceError where no
        other process can load the function."""
        slot = self._free.get()
        try:
            return self._one_by_one(table, slot)
        except _Cannot as reason:
            raise ServiceError(f"a process that opened images died, and none can take its place: {reason}") from None
        finally:
            self._free.put(slot)

    def _one_by_one(self, table: pa.Table, slot: _Slot) -> pa.Table:
        results = [slot.copied(self._alone(table.slice(i, 1), slot)) for i in range(table.num_rows)]
        return pa.concat_tables(results, promote_options="default")  # a row with an error may have a column more

    def _alone(self, row: pa.Table, slot: _Slot) -> int:
        crashed = killed = 0
        while crashed < TRIES_ALONE and killed < TRIES_KILLED:
            try:
                return self._once(row, slot)
            except _Died as death:
                end, killed, crashed = death, killed + death.killed, crashed + (not death.killed)
        row_with_error = _marked(row, f"the process that opened it died ({end}), also when it was alone")
        for _ in range(TRIES_MARKED):  # what ends a process now is not the row
            with suppress(_Died):
                return self._once(row_with_error, slot)
        raise ServiceError(
            f"processes that open images are ended again and again ({end}), most often for want of memory{_files()}"
        )

    def _once(self, table: pa.Table, slot: _Slot) -> int:
        """Has one worker call the function; returns the size of the result. Raises what the function raises, or
        _Died."""
        worker = self._worker()
        try:
            kind, value = worker.call(table, slot.number)
        except _Died:
            with self._lock:
                self._all.discard(worker)
            worker.end()
            raise
        with self._lock:
            self._idle.append(worker)
        if kind == "raised":
            raise value
        return int(value)

    def _worker(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            if self.cannot is not None:
                raise _Cannot(self.cannot)
            if self._idle:
                return self._idle.pop()
        for _ in range(TRIES_KILLED):
            try:
                return self._started()
            except _Died as death:
                reason = death
                if not death.killed:
                    break
        raise _Cannot(str(reason))

    def _started(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            worker = _Worker(self._pickled, self._memory)
            self._all.add(worker)
        try:
            worker.wait_until_ready()
        except (_Died, _Cannot):
            with self._lock:
                self._all.discard(worker)
            worker.end()
            raise
        return worker


class _Slot:
    """Memory without a name, which workers write a result into and this process maps."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.descriptor = _unnamed(number)
        self._mapped: mmap.mmap | None = None

    def read(self, size: int, free: SimpleQueue[_Slot]) -> pa.Table:
        """Returns the table in the first `size` bytes, uncopied; when nobody holds any of it, the slot is free
        again."""
        if self._mapped is None or len(self._mapped) < size:
            self._mapped = mmap.mmap(self.descriptor, 0)
        view = np.frombuffer(self._mapped, np.uint8, size)
        weakref.finalize(view, free.put, self).atexit = False  # reentrant: a finalizer may run anywhere
        return pa.ipc.open_stream(pa.py_buffer(view)).read_all()

    def copied(self, size: int) -> pa.Table:
        with mmap.mmap(self.descriptor, 0) as mapped:
            return pa.ipc.open_stream(mapped[:size]).read_all()

    def close(self) -> None:
        os.close(self.descriptor)  # the memory goes with the last table that is in it


def _files() -> str:
    """Returns what else may be full, for messages: a disk, where results are handed over through deleted files."""
    return "" if hasattr(os, "memfd_create") else f", or of room in {tempfile.gettempdir()}"


def _unnamed(number: int) -> int:
    """Returns the descriptor of memory without a name; of a deleted temporary file where the system, such as macOS, has
    none."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"c2b-{number}", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class _Worker:
    """A worker process, which one thread at a time uses."""

    def __init__(self, function: bytes, slots: list[_Slot]) -> None:
        parent_end, child_end = socketpair()
        with child_end:
            memory = [slot.descriptor for slot in slots]
            arguments = [json.dumps(sys.path), str(os.getpid()), str(child_end.fileno()), json.dumps(memory)]
            self._process = subprocess.Popen(  # noqa: S603 (of this interpreter and package)
                [sys.executable, "-c", _PROGRAM, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD},
                pass_fds=(child_end.fileno(), *memory),
            )
        self._connection = Connection(parent_end.detach())
        self._function = function

    def wait_until_ready(self) -> None:
        """Raises _Cannot where it cannot load the function."""
        kind, reason = self._exchange(self._function)
        if kind != "ready":
            raise _Cannot(reason)

    def call(self, table: pa.Table, slot: int) -> tuple[str, Any]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return self._exchange(pickle.dumps(slot), sink.getvalue())

    def end(self) -> None:
        with suppress(OSError):
            self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS_WITHIN_S)
        with suppress(OSError):
            self._connection.close()

    def _exchange(self, *messages: Any) -> tuple[str, Any]:
        try:
            for message in messages:
                self._connection.send_bytes(message)
            answer: tuple[str, Any] = self._connection.recv()
        except (EOFError, OSError):
            raise _Died(self._how()) from None
        return answer

    def _how(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_ENDS_WITHIN_S)
            if code < 0:
                with suppress(ValueError):
                    return signal.Signals(-code).name
            return f"exit status {code}"
        return "it closed its connection"


def _marked(row: pa.Table, reason: str) -> pa.Table:
    """Returns a row with an error."""
    column = pa.array([reason] * row.num_rows, pa.string())
    index = row.schema.get_field_index("error")
    return row.append_column("error", column) if index < 0 else row.set_column(index, "error", column)


# The program of a worker process: it loads a function, and calls it on each table that comes.


ROUNDED_TO = 1 << 20
MOST_KEPT = 1 << 30
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -3, -1
_MOST_BEFORE_2_35 = 32 << 20
"""The most that GNU's C library accepted as a threshold of `mmap` before version 2.35."""
LOOKS_EVERY_S = 1.0


def main() -> None:
    """Serves until the connection ends. Arguments: the parent's process id, the connection's file descriptor, and a
    JSON list of those of the shared memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent decides what it means
    parent, descriptor, slots = (json.loads(argument) for argument in sys.argv[1:4])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    pa.set_cpu_count(1)
    _without_pandas()
    keep_memory()
    try:
        _serve(Connection(descriptor), slots)
    except (EOFError, OSError):  # the parent has closed the connection, or is gone
        os._exit(0)


@cache
def keep_memory() -> None:
    """Makes this process, which does little but prepare batches, keep what it frees, for the next batch: the system
    would take it back, and clear every page of it anew.
    """
    with suppress(OSError, AttributeError):  # only GNU's C library has this call
        libc = ctypes.CDLL("libc.so.6")
        if not libc.mallopt(_M_MMAP_THRESHOLD, MOST_KEPT):
            libc.mallopt(_M_MMAP_THRESHOLD, _MOST_BEFORE_2_35)
        libc.mallopt(_M_TRIM_THRESHOLD, MOST_KEPT)


class _NoPandas:
    """An import hook that makes pandas appear not to be installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ImportError("not for PyArrow")


def _without_pandas() -> None:
    """Makes PyArrow do without pandas in this process. PyArrow imports it for the first array made of a list, which
    would take a third of the time in which a worker starts."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])  # PyArrow looks once, and remembers
    finally:
        sys.meta_path.remove(finder)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOKS_EVERY_S)
    os._exit(0)


def _serve(connection: Connection, slots: list[int]) -> None:
    try:
        function = pickle.loads(connection.recv_bytes())  # noqa: S301 (of the process that started this one)
    except (EOFError, OSError):
        raise
    except Exception as error:
        connection.send(("cannot", f"{type(error).__name__}: {error}"))
        return
    connection.send(("ready", None))
    memory = [SharedMemory(descriptor) for descriptor in slots]
    while True:
        number = connection.recv()
        rows = pa.ipc.open_stream(connection.recv_bytes()).read_all()
        connection.send(_answer(function, rows, memory[number]))


def _answer(function: Callable[[pa.Table], pa.Table], rows: pa.Table, memory: SharedMemory) -> tuple[str, Any]:
    try:
        return "done", memory.write(function(rows))
    except BaseException as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return "raised", error


class SharedMemory:
    """Memory that tables are written into, each over the one before. It stays mapped: to map it anew for each table
    would cost as much as to write it, a page at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mapped: mmap.mmap | None = None

    def write(self, table: pa.Table) -> int:
        """Writes a table, for which the memory grows where it is too small; returns the number of bytes."""
        counter = pa.MockOutputStream()
        _stream(table, counter)
        size = int(counter.size())
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(self._of(size)))
        _stream(table, sink)
        sink.close()
        return size

    def _of(self, size: int) -> mmap.mmap:
        """Returns the memory, of this size at least: another process may have made it larger."""
        file_size = os.fstat(self._descriptor).st_size
        if file_size < size:
            file_size = -(-size // ROUNDED_TO) * ROUNDED_TO
            os.ftruncate(self._descriptor, file_size)
        if self._mapped is None or len(self._mapped) < size:
            self._mapped = mmap.mmap(self._descriptor, file_size)
        return self._mapped


def _stream(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
