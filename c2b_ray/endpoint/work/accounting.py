"""Adds up the use and progress of a slice, so that the ledger books each image and each second once. It knows no
database."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyarrow import fs

from c2b_ray.endpoint.ledger.job import Claim, Progress
from c2b_ray.endpoint.work.protocol import Ended, StepReport
from c2b_ray.filesystems import resolve

LEAST_SECONDS = 1.0
"""The least seconds of use that are worth a booking while nothing else changes."""


@dataclass(frozen=True)
class Held:
    """Bytes in a run's directory: of all files, and of the files of rows, which are never removed."""

    total: int
    rows: int


def measured(run_path: str) -> Held:
    filesystem, path = resolve(run_path)
    infos = filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    sizes = [(info.extension, info.size or 0) for info in infos if info.type == fs.FileType.File]
    return Held(sum(size for _, size in sizes), sum(size for kind, size in sizes if kind == "parquet"))


@dataclass
class Account:
    """The use and progress of one slice.

    `models`: the models that the use is booked on, in equal parts. `held`: the last measured size of the run's
    directory; None before. `advanced`: whether the run gained rows in this slice. `before`: the result of
    `booked_before`.
    """

    models: Sequence[str]
    images: int = 0
    seconds: float = 0.0
    held: Held | None = None
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

    def end(self, ended: Ended) -> None:
        self._count(ended)

    def _count(self, message: StepReport | Ended) -> None:
        unbooked = 0 if self.before is None else message.present - self.before
        images = max(self.images, message.images, unbooked)
        if images > self.images and isinstance(message, StepReport):
            self._images_stage = message.step
        self.images = images

    def measure(self, run_path: str) -> None:
        """Measures the run's directory."""
        before = self.held
        with suppress(OSError):  # the process itself will report the error
            self.held = measured(run_path)
        if before is not None and self.held is not None and self.held.rows > before.rows:
            self.advanced = self._changed = True

    @property
    def worth_writing(self) -> bool:
        """Whether there is news for watchers, or enough new use to book."""
        used = self.seconds - self._booked_seconds >= LEAST_SECONDS or self.images > self._booked_images
        return self._changed or used

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
        held = None if self.held is None else self.held.total
        return Progress(
            stage=message.step,
            done=message.done,
            total=message.total,
            rate=None if message.rate is None else round(message.rate, 3),
            seconds_left=_seconds_left(message),
            images=self._images(images),
            model_seconds=self._seconds(seconds),
            bytes=held,
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
        each, more = divmod(count, len(self.models))
        parts = {model: each + (number < more) for number, model in enumerate(self.models)}
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
