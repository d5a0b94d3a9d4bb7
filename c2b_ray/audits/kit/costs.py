"""Estimates what work would cost, by a short trial of each model in this process: lines of an estimate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.models import catalog
from c2b_ray.roles import GenerationRequest, Question
from c2b_ray.steps.draw import Rows
from c2b_ray.steps.fetch import Load
from c2b_ray.steps.image_properties import measured

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


def measurements(load: Load, rows: Rows) -> Cost:
    """Returns the cost of measuring these rows of a source, by a trial of some of them, from all parts of it."""
    some = rows[:: max(1, len(rows) // TRIAL)][:TRIAL]
    trial = pa.table({"image_id": [str(row) for row in some], "row": some})
    rate = _per_second(lambda: measured(trial, load), len(some)) if len(some) else None
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
