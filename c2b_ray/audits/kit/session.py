"""A run as it is made: what it will cost, where it runs, how long its steps take, and what its manifest says of that.

It starts neither models nor Ray by itself.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa

from c2b_ray.audits.kit.backend import AUTO, backend, chosen_via
from c2b_ray.audits.kit.loaders import Backend
from c2b_ray.audits.kit.progress import IMAGES, IMAGES_HELD, Event, Listener, notebook_bars
from c2b_ray.config.placement import PlacementConfig
from c2b_ray.engine.progress import Progress
from c2b_ray.models import catalog
from c2b_ray.roles import GenerationRequest, Question
from c2b_ray.steps.draw import RowNumbers
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.image_properties import measured
from c2b_ray.storage.run import Run

TRIAL = 32
_SIDE = 224


@dataclass(frozen=True)
class Cost:
    """One line of an estimate: `least` and `most` rows, rows per second in the trial (None: not tried), and a note."""

    what: str
    least: int
    most: int
    per_second: float | None = None
    note: str = ""

    @property
    def seconds(self) -> tuple[float, float] | None:
        return None if self.per_second is None else (self.least / self.per_second, self.most / self.per_second)


def _per_second(work: Callable[[], object], rows: int) -> float:
    work()  # the first call also allocates and compiles
    began = time.perf_counter()
    work()
    return rows / (time.perf_counter() - began)


def _pictures() -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (_SIDE, _SIDE, 3), np.uint8) for _ in range(TRIAL)]


def classifications(spec: str) -> float | None:
    if catalog.parse(spec).scheme in ("http", "https", "table"):
        return None  # a service is not called for nothing, a table has no such pictures
    model = catalog.classifier(spec)
    pictures, keys = _pictures(), [str(row) for row in range(TRIAL)]
    return _per_second(lambda: model.logits(pictures, keys), TRIAL)


def measurements(load: Load, rows: RowNumbers) -> Cost:
    """Returns the cost of measuring these rows of a source, by a trial of some of them, from all parts of it."""
    sample = rows[:: max(1, len(rows) // TRIAL)][:TRIAL]
    trial = pa.table({"image_id": [str(row) for row in sample], "row": sample})
    rate = _per_second(lambda: measured(trial, load), len(sample)) if len(sample) else None
    return Cost("images to measure", len(rows), len(rows), rate, "all of them, before any is classified")


def descriptions(spec: str) -> float | None:
    if catalog.parse(spec).scheme in ("openai", "scripted"):
        return None
    model = catalog.captioner(spec)
    return _per_second(lambda: model.caption(_pictures(), ["thing"] * TRIAL), TRIAL)


def embeddings(spec: str) -> float:
    model = catalog.encoder(spec)
    return _per_second(lambda: model.encode_images(_pictures()), TRIAL)


def answers(spec: str) -> float | None:
    if catalog.parse(spec).scheme in ("openai", "scripted"):
        return None
    model = catalog.captioner(spec)
    pictures, questions = _pictures(), [Question("Is it day or night?", ("day", "night"))] * TRIAL
    return _per_second(lambda: model.answer(pictures, questions), TRIAL)


def generations(spec: str) -> float:
    model = catalog.image_generator(spec)
    requests = [GenerationRequest("a photo of a bus", row) for row in range(4)]
    return _per_second(lambda: model.generate(requests), len(requests))


# A command's session: where its stages and models run, how these are placed, and who listens. It starts nothing.


EVERY_S = 0.2


class Steps:
    """Times the steps of an audit and tells a listener; without one, the bars of the notebook that this is run from."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = notebook_bars() if listener is None else listener
        self.seconds: dict[str, float] = {}
        self._counts: Counter[str] = Counter()

    @contextmanager
    def step(self, name: str, images_per_row: float | None = None) -> Iterator[Callable[[Progress], None]]:
        """Runs the body as step `name`; yields the callback that takes the body's progress. `images_per_row`: as in
        `Event`."""
        began = time.monotonic()
        self._tell(Event(name, "begin"))
        yield lambda progress: self._tell(
            Event(name, "progress", time.monotonic() - began, progress, images_per_row=images_per_row)
        )
        took = time.monotonic() - began
        self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)  # a step may come again
        counts, self._counts = self._counts, Counter()
        self._tell(Event(name, "end", round(took, 3), counts=counts))

    @contextmanager
    def counting(self, name: str, total: int, what: str) -> Iterator[Callable[[int], None]]:
        """Runs the body as step `name`, which is no stage; yields the function that it calls with how many of `total`
        are done."""
        with self.step(name, images_per_row=0) as on_progress:
            began = time.monotonic()

            def tell(done: int) -> None:
                rate = done / max(time.monotonic() - began, 1e-9)
                on_progress(Progress(done, 0, 0, total, rate, done, what))

            yield tell

    def count(self, counts: Mapping[str, int]) -> None:
        """Adds to the counts that the current step reports at its end."""
        self._counts.update(counts)

    @contextmanager
    def images(
        self, name: str, stored: Callable[[], int], made: Callable[[], int] = lambda: 0
    ) -> Iterator[Callable[[], None]]:
        """Reports how many images the body took, within step `name`, whose rows take varying numbers; also where it is
        stopped.

        `stored`: returns the images of all rows that the run has. `made`: returns those that this process has made,
        including those of rows that it did not write. Yields a function that reports the images made so far, for long
        rows; called at each batch, it raises what the listener raises.
        """
        held_before, made_before, told, last = stored(), made(), 0, time.monotonic()

        def now() -> None:
            nonlocal told, last
            if time.monotonic() - last >= EVERY_S:
                last, took = time.monotonic(), made() - made_before - told
                told += took
                self._tell(Event(name, "progress", counts={IMAGES: took}))

        try:
            yield now
        finally:
            held_after = stored()
            took = max(held_after - held_before, made() - made_before) - told
            self._tell(Event(name, "progress", counts={IMAGES: took, IMAGES_HELD: held_after}))

    def warn(self, what: str) -> None:
        self._tell(Event(what, "warning"))

    def _tell(self, event: Event) -> None:
        if self._listener is not None:
            self._listener(event)


@dataclass(frozen=True)
class Session:
    """`via`: here, actors, serve, or auto. `placement`: None: it follows from the cluster's resources."""

    via: str = AUTO
    placement: PlacementConfig | None = None
    listener: Listener | None = None

    def chosen(self, images: Callable[[], int | None]) -> str:
        """Returns where the work runs, for at most `images` images. With a placement, `auto` is `actors`: a placement
        file is for Ray's processes."""
        return chosen_via("actors" if self.placement is not None and self.via == AUTO else self.via, images)

    def backend(self, images: Callable[[], int | None]) -> AbstractContextManager[Backend]:
        return backend(self.chosen(images), self.placement)


# The part of a run's manifest about how it was made: counts of rows and of errors, versions of packages.


PACKAGES = (
    "c2b-ray", "ray", "torch", "torchvision", "timm", "open_clip_torch", "transformers", "diffusers", "peft",
    "faiss-cpu", "onnxruntime", "pyarrow", "numpy", "scipy", "pillow",
)  # fmt: skip


class Finished(TypedDict):
    """A manifest's entries about the end of its run."""

    status: str
    finished: str
    via: str
    seconds: dict[str, float]
    counts: dict[str, int]
    versions: dict[str, str]


def finished(via: str, steps: Steps, rows: Mapping[str, int]) -> Finished:
    """Returns the manifest's entries once a run's tables are whole. `rows`: the number of rows of each table."""
    return {
        "status": "finished",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "via": via,
        "seconds": steps.seconds,
        "counts": dict(rows),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    result = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            result[package] = version(package)
        except PackageNotFoundError:
            continue
    return result


def counts(run: Run) -> dict[str, int]:
    """Returns the rows of each table, and the images and predictions that have errors."""
    result = {name: run.count(name) for name in ("proposals", "rejected", "captions", "draws", "scores")}
    for name, errors in (("images", "image_errors"), ("predictions", "prediction_errors")):
        result[name] = run.count(name)
        result[errors] = sum(len(part) - part["error"].null_count for part in run.each(name, ["error"]))
    return result
