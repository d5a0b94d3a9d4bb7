"""Events that an audit sends while it runs, and the progress of a step in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

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
