"""Events that an audit sends while it runs: in words, and as bars in a notebook."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pkgutil import resolve_name
from typing import Any, Literal

from c2b_ray.engine.progress import Progress
from c2b_ray.report import words
from c2b_ray.text import visible, without_credentials


@dataclass(frozen=True)
class Event:
    """A step begins, moves, or ends.

    `seconds`: since it began. `progress`: where the step counts rows. `counts`: at its end, numbers by name.
    `images_per_row`: how many images models answer about for a row; None where the step's name tells whether rows are
    images. For a `warning`, `step` is a note on the result rather than a step.
    """

    step: str
    kind: Literal["begin", "progress", "end", "warning"]
    seconds: float = 0.0
    progress: Progress | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    images_per_row: float | None = None


IMAGES, IMAGES_HELD = "images", "images held"
"""Counts of a step whose rows take varying numbers of images: images that models answered about in this step, and
images that the run has held answers about since it began."""

Listener = Callable[[Event], None]


# The progress of a step in words: how far it is, how fast, how long it takes, and what it waits for.


def named(event: Event) -> str:
    return visible(without_credentials(event.step))


def rows(event: Event, is_under_way: bool = False) -> str:
    if event.progress is None:
        return ""
    total = f" of {words.count(event.progress.total)}" if event.progress.total is not None else ""
    before = f" ({words.count(event.progress.resumed)} from before)" if event.progress.resumed else ""
    done = f"{words.count(event.progress.done)}{total} {event.progress.what}{before}"
    to_come = left(event.progress) if is_under_way else ""
    return f", {done}, {rate(event.progress)} a second{to_come}{busy(event.progress)}{bad(event)}{whole(event)}"


def rate(progress: Progress) -> str:
    return f"{progress.rows_per_second:,.0f}" if progress.rows_per_second >= 10 else f"{progress.rows_per_second:.2g}"


def busy(progress: Progress) -> str:
    """Says what a stage waits for."""
    if progress.busy is None:
        return ""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in progress.busy.shares.items())
    waits = f": all wait for {progress.busy.limit}" if progress.busy.limit else ""
    return f" (busy: {shares}{waits})"


def left(progress: Progress) -> str:
    return f", {lasting(progress.seconds_left)} left" if progress.seconds_left is not None else ""


def whole(event: Event) -> str:
    if event.progress is None or event.progress.whole is None:
        return ""
    total = event.progress.whole
    return f"; {words.count(total.done)} of at most {words.count(total.most)} of the run"


def lasting(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


def bad(event: Event) -> str:
    return f", {words.count(event.progress.errors)} bad" if event.progress is not None and event.progress.errors else ""


# Progress in a notebook: a bar for each step of an audit, updated in place. It needs IPython, and no widgets. Whoever
# calls an audit from a notebook without a listener sees it.


EVERY_S = 0.3


def notebook_bars() -> NotebookBars | None:
    """Returns a listener where this process is the kernel of a notebook; else None."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return NotebookBars() if hasattr(shell, "kernel") else None


class NotebookBars:
    """A listener of events that shows a bar for each step, and warnings below. Calls may come from any thread."""

    def __init__(self) -> None:
        self._rows: dict[str, Event] = {}
        self._ended: dict[str, Event] = {}
        self._warnings: list[str] = []
        self._shown: Any = None
        self._at = 0.0
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            if event.kind == "warning":
                self._warnings.append(named(event))
            elif event.kind != "progress" or event.progress is not None:
                self._rows[event.step] = self._whole(event) if event.kind == "end" else event
            if event.kind == "progress" and time.monotonic() - self._at < EVERY_S:
                return
            self._at = time.monotonic()
            self._show()

    def _whole(self, event: Event) -> Event:
        """Returns the end of a step that may have run before, with the time of all its passes, and with the most rows
        that a pass answered: a later one finds them answered."""
        earlier = self._ended.get(event.step)
        seconds = event.seconds + (0.0 if earlier is None else earlier.seconds)
        told = [one.progress for one in (earlier, self._rows.get(event.step), event) if one is not None]
        progress = max((one for one in told if one is not None), key=lambda one: one.answered, default=None)
        self._ended[event.step] = replace(event, seconds=seconds, progress=progress)
        return self._ended[event.step]

    def _show(self) -> None:
        page = resolve_name("IPython.display:HTML")(self.html())  # it comes with the notebook, not with this package
        if self._shown is None:
            self._shown = resolve_name("IPython.display:display")(page, display_id=True)
        else:
            self._shown.update(page)

    def html(self) -> str:
        """Returns the bars of all steps so far."""
        rows = "".join(_row(event) for event in self._rows.values())
        warnings = "".join(f"<p>warning: {escape(text)}</p>" for text in self._warnings)
        return f"<table>{rows}</table>{warnings}"


def _row(event: Event) -> str:
    """Returns a step's row: its name, a bar, and how far, how fast and how long."""
    progress = event.progress
    if event.kind == "end":
        bar, note = '<progress value="1" max="1"></progress>', f"done in {event.seconds:.1f} s{rows(event)}"
    elif progress is None or progress.total is None:
        bar, note = "<progress></progress>", rows(event, True).lstrip(", ")
    else:
        bar = f'<progress value="{progress.done}" max="{max(progress.total, 1)}"></progress>'
        share = f"{words.count(progress.done)} of {words.count(progress.total)} {progress.what}"
        note = f"{share}, {rate(progress)} a second{left(progress)}{busy(progress)}{bad(event)}"
    cells = "".join(f"<td>{cell}</td>" for cell in (escape(named(event)), bar, escape(note)))
    return f'<tr style="text-align:left">{cells}</tr>'
