"""Progress and use of a slice, why its job failed, in words for its owner, and the record of its end in the ledger.

`ProgressReporter` runs in the job's process; the others run in its runner.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyarrow import fs

from c2b_ray.audits.kit.progress import IMAGES, IMAGES_HELD, Event
from c2b_ray.config.endpoint import Quotas
from c2b_ray.endpoint.counters import STAGES
from c2b_ray.endpoint.ledger import jobs, quotas, running, tenants
from c2b_ray.endpoint.ledger.database import Database, DatabaseDownError
from c2b_ray.endpoint.ledger.tables import Claim, Failure, FencedError, Job, Progress
from c2b_ray.endpoint.policy.names import UPLOADS
from c2b_ray.endpoint.work.protocol import Problem, StepReport, WorkEnded, shortened
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
from c2b_ray.storage import resolve
from c2b_ray.text import visible, without_credentials

LEAST_BOOKED_SECONDS = 1.0
"""The least seconds of use that are worth a booking while nothing else changes."""


@dataclass(frozen=True)
class StoredBytes:
    """Bytes in a run's directory: of all files, and of the files of rows, which are never removed."""

    total: int
    rows: int


def measured(run_path: str) -> StoredBytes:
    filesystem, path = resolve(run_path)
    infos = filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    sizes = [(info.extension, info.size or 0) for info in infos if info.type == fs.FileType.File]
    return StoredBytes(sum(size for _, size in sizes), sum(size for kind, size in sizes if kind == "parquet"))


@dataclass
class SliceUse:
    """The use and progress of one slice.

    `models`: the models that the use is booked on, in equal parts. `held`: the last measured size of the run's
    directory; None before. `advanced`: whether the run gained rows in this slice. `before`: the result of
    `booked_before`.
    """

    models: Sequence[str]
    images: int = 0
    seconds: float = 0.0
    held: StoredBytes | None = None
    advanced: bool = False
    before: int | None = None
    _latest: StepReport = field(
        default=StepReport(step="start", kind="begin")
    )  # loading libraries and models is use, too
    _changed: bool = True
    _booked_images: int = 0
    _booked_seconds: float = 0.0
    _pending: tuple[int, float] = field(default=(0, 0.0))
    _images_stage: str | None = None

    def tell(self, message: StepReport) -> None:
        """Takes a report of the process about the progress of its work."""
        self._count(message)
        if message.kind == "warning":
            return
        if message.kind == "end" and message.done is None and self._latest.step == message.step:
            self._latest = self._latest.model_copy(update={"rate": None})
        elif message.kind != "progress" or message.done is not None or self._latest.step != message.step:
            self._latest = message  # otherwise the report only counts images
        self._changed = True

    def end(self, ended: WorkEnded) -> None:
        self._count(ended)

    def _count(self, message: StepReport | WorkEnded) -> None:
        unbooked = 0 if self.before is None else message.present - self.before
        images = max(self.images, message.images, unbooked)
        if images > self.images and isinstance(message, StepReport):
            self._images_stage = message.step
        self.images = images

    def measure(self, run_path: str) -> None:
        """Measures the run's directory."""
        previous = self.held
        with suppress(OSError):  # the process itself will report the error
            self.held = measured(run_path)
        if previous is not None and self.held is not None and self.held.rows > previous.rows:
            self.advanced = self._changed = True

    @property
    def worth_writing(self) -> bool:
        """Whether there is news for watchers, or enough new use to book."""
        has_new_use = self.seconds - self._booked_seconds >= LEAST_BOOKED_SECONDS or self.images > self._booked_images
        return self._changed or has_new_use

    @property
    def complete(self) -> bool:
        """Whether the ledger has booked everything."""
        all_booked = self.images <= self._booked_images and self.seconds <= self._booked_seconds
        return all_booked and not self._changed

    def progress(self) -> Progress:
        """Returns the progress and the use since the last booking. Call `booked` once the ledger has it."""
        self._pending = (self.images, self.seconds)
        images = self.images - self._booked_images
        seconds = max(0.0, self.seconds - self._booked_seconds)
        message = self._latest
        size = None if self.held is None else self.held.total
        return Progress(
            stage=message.step,
            done=message.done,
            total=message.total,
            rate=None if message.rate is None else round(message.rate, 3),
            seconds_left=_seconds_left(message),
            images=self._images(images),
            model_seconds=self._seconds(seconds),
            bytes=size,
            advanced=self.advanced,
            images_stage=self._images_stage,
        )

    def booked(self) -> None:
        self._booked_images, self._booked_seconds = self._pending
        self._changed = False

    def set_booked(self, images: int, seconds: float) -> None:
        """Sets what the ledger has booked of this slice, when its answer to the last booking was lost."""
        self._booked_images, self._booked_seconds = images, seconds

    def _images(self, count: int) -> dict[str, int]:
        share, remainder = divmod(count, len(self.models))
        parts = {model: share + (number < remainder) for number, model in enumerate(self.models)}
        return {model: part for model, part in parts.items() if part}

    def _seconds(self, seconds: float) -> dict[str, float]:
        return {model: seconds / len(self.models) for model in self.models} if seconds > 0 else {}


def _seconds_left(message: StepReport) -> float | None:
    """Returns the seconds left in the stage at its rate so far; None if that is unknown."""
    if message.total is None or message.done is None or not message.rate:
        return None
    return round(max(0, message.total - message.done) / message.rate, 1)


def booked_before(claim: Claim) -> int | None:
    """Returns the images that the ledger has booked of the run that a claim continues.

    Images that the run holds beyond them were written by a runner that was lost before it booked them. Returns None if
    there was no such runner, and for a question, whose answers may be those of the run that it asks.
    """
    job = claim.job
    begins = claim.fence == 1 and job.run_path is None
    return None if begins or job.kind == "question" else job.images


EVERY_S = 0.5
_UPLOADED = re.compile(rf"\b{UPLOADS}/([0-9a-f]{{64}})(?:\.[a-z]+)?")
_TITLES: tuple[tuple[type[BaseException], str], ...] = (
    (ConfigError, "A field of the config is wrong"),
    (SpecError, "A model cannot be used as its spec says"),
    (WeightsError, "Weights cannot be used"),
    (SourceError, "The images or tables cannot be read"),
    (RunError, "The run's directory cannot be used"),
    (InputError, "The input is wrong"),
    (StorageError, "The storage refused"),
    (ServiceError, "A model service failed"),
    (ReplyError, "A language model's reply cannot be used"),
    (MemoryError, "The job needs more memory than there is"),
)


class ProgressReporter:
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
        if event.progress is not None and (images_per_row := _images_per_row(event)):
            images = max(self._before.get(event.step, 0), round(images_per_row * event.progress.answered))
            self._images += images - self._before.get(event.step, 0)
            self._before[event.step] = images
            self._hold(event.step, round(images_per_row * event.progress.done))
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
        detail, location = error.worded("request"), error.location
    elif isinstance(error, MemoryError):
        detail, location = (
            "Ask for fewer images at once, a smaller batch or a smaller model, and submit it again.",
            None,
        )
    else:
        detail = f"{type(error).__name__}: {error}. It was tried again, and its run is kept; tell the operator."
        location = None

    def shown(text: str) -> str:
        # An upload is told as the config names it: its owner knows no path of it.
        named = _UPLOADED.sub(r"upload:\1", text.replace(f"{hidden.rstrip('/')}/", ""))
        return shortened(visible(without_credentials(named)))

    return Problem(
        title=title,
        detail=shown(detail),
        field=(error.fields("request")[0] or None) if isinstance(error, ConfigError) else None,
        location=None if location is None else shown(location),
        again=(is_busy := isinstance(error, BusyRunError)) or not isinstance(error, InputError),
        busy=is_busy,
    )


# Records the end of a slice in the ledger, once, under the fence of its claim, however long the database is down.


RETRY_S = 1.0
LONGEST_DELAY_S = 60.0
BUSY_S = 10.0
"""Seconds after which a question looks again whether another one to its run has ended."""

_log = logging.getLogger(__name__)


@dataclass
class ClaimEnd:
    """The end of one claim. `attempts`: the number of deaths without progress after which a job has failed. `stop`: set
    when the runner ends, which then no longer waits for a database that is down; the lease passes, and another runner
    takes the job."""

    db: Database
    claim: Claim
    attempts: int
    run_path: str
    stop: threading.Event

    def record(self, account: SliceUse, ended: WorkEnded, reason: Failure | None = None) -> Job | None:
        """Records the end and returns the job; None if another runner has it by now. `reason`: why it was cancelled."""
        waited = False
        while True:
            try:
                if waited:
                    self._resync(account)
                return self._recorded(account, ended, reason)
            except FencedError as error:
                _log.warning("%s; its slice ended as %s", error, ended.how)
                return None
            except DatabaseDownError as error:
                if not waited:
                    _log.warning("%s; %s waits with its end (%s)", error, self.claim.job.id, ended.how)
                waited = True
                if self.stop.wait(RETRY_S):
                    return None

    def _recorded(self, account: SliceUse, ended: WorkEnded, reason: Failure | None) -> Job:
        job_id, fence = self.claim.job.id, self.claim.fence
        if not account.complete:
            running.progress(self.db, job_id, fence, account.progress())
            account.booked()
        if ended.how == "finished":
            return running.finish(self.db, job_id, fence, self.run_path, ended.classifier_hash, ended.each_classifier)
        if ended.how == "cancelled":
            return running.cancelled(self.db, job_id, fence, self.run_path, reason)
        if ended.how == "failed":
            return self._failed(ended.problem or Problem(title="The job failed"), account.advanced)
        return running.release(self.db, job_id, fence, run_path=self.run_path)

    def _failed(self, problem: Problem, advanced: bool) -> Job:
        job_id, fence = self.claim.job.id, self.claim.fence
        if problem.busy and self.claim.job.kind == "question":  # whoever asks longer does not make it fail
            return running.retry(self.db, job_id, fence, BUSY_S, "another question is asked of its run", counts=False)
        attempt = 0 if advanced else self.claim.job.attempt
        if problem.again and attempt + 1 < self.attempts:
            delay = min(LONGEST_DELAY_S, 2.0**attempt)
            return running.retry(self.db, job_id, fence, delay, problem.title)
        failure = Failure(problem.title, problem.detail, problem.field, problem.location)
        # Who submits it again goes on with its run, unless the run itself, or what it names, is the problem.
        return running.fail(self.db, job_id, fence, failure, self.run_path if problem.again else None)

    def _resync(self, account: SliceUse) -> None:
        """Reads from the ledger what it has booked for this claim, which nobody else changes."""
        job = jobs.get(self.db, None, self.claim.job.id)
        if job is not None and job.fence == self.claim.fence:
            claimed_job = self.claim.job
            account.set_booked(job.images - claimed_job.images, job.model_seconds - claimed_job.model_seconds)


def book_asked_run(db: Database, job: Job, run_path: str) -> None:
    """Books the size of the run that a question asked: a search for failures keeps the draws of its questions."""
    with suppress(OSError, DatabaseDownError):
        running.resized(db, job.tenant_id, run_path.rstrip("/").rpartition("/")[2], measured(run_path).total)


def key_problem(db: Database, job: Job) -> Failure | None:
    """Returns why a job must stop because its key no longer works; None if it may go on. The job is cancelled, and its
    run is kept."""
    key = None if job.key_id is None else tenants.why_key_fails(db, job.key_id)
    if key is None:
        return None
    title = f"The key of this job {key}"
    detail = "It ended at its next batch, and its run is kept. Submit it again with a key that works."
    return Failure(title, detail)


def quota_problem(db: Database, tenant_id: str, models: Sequence[str], defaults: Quotas) -> Failure | None:
    """Returns why a running job of these models must stop because its tenant has exceeded a quota; None if it may go
    on. Like `key_problem`, it is cancelled, and its run is kept."""
    try:
        quotas.check_running(db, tenant_id, models, defaults)
    except quotas.QuotaDenial as denied:
        detail = f"{denied}. It ended at its next batch, and its run is kept. Submit it again when there is room."
        return Failure(f"The quota {denied.quota} is used up", detail)
    return None
