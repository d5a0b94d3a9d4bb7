"""The program of a worker process: it loads a function, and calls it on each table that comes.

It is started by `pool`, without the main module of the program that started it, and ends with that program, whatever
ends it. Results go into memory that both processes map and that has no name, so nothing is left when both are gone.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

ROUNDED_TO = 1 << 20
LOOKS_EVERY_S = 1.0


def main() -> None:
    """Serves until the connection ends. Arguments: the parent's process id, the connection's file descriptor, and a
    JSON list of those of the shared memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent decides what it means
    parent, descriptor, slots = (json.loads(argument) for argument in sys.argv[1:4])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    pa.set_cpu_count(1)
    _without_pandas()
    try:
        _serve(Connection(descriptor), slots)
    except (EOFError, OSError):  # the parent has closed the connection, or is gone
        os._exit(0)


class _NoPandas:
    """An import hook by which pandas seems not to be installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ImportError("not for PyArrow")


def _without_pandas() -> None:
    """Has PyArrow do without pandas in this process. It imports it at the first array that it makes of a list, which
    would take a third of the time in which a worker starts."""
    hook = _NoPandas()
    sys.meta_path.insert(0, hook)
    try:
        pa.array([None])  # PyArrow looks once, and remembers
    finally:
        sys.meta_path.remove(hook)


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
    while True:
        number = connection.recv()
        rows = pa.ipc.open_stream(connection.recv_bytes()).read_all()
        connection.send(_answer(function, rows, slots[number]))


def _answer(function: Callable[[pa.Table], pa.Table], rows: pa.Table, slot: int) -> tuple[str, Any]:
    try:
        return "done", write(function(rows), slot)
    except BaseException as error:
        try:
            pickle.loads(pickle.dumps(error))  # noqa: S301
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return "raised", error


def write(table: pa.Table, slot: int) -> int:
    """Writes a table into shared memory, which grows where it is too small; returns the number of bytes."""
    counted = pa.MockOutputStream()
    _stream(table, counted)
    size = counted.size()
    if os.fstat(slot).st_size < size:
        os.ftruncate(slot, -(-size // ROUNDED_TO) * ROUNDED_TO)
    with mmap.mmap(slot, 0) as memory:
        sink = pa.FixedSizeBufferWriter(pa.py_buffer(memory))
        _stream(table, sink)
        sink.close()
        del sink
    return int(size)


def _stream(table: pa.Table, sink: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
