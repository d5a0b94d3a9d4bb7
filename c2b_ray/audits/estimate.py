"""What an audit would cost, before it is run: how often each model is asked, and for how long, by a short trial.

It counts what the audit's settings ask for and times each model on a few rows in this process; it draws no image of the
audit, asks no language model and writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from c2b_ray.audits.classes import with_classes
from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.models import catalog
from c2b_ray.roles import GenerationRequest, Question
from c2b_ray.steps.draw import labelled
from c2b_ray.store.labelled import LabelledTable

ASSUMED_ATTRIBUTES, ASSUMED_VALUES = 7, 4
"""Of each class, where a language model is still to propose them: what C2B's and ours gave, about."""

TRIAL = 32
_SIDE = 224


@dataclass(frozen=True)
class Cost:
    """One line of an estimate: `least` and `most` rows, rows a second on trial (None: not tried), and what is meant."""

    what: str
    least: int
    most: int
    per_second: float | None = None
    note: str = ""

    @property
    def seconds(self) -> tuple[float, float] | None:
        return None if self.per_second is None else (self.least / self.per_second, self.most / self.per_second)


def estimate(config: str | Path | dict[str, Any] | AuditConfig) -> list[Cost]:
    """The cost of an audit, line by line; raises what reading it and loading its models would."""
    asked = with_classes(read_audit(config))
    if asked.images.sources == ("labelled",):
        least = most = _rows_of_table(asked)
        costs = [Cost("images to read", least, most)]
    else:
        captions = _captions(asked)
        least, most = _drawn(asked, captions.most)
        costs = [captions, *_asked_of_language_model(asked, captions.most)]
        for source in asked.images.sources:
            share = len(asked.images.sources)
            speed = _generator(str(asked.images.generator)) if source == "generate" else None
            what = "images to generate" if source == "generate" else "images to retrieve"
            costs.append(Cost(what, least // share, most // share, speed))
    if asked.verification is not None:
        speed = _captioner(asked.verification.model)
        costs.append(Cost("images to verify", least, most, speed, "an image that several captions drew counts once"))
    for name, spec in asked.specs.items():
        costs.append(Cost(f"predictions of {name}", least, most, _classifier(spec)))
    return costs


def _captions(asked: AuditConfig) -> Cost:
    own = sum(len(values) for values in (asked.attributes or {}).values())
    values, note = own, ""
    if asked.language_model is not None:
        values += ASSUMED_ATTRIBUTES * ASSUMED_VALUES
        note = f"assuming {ASSUMED_ATTRIBUTES} attributes of {ASSUMED_VALUES} values a class from the language model"
    cells = len(asked.classes) * values * asked.captions_per_cell
    return Cost("captions", cells, cells, note=note)


def _asked_of_language_model(asked: AuditConfig, captions: int) -> list[Cost]:
    if asked.language_model is None:
        return []
    requests = len(asked.classes) + 1 + captions
    return [Cost(f"requests to {asked.language_model}", requests, requests)]


def _drawn(asked: AuditConfig, captions: int) -> tuple[int, int]:
    sources, most_of_caption = len(asked.images.sources), asked.images_per_caption or 0
    most = captions * most_of_caption * sources
    if asked.budget is None:
        return most, most
    first = captions * min(asked.budget.first, most_of_caption) * sources
    return first, max(first, min(most, asked.budget.images))


def _rows_of_table(asked: AuditConfig) -> int:
    table = LabelledTable(str(asked.images.table), columns=asked.images.renamed)
    limit = (asked.images_per_caption, asked.seed)
    *_, wanted = labelled(table.labels, table.revision, asked.classes, asked.attributes, limit)
    return int(wanted.num_rows)


def _per_second(work: Callable[[], object], rows: int) -> float:
    work()  # the first call also allocates and compiles
    began = time.perf_counter()
    work()
    return rows / (time.perf_counter() - began)


def _pictures() -> list[np.ndarray[Any, np.dtype[np.uint8]]]:
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (_SIDE, _SIDE, 3), np.uint8) for _ in range(TRIAL)]


def _classifier(spec: str) -> float | None:
    if catalog.parse(spec).scheme in ("http", "https", "table"):
        return None  # a service is not asked for nothing, a table knows no such pictures
    model = catalog.classifier(spec)
    pictures, keys = _pictures(), [str(row) for row in range(TRIAL)]
    return _per_second(lambda: model.logits(pictures, keys), TRIAL)


def _captioner(spec: str) -> float | None:
    if catalog.parse(spec).scheme in ("openai", "scripted"):
        return None
    model = catalog.captioner(spec)
    pictures, questions = _pictures(), [Question("Is it day or night?", ("day", "night"))] * TRIAL
    return _per_second(lambda: model.answer(pictures, questions), TRIAL)


def _generator(spec: str) -> float:
    model = catalog.image_generator(spec)
    requests = [GenerationRequest("a photo of a bus", row) for row in range(4)]
    return _per_second(lambda: model.generate(requests), len(requests))
