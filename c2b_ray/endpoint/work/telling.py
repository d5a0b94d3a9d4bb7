"""Reports of a job's process to its runner: the progress of its steps, and why it failed, in words for its owner.

It knows events and errors, not the job.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from c2b_ray.audits.kit.events import IMAGES, IMAGES_HELD, Event
from c2b_ray.endpoint.counters import STAGES
from c2b_ray.endpoint.words import fields_of, in_words_of_requests
from c2b_ray.endpoint.work.protocol import Problem, StepReport, shortened
from c2b_ray.errors import (
    BusyRunError,
    C2BError,
    ConfigError,
    InputError,
    ReplyError,
    RunError,
    ServiceError,
    SourceError,
    SpecError,
    StorageError,
    WeightsError,
)
from c2b_ray.text import visible, without_credentials

EVERY_S = 0.5
_TITLES: tuple[tuple[type[BaseException], str], ...] = (
    (ConfigError, "A field of the config is wrong"),
    (SpecError, "A model's name is wrong"),
    (WeightsError, "Weights cannot be used"),
    (SourceError, "The images or tables cannot be read"),
    (RunError, "The run's directory cannot be used"),
    (InputError, "The input is wrong"),
    (StorageError, "The storage refused"),
    (ServiceError, "A model service failed"),
    (ReplyError, "A language model's reply cannot be used"),
    (MemoryError, "The job needs more memory than there is"),
)


class Telling:
    """A listener of events that reports them. `check` is called at each event, and may raise to end the work."""

    def __init__(self, send: Callable[[StepReport], None], check: Callable[[], None]) -> None:
        self._send, self._check = send, check
        self._lock = threading.Lock()
        self._last_sent = 0.0
        self._before: dict[str, int] = {}
        self._images = 0
        self._present: dict[str, int] = {}

    @property
    def images(self) -> int:
        """The number of images that models have answered about."""
        return self._images

    @property
    def present(self) -> int:
        """The least number of images whose answers the run holds. A step that runs again may ask about the same
        images."""
        return sum(self._present.values())

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._count(event)
            due = event.kind != "progress" or time.monotonic() - self._last_sent >= EVERY_S
            if due:
                self._last_sent = time.monotonic()
                self._send(self._message(event))
        self._check()

    def _count(self, event: Event) -> None:
        if event.kind == "begin":
            self._before[event.step] = 0  # a step that runs again counts from 0
        if event.progress is not None and (each := _images_per_row(event)):
            answered = max(self._before.get(event.step, 0), round(each * event.progress.answered))
            self._images += answered - self._before.get(event.step, 0)
            self._before[event.step] = answered
            self._hold(event.step, round(each * event.progress.done))
        self._images += event.counts.get(IMAGES, 0)
        self._hold(event.step, event.counts.get(IMAGES_HELD, 0))

    def _hold(self, step: str, images: int) -> None:
        self._present[step] = max(self._present.get(step, 0), images)

    def _message(self, event: Event) -> StepReport:
        step = shortened(visible(without_credentials(event.step)))
        progress = event.progress
        if progress is None:
            counts = dict(event.counts)
            return StepReport(step=step, kind=event.kind, images=self._images, present=self.present, counts=counts)
        return StepReport(
            step=step,
            kind=event.kind,
            done=progress.done,
            total=progress.total,
            rate=float(progress.rows_per_second),
            images=self._images,
            present=self.present,
            busy={} if progress.busy is None else progress.busy.shares,
        )


def _images_per_row(event: Event) -> float:
    if event.images_per_row is not None:
        return event.images_per_row
    return float(event.step.startswith(STAGES))


def problem(error: BaseException, hidden: str) -> Problem:
    """Describes an error for the job's owner. `hidden`: the path of the tenant's folder, which is removed from the
    texts; paths below it become relative."""
    title = next((title for kind, title in _TITLES if isinstance(error, kind)), "The job failed unexpectedly")
    if isinstance(error, C2BError):
        detail, location = str(error), error.location
    elif isinstance(error, MemoryError):
        detail, location = (
            "Ask for fewer images at once, a smaller batch or a smaller model, and submit it again.",
            None,
        )
    else:
        detail = f"{type(error).__name__}: {error}. It was tried again, and its run is kept; tell the operator."
        location = None

    def shown(text: str) -> str:
        return shortened(visible(without_credentials(text.replace(f"{hidden.rstrip('/')}/", ""))))

    fields = fields_of(error.field) if isinstance(error, ConfigError) and error.field else []
    if fields:
        detail = detail.replace(f"{error.field}: ", f"{', '.join(fields)}: ", 1)  # type: ignore[attr-defined]
    return Problem(
        title=title,
        detail=shown(in_words_of_requests(detail)),
        field=fields[0] if fields else None,
        location=None if location is None else shown(location),
        again=(busy := isinstance(error, BusyRunError)) or not isinstance(error, InputError),
        busy=busy,
    )
