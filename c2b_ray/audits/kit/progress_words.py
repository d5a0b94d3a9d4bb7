"""The progress of a step in words: how far it is, how fast, how long it takes, and what it waits for."""

from __future__ import annotations

from c2b_ray.audits.kit.events import Event
from c2b_ray.engine.progress import Progress
from c2b_ray.report import words
from c2b_ray.text import visible, without_credentials


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
