"""Ends the work of a job's process when its runner orders it, or when nobody holds the job any more.

    order (cancel, yield)      the listener raises `Stopped` at the next event; if none comes within `GRACE_S`, it is
                               raised in the main thread, like a Ctrl-C
    the lease runs out         the process ends at once, because another runner may have the job by now
    commit                     asks the runner, which asks the ledger; the process ends if it is refused or unanswered

It knows pipes and clocks, not the work.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from c2b_ray.endpoint.clocks import now
from c2b_ray.endpoint.work.protocol import Ending, MayCommit

GRACE_S = 2.0
FENCED_STATUS = 75
"""Exit status of a process that ended because it no longer holds its job."""


class Stopped(BaseException):
    """Ends the work like an interrupt: answers so far are written, and nothing new begins."""

    def __init__(self, how: Ending) -> None:
        super().__init__(how)
        self.how: Ending = how


class Leash:
    """Knows how long this process may work, and whether it must end. `send`: sends a message to the runner."""

    def __init__(self, until: float, send: Callable[[MayCommit], None]) -> None:
        self._until = until
        self._send = send
        self._wanted: Ending | None = None
        self._raised = False
        self._started = False
        self._numbers = itertools.count()
        self._waiting: dict[int, threading.Event] = {}
        self._granted: set[int] = set()

    @property
    def lapsed(self) -> bool:
        return now() >= self._until

    def start(self) -> None:
        """Starts watching. Call it in the main thread, which the process interrupts by a signal to itself."""
        signal.signal(signal.SIGUSR1, self._interrupted)
        self._started = True
        threading.Thread(target=self._watch, daemon=True, name="leash").start()

    def hold(self, until: float) -> None:
        self._until = until

    def order(self, how: Ending) -> None:
        """Takes an order. A cancellation replaces a yield, but not the reverse."""
        if self._wanted is None:
            self._wanted = how
            if self._started:
                timer = threading.Timer(GRACE_S, os.kill, (os.getpid(), signal.SIGUSR1))
                timer.daemon = True
                timer.start()
        elif how == "cancelled":
            self._wanted = how

    def check(self) -> None:
        """Raises `Stopped` if the work must end. Called at each batch, in any thread."""
        if self._wanted is not None:
            # In another thread the exception may be kept for later; then the main thread must still be interrupted.
            self._raised = threading.current_thread() is threading.main_thread()
            raise Stopped(self._wanted)

    def ask(self, location: str) -> None:
        """Returns if the runner grants the commit; otherwise ends this process."""
        number, answered = next(self._numbers), threading.Event()
        self._waiting[number] = answered
        self._send(MayCommit(number=number))
        while not answered.wait(max(0.0, self._until - now())):
            if now() >= self._until:
                end_fenced()
        del self._waiting[number]
        if number not in self._granted or now() >= self._until:
            end_fenced()
        self._granted.discard(number)

    def answer(self, number: int, granted: bool) -> None:
        if granted:
            self._granted.add(number)
        if number in self._waiting:
            self._waiting[number].set()

    def _watch(self) -> None:
        while (left := self._until - now()) > 0:
            time.sleep(min(left, 1.0))
        end_fenced()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if self._wanted is not None and not self._raised:
            self._raised = True
            raise Stopped(self._wanted)


def end_fenced() -> NoReturn:
    """Ends the process at once, so that no exception handler writes another file."""
    os._exit(FENCED_STATUS)
