"""What a person or a log sees while a command runs, on standard error: bars on a terminal, else plain lines.

It knows events, not what causes them.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Literal, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from c2b_ray.audits.kit.events import Event
from c2b_ray.text import visible, without_credentials

EVERY_S = 10.0


class Shown(Protocol):
    """A listener of events; a context manager, so that the terminal is left as it was found."""

    def __call__(self, event: Event) -> None: ...

    def __enter__(self) -> Shown: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]: ...


def shown() -> Shown:
    console = Console(stderr=True)
    return Bars(console) if console.is_terminal else Lines()


class Bars:
    """A bar for each step."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),  # names may look like markup
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self._bars.stop()
        return False

    def __call__(self, event: Event) -> None:
        if event.kind == "warning":
            self._bars.console.print(f"warning: {_named(event)}", markup=False, highlight=False)
            return
        if event.kind == "begin":
            self._tasks[event.step] = self._bars.add_task(_named(event), total=None, note="")
            return
        task = self._tasks[event.step]
        if event.kind == "end":
            total = self._bars.tasks[self._bars.task_ids.index(task)].total or 1
            self._bars.update(task, total=total, completed=total, note=f"{event.seconds:.1f} s")
        elif event.progress is not None:
            note = f"{event.progress.rows_per_second:.0f}/s{_bad(event)}"
            self._bars.update(task, total=event.progress.total, completed=event.progress.done, note=note)


class Lines:
    """A line where a step begins and ends, and every `every_s` in between what has been done of it."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._latest: dict[str, Event] = {}
        self._began: dict[str, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True, name="progress")

    def __enter__(self) -> Lines:
        self._clock.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        self._ended.set()
        self._clock.join()
        return False

    def __call__(self, event: Event) -> None:
        with self._lock:
            if event.kind == "warning":
                _say(f"warning: {_named(event)}")
            elif event.kind == "begin":
                self._latest[event.step], self._began[event.step] = event, time.monotonic()
                _say(f"{_named(event)}: begins")
            elif event.kind == "end":
                last = self._latest.pop(event.step, event)
                _say(f"{_named(event)}: done in {event.seconds:.1f} s{_rows(last)}")
            else:
                self._latest[event.step] = event

    def _tick(self) -> None:
        while not self._ended.wait(self._every_s):
            with self._lock:
                for step, event in self._latest.items():
                    _say(f"{_named(event)}: {time.monotonic() - self._began[step]:.0f} s so far{_rows(event)}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _named(event: Event) -> str:
    return visible(without_credentials(event.step))


def _rows(event: Event) -> str:
    if event.progress is None:
        return ""
    total = f" of {event.progress.total}" if event.progress.total is not None else ""
    before = f" ({event.progress.resumed} were there)" if event.progress.resumed else ""
    return f", {event.progress.done}{total} rows{before}, {event.progress.rows_per_second:.0f} a second{_bad(event)}"


def _bad(event: Event) -> str:
    return f", {event.progress.errors} bad" if event.progress is not None and event.progress.errors else ""
