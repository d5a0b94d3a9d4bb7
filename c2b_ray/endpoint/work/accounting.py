"""The use and the progress of a slice, as the ledger books it: each image and each second once.

It adds up what the process reports and what it costs, and knows no database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyarrow import fs

from c2b_ray.endpoint.kinds import KINDS
from c2b_ray.endpoint.ledger.job import Claim, Progress
from c2b_ray.endpoint.work.protocol import Ended, StepReport
from c2b_ray.filesystems import resolve

LEAST_SECONDS = 1.0
"""The least use that is booked by itself while nothing else changes."""


@dataclass(frozen=True)
class Held:
    """Bytes in a run's directory: of all files, and of those with rows, which stay once they are written."""

    total: int
    rows: int


def measured(run_path: str) -> Held:
    filesystem, path = resolve(run_path)
    infos = filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
    sizes = [(info.extension, info.size or 0) for info in infos if info.type == fs.FileType.File]
    return Held(sum(size for _, size in sizes), sum(size for kind, size in sizes if kind == "parquet"))


@dataclass
class Account:
    """Of one slice. `models`: those that use is booked on, in equal parts. `held`: what lies in the run's
    directory now, where that was looked at; `advanced`: whether it gained rows in this slice. `before`: as
    `booked_before`."""

    models: Sequence[str]
    images: int = 0
    seconds: float = 0.0
    held: Held | None = None
    advanced: bool = False
    before: int | None = None
    _latest: StepReport = field(
        default=StepReport(step="start", kind="begin")
    )  # libraries and models that load cost, too
    _changed: bool = True
    _booked_images: int = 0
    _booked_seconds: float = 0.0
    _pending: tuple[int, float] = field(default=(0, 0.0))

    def tell(self, message: StepReport) -> None:
        """Takes a report of the process that the work advances."""
        self._count(message)
        if message.kind == "warning":
            return
        if message.kind == "end" and message.done is None and self._latest.step == message.step:
            self._latest = self._latest.model_copy(update={"rate": None})
        elif message.kind != "progress" or message.done is not None or self._latest.step != message.step:
            self._latest = message  # else it tells of images alone
        self._changed = True

    def end(self, ended: Ended) -> None:
        self._count(ended)

    def _count(self, message: StepReport | Ended) -> None:
        unbooked = 0 if self.before is None else message.present - self.before
        self.images = max(self.images, message.images, unbooked)

    def measure(self, run_path: str) -> None:
        """Looks at the run's directory."""
        before = self.held
        with suppress(OSError):  # the process will say it better
            self.held = measured(run_path)
        if before is not None and self.held is not None and self.held.rows > before.rows:
            self.advanced = self._changed = True

    @property
    def worth_writing(self) -> bool:
        """Whether those who watch would see something new, or much was used."""
        used = self.seconds - self._booked_seconds >= LEAST_SECONDS or self.images > self._booked_images
        return self._changed or used

    @property
    def complete(self) -> bool:
        """Whether the ledger has it all."""
        all_booked = self.images <= self._booked_images and self.seconds <= self._booked_seconds
        return all_booked and not self._changed

    def progress(self) -> Progress:
        """What is new since what was booked; `booked` is called once the ledger has it."""
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
        )

    def booked(self) -> None:
        self._booked_images, self._booked_seconds = self._pending
        self._changed = False

    def booked_are(self, images: int, seconds: float) -> None:
        """What the ledger has booked of this slice, where its answer to the last booking was lost."""
        self._booked_images, self._booked_seconds = images, seconds

    def _images(self, count: int) -> dict[str, int]:
        each, more = divmod(count, len(self.models))
        parts = {model: each + (number < more) for number, model in enumerate(self.models)}
        return {model: part for model, part in parts.items() if part}

    def _seconds(self, seconds: float) -> dict[str, float]:
        return {model: seconds / len(self.models) for model in self.models} if seconds > 0 else {}


def _seconds_left(message: StepReport) -> float | None:
    """Of the stage, at its rate until now."""
    if message.total is None or message.done is None or not message.rate:
        return None
    return round(max(0, message.total - message.done) / message.rate, 1)


def booked_before(claim: Claim) -> int | None:
    """Images that the ledger has of the run that a claim goes on with: what the run holds beyond them was written by a
    runner that was lost before it booked them. None where there was no such runner, and for a question, whose answers
    may be those of the run that it asks."""
    job = claim.job
    begins = claim.fence == 1 and job.run_path is None
    return None if begins or job.kind == "question" else job.images


def models_of(kind: str, config: Mapping[str, Any]) -> list[str]:
    """The models that use of a job is booked on, each once; "" where its config names none, as a question does."""
    known = KINDS.get(kind)
    return (known.models_of(config) if known is not None else []) or [""]
