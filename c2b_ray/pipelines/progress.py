"""Reports the progress of a stage to a listener, from the first batch on. It does not know the rows, nor where they are
computed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from c2b_ray.pipelines.busy import Busy


@dataclass(frozen=True)
class Whole:
    """`done` of at most `most`; a run may end before it reaches `most`."""

    done: int
    most: int


@dataclass(frozen=True)
class Progress:
    """The progress of a stage. `rows` and `errors`: written by this call so far. `resumed`: rows of the source that
    earlier calls wrote.

    `answered`: rows that the step has answered; the last of them may not be in a part yet. The rate counts these.
    `total`: rows of the source, where known; at the end it equals `resumed` + `rows`. `what`: what a row is. `whole`:
    the progress of the whole run, where the step is one of many. `busy`: how busy those are that work for the stage,
    where that is measured.
    """

    rows: int
    errors: int
    resumed: int
    total: int | None
    rows_per_second: float
    answered: int = 0
    what: str = "rows"
    whole: Whole | None = None
    busy: Busy | None = None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until `total` at the rate so far; None before anything is answered, or without a total."""
        if self.total is None or self.rows_per_second <= 0:
            return None
        return max(self.total - self.done, 0) / self.rows_per_second

    @property
    def done(self) -> int:
        """Rows of the source that this process or an earlier one has answered."""
        return self.resumed + self.answered


class Teller:
    """Counts a stage's progress and calls `listener`, one call at a time, from any of the threads that report to it."""

    def __init__(self, listener: Callable[[Progress], None] | None, resumed: int, total: int | None) -> None:
        self._listener, self._resumed, self._total = listener, resumed, total
        self._began, self._lock = time.monotonic(), threading.RLock()
        self.rows, self.errors, self._answered = 0, 0, 0
        self._failure: BaseException | None = None
        self.busy: Callable[[], Busy | None] | None = None

    def tell(self) -> None:
        if self._listener is not None:
            rate = self._answered / max(time.monotonic() - self._began, 1e-9)
            busy = None if self.busy is None else self.busy()
            self._listener(
                Progress(self.rows, self.errors, self._resumed, self._total, rate, self._answered, busy=busy)
            )

    def wrote(self, rows: int, errors: int) -> None:
        """Counts written rows. Raises what the listener raised meanwhile, even in another thread."""
        with self._lock:
            self.rows, self.errors = self.rows + rows, self.errors + errors
            self._answered = max(self._answered, self.rows)
            self.tell()
        self.check()

    def check(self) -> None:
        """Raises what the listener raised meanwhile."""
        if self._failure is not None:
            raise self._failure

    def answered(self, written: int, waiting: int) -> None:
        """Counts rows that are answered: `waiting` that are not written yet, and the `written` when these were counted.

        The count never falls: rows that a dead process had answered are answered again.
        """
        with self._lock:
            rows = written + waiting
            if self._total is not None:
                rows = min(rows, self._total - self._resumed)
            if rows > self._answered and self._failure is None:
                self._answered = rows
                try:
                    self.tell()
                except BaseException as error:
                    self._failure = error
