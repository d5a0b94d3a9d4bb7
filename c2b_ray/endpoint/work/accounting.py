"""What a slice used and how far it is, as the ledger books it: each image and each second once.

It adds up what the process tells and what it costs, and knows no database.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pyarrow import fs

from c2b_ray.endpoint.ledger.job import Progress
from c2b_ray.endpoint.work.protocol import Ended, Told
from c2b_ray.filesystems import resolve

LEAST_SECONDS = 1.0
"""Of use that is worth a line of its own while nothing else changes."""


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
    """Of one slice. `models`: the classifiers that use is booked on, in equal parts. `held`: what lies in the run's
    directory now, where that was looked at; `advanced`: whether it gained rows in this slice. `before`: images that
    the ledger has of claims before this one, whose runner may have been lost with rows written and not booked; None for
    a first claim."""

    models: Sequence[str]
    images: int = 0
    seconds: float = 0.0
    held: Held | None = None
    advanced: bool = False
    before: int | None = None
    _told: Told = field(default=Told(step="start", kind="begin"))  # libraries and models that load cost, too
    _changed: bool = True
    _booked_images: int = 0
    _booked_seconds: float = 0.0
    _pending: tuple[int, float] = field(default=(0, 0.0))

    def tell(self, told: Told) -> None:
        """How the process says that the work moves."""
        self._count(told)
        if told.kind == "warning":
            return
        if told.kind == "end" and told.done is None and self._told.step == told.step:
            self._told = self._told.model_copy(update={"rate": None})
        else:
            self._told = told
        self._changed = True

    def end(self, ended: Ended) -> None:
        self._count(ended)

    def _count(self, told: Told | Ended) -> None:
        unbooked = 0 if self.before is None else told.present - self.before
        self.images = max(self.images, told.images, unbooked)

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
        told = self._told
        held = None if self.held is None else self.held.total
        return Progress(
            stage=told.step,
            done=told.done,
            total=told.total,
            rate=None if told.rate is None else round(told.rate, 3),
            seconds_left=_seconds_left(told),
            images=self._images(images),
            model_seconds=self._seconds(seconds),
            bytes=held,
            advanced=self.advanced,
        )

    def booked(self) -> None:
        self._booked_images, self._booked_seconds = self._pending
        self._changed = False

    def booked_are(self, images: int, seconds: float) -> None:
        """What the ledger has of this slice, where it did not say whether it kept the last that it was told."""
        self._booked_images, self._booked_seconds = images, seconds

    def _images(self, count: int) -> dict[str, int]:
        each, more = divmod(count, len(self.models))
        parts = {model: each + (number < more) for number, model in enumerate(self.models)}
        return {model: part for model, part in parts.items() if part}

    def _seconds(self, seconds: float) -> dict[str, float]:
        return {model: seconds / len(self.models) for model in self.models} if seconds > 0 else {}


def _seconds_left(told: Told) -> float | None:
    """Of the stage, at its rate until now."""
    if told.total is None or told.done is None or not told.rate:
        return None
    return round(max(0, told.total - told.done) / told.rate, 1)


def models_of(config: dict[str, object]) -> list[str]:
    """The classifiers that a config names, each once; "" where it names none, as a question does."""
    named = config.get("classifier")
    if isinstance(named, dict):
        named = list(named.values())
    specs = named if isinstance(named, list) else [named]
    return list(dict.fromkeys(str(spec) for spec in specs if spec)) or [""]
