"""Progress output on standard error while a command runs, and options that several commands share.

A terminal shows bars, anything else plain lines. It knows events, not their causes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text
from typer.core import TyperGroup

from c2b_ray.audits.kit.progress import Event, bad, busy, named, rate, rows, whole
from c2b_ray.cli import show
from c2b_ray.errors import ServiceError
from c2b_ray.report import words
from c2b_ray.storage.run import Run

if TYPE_CHECKING:
    from c2b_ray.audits.gate import Check
    from c2b_ray.audits.kit.progress import Listener
    from c2b_ray.audits.kit.session import Session
    from c2b_ray.audits.tracking import Tracker


EVERY_S = 10.0


class ProgressDisplay(Protocol):
    """A listener of events and a context manager, which restores the terminal at its end."""

    def __call__(self, event: Event) -> None: ...

    def __enter__(self) -> ProgressDisplay: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]: ...


def shown() -> ProgressDisplay:
    console = Console(stderr=True)
    return Bars(console) if console.is_terminal else Lines()


@contextmanager
def sending() -> Iterator[Callable[[str, int, int], None]]:
    """Yields what shows how far an upload is, once it takes longer than a moment: a bar on a terminal, else lines."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _SentLines()
        return
    with Progress(TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
                  TimeRemainingColumn(), console=console) as bars:  # fmt: skip
        tasks: dict[str, TaskID] = {}

        def told(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield told


class _SentLines:
    """Prints a line every few seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, what: str, done: int, total: int) -> None:
        if time.monotonic() - self._last >= EVERY_S:
            self._last = time.monotonic()
            print(f"{what}: {words.count(done)} of {words.count(total)}", file=sys.stderr, flush=True)


class _Done(ProgressColumn):
    """The column of finished rows and their total."""

    def render(self, task: Task) -> Text:
        total = "?" if task.total is None else words.count(int(task.total))
        return Text(f"{words.count(int(task.completed))}/{total}", style="progress.download")


class Bars:
    """A listener that shows a bar for each step."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),  # names may look like markup
            BarColumn(),
            _Done(),
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
            self._bars.console.print(f"warning: {named(event)}", markup=False, highlight=False)
            return
        if event.kind == "begin":
            if event.step in self._tasks:  # a repeated step keeps its bar
                self._bars.reset(self._tasks[event.step], total=None, note="")
            else:
                self._tasks[event.step] = self._bars.add_task(named(event), total=None, note="")
            return
        task = self._tasks[event.step]
        if event.kind == "end":
            total = self._bars.tasks[self._bars.task_ids.index(task)].total or 1
            self._bars.update(task, total=total, completed=total, note=f"{event.seconds:.1f} s")
        elif event.progress is not None:
            note = f"{rate(event.progress)}/s{busy(event.progress)}{bad(event)}{whole(event)}"
            self._bars.update(task, total=event.progress.total, completed=event.progress.done, note=note)


@dataclass
class _Again:
    """The record of a repeated step: how often it has ended, its total time, and the time of its last line."""

    times: int = 0
    seconds: float = 0.0
    said_at: float = 0.0
    is_said: bool = True


class Lines:
    """A listener that prints a line when a step begins and ends, and its progress every `every_s` seconds in between.

    A step that is repeated prints at most one line every `every_s` seconds, and one at the end for all repetitions.
    """

    def __init__(self, every_s: float = EVERY_S) -> None:
        self._every_s = every_s
        self._latest: dict[str, Event] = {}
        self._began: dict[str, float] = {}
        self._steps: dict[str, _Again] = {}
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
        for step, repeats in self._steps.items():
            if not repeats.is_said:
                _say(f"{named(Event(step, 'end'))}: done {words.count(repeats.times)} times in {repeats.seconds:.1f} s")
        return False

    def __call__(self, event: Event) -> None:
        with self._lock:
            if event.kind == "warning":
                _say(f"warning: {named(event)}")
            elif event.kind == "begin":
                self._latest[event.step], self._began[event.step] = event, time.monotonic()
                if event.step not in self._steps:
                    self._steps[event.step] = _Again(said_at=time.monotonic())
                    _say(f"{named(event)}: begins")
            elif event.kind == "end":
                self._end(event, self._latest.pop(event.step, event))
            else:
                self._latest[event.step] = event

    def _end(self, event: Event, last: Event) -> None:
        step, now = self._steps.setdefault(event.step, _Again()), time.monotonic()
        step.times, step.seconds = step.times + 1, step.seconds + event.seconds
        step.is_said = step.times == 1 or now - step.said_at >= self._every_s
        if step.is_said:
            step.said_at = now
            often = "" if step.times == 1 else f" ({words.count(step.times)} times, {step.seconds:.1f} s in total)"
            _say(f"{named(event)}: done in {event.seconds:.1f} s{rows(last)}{often}")

    def _tick(self) -> None:
        while not self._ended.wait(self._every_s):
            with self._lock:
                for step, event in self._latest.items():
                    self._steps[step].said_at = time.monotonic()
                    _say(f"{named(event)}: {time.monotonic() - self._began[step]:.0f} s so far{rows(event, True)}")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# The command-line options that determine where work runs.


Placement = Annotated[
    str | None,
    typer.Option(
        "--placement",
        metavar="FILE",
        help="How many processes run each stage, and on which nodes: laptop, one-gpu, cluster, or a file such as those "
        "in deployments/placement. Default: chosen from the cluster's resources.",
    ),
]


def session(via: str, placement: str | None, listener: Listener) -> Session:
    """Returns the session of a command with these options. Raises ConfigError for a wrong placement file."""
    from c2b_ray.audits.kit.session import Session
    from c2b_ray.config.placement import read_placement

    return Session(via, None if placement is None else read_placement(placement), listener)


# A group of commands that has a command to run by default.


RUN = "run"


class RunsByDefault(TyperGroup):
    """Runs `c2b failures FILE` as `c2b failures run FILE`, unless FILE names another command of the group."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [RUN, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Shows the help of the group, and below it that of the command that it runs by default."""
        super().format_help(ctx, formatter)
        command = self.commands[RUN]
        command.format_help(type(ctx)(command, info_name=ctx.info_name, parent=ctx.parent), formatter)


# `--log` of commands that make or judge a run: connects to trackers before the work, and logs the run after it.


Log = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="TRACKER",
        help="Log the finished run, with its numbers, table and report: 'mlflow:URI|EXPERIMENT' or "
        "wandb:ENTITY/PROJECT. Repeatable.",
    ),
]


def trackers(to: Sequence[str] | None) -> list[Tracker]:
    """Connects to the trackers of `--log`, so that a wrong name or a missing package is known before the work."""
    if not to:
        return []
    from c2b_ray.audits.tracking import tracker

    return [tracker(name) for name in to]


def log_run(run: Run, to: Sequence[Tracker], checks: Sequence[Check] = ()) -> None:
    """Logs a run and says where, on standard error. Raises ServiceError, which says how to log it again."""
    if not to:
        return
    from c2b_ray.audits.tracking import log

    for target in to:
        try:
            show.note(f"logged: {log(run, target, checks)}")
        except ServiceError as error:
            raise ServiceError(f"{error}; the run is whole: c2b report {run.path} --log … logs it again") from error
