"""A job's process, as its runner handles it: starts it, sends and receives messages, measures CPU time, and kills it.

It knows pipes and signals, neither jobs nor the ledger.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from pydantic import BaseModel

from c2b_ray.endpoint.work.protocol import (
    LONGEST_LINE,
    Ended,
    MayCommit,
    ProtocolError,
    StepReport,
    from_child,
    line,
)

COMMAND = (sys.executable, "-m", "c2b_ray.endpoint.work.child")
_TICKS = os.sysconf("SC_CLK_TCK")
Said = StepReport | MayCommit | Ended


class JobProcess:
    """A process that waits for its job or works on it. `folder`: its working directory, which is removed with it.
    `log`: where its output goes; None: where the runner's goes."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str], folder: str, log: IO[bytes] | None) -> None:
        self._process = subprocess.Popen(  # noqa: S603 — no shell, and the runner's own command
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,  # so that all it starts can be killed, and Ctrl-C does not reach it
        )
        self.pid, self._folder = self._process.pid, folder
        self._said: queue.Queue[Said | ProtocolError | None] = queue.Queue(1000)
        self._sending = threading.Lock()
        self._usage: float | None = None
        self._most = 0.0
        threading.Thread(target=self._read, daemon=True, name=f"job process {self.pid}").start()

    def send(self, message: BaseModel) -> None:
        """Sends a message; does nothing if the process is gone."""
        assert self._process.stdin is not None
        with self._sending, contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(line(message))
            self._process.stdin.flush()

    def hear(self, seconds: float) -> Said | None:
        """Returns the next message; None if none arrives within `seconds`.

        Raises EOFError if the process is gone, ProtocolError if it sent something else.
        """
        try:
            said = self._said.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(said, ProtocolError):
            raise said
        if said is None:
            raise EOFError
        return said

    def kill(self) -> int:
        """Kills the process and all that it started. Returns its exit status: the negative signal number if a signal
        ended it. A second call returns the same."""
        if self._process.returncode is None:
            self.send_kill()
        return self.reap()

    def reap(self, seconds: float | None = None) -> int:
        """Waits for the end of the process, kills it after `seconds`, and returns its exit status."""
        if self._process.returncode is not None:
            return int(self._process.returncode)
        timer = threading.Timer(seconds or 0.0, self.send_kill)
        if seconds is not None:
            timer.start()
        try:
            self.cpu_seconds()
            _, status, usage = os.wait4(self.pid, 0)
        finally:
            timer.cancel()
        self._usage = usage.ru_utime + usage.ru_stime
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self.send_kill()  # processes that it left behind
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        return int(self._process.returncode)

    def send_kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def cpu_seconds(self) -> float:
        """Returns the CPU seconds of the process and of all that it started, so far; never less than the last call."""
        self._most = max(self._most, self._usage or 0.0)
        if self._usage is None:
            self._most = max(self._most, sum(_seconds_of_session(self.pid)))
        return self._most

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            while data := stream.readline(LONGEST_LINE):
                try:
                    self._said.put(from_child(data))
                except ProtocolError as error:
                    self._said.put(error)
                    break
        self._said.put(None)


def _seconds_of_session(leader: int) -> Iterator[float]:
    """Yields the CPU seconds of each process of a session, its ended children included; nothing without /proc."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == leader:
            yield sum(int(ticks) for ticks in fields[11:15]) / _TICKS
