"""What an audit would cost, before it is run: how often each model is asked, and for how long, by a short trial.

It counts by the functions with which the audit itself grants images, and times each model on a few rows in this
process; it draws no image of the audit, asks no language model and writes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from c2b_ray.audits.c2b.budget import first_grant, targets
from c2b_ray.audits.c2b.classes import with_classes
from c2b_ray.audits.c2b.preflight import check, check_specs
from c2b_ray.audits.c2b.size import ASSUMED_ATTRIBUTES, ASSUMED_VALUES
from c2b_ray.audits.kit.backend import AUTO
from c2b_ray.config import AuditConfig, read_audit
from c2b_ray.models import catalog
from c2b_ray.names import normalise
from c2b_ray.roles import GenerationRequest, Question
from c2b_ray.steps.caption import caption
from c2b_ray.steps.caption_pairs import caption_pairs
from c2b_ray.steps.draw import labelled, labelled_pairs, together
from c2b_ray.steps.intersect import pairs
from c2b_ray.steps.propose import propose
from c2b_ray.steps.select import NEAREST, cells_of
from c2b_ray.steps.thresholds import Limit
from c2b_ray.store.labelled import LabelledTable

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


def estimate(config: str | Path | dict[str, Any] | AuditConfig, via: str = AUTO) -> list[Cost]:
    """The cost of an audit, line by line; raises what reading it and loading its models would."""
    asked = read_audit(config)
    check_specs(asked)
    asked = with_classes(asked)
    check(asked, via)
    if asked.images.sources == ("labelled",):
        images = _of_table(asked)
        costs = [Cost("images to read", *images)]
    else:
        captions, note = _captions(asked)
        images = _drawn(asked, captions)
        rows = captions.num_rows
        costs = [Cost("captions", rows, rows, note=note), *_language_model(asked, rows)]
        for source in asked.images.sources:
            costs.append(_source(source, asked, captions, images))
    if asked.verification is not None:
        costs.append(_verified(asked.verification.model, asked, costs, images))
    for name, spec in asked.specs.items():
        costs.append(Cost(f"predictions of {name}", *images, _classifier(spec)))
    return costs


def _captions(asked: AuditConfig) -> tuple[pa.Table, str]:
    """The captions as the audit makes them, with stand-ins for what a language model is still to propose."""
    given, note = dict(asked.attributes or {}), ""
    if asked.language_model is not None:
        values = [f"value {number + 1}" for number in range(ASSUMED_VALUES)]
        known = {normalise(name) for name in given}
        named = dict.fromkeys(name for pair in asked.intersections for name in pair if normalise(name) not in known)
        others = (f"attribute {number + 1}" for number in range(ASSUMED_ATTRIBUTES - len(named)))
        given |= dict.fromkeys([*named, *others], values)
        note = f"assuming {ASSUMED_ATTRIBUTES} attributes of {ASSUMED_VALUES} values a class from the language model"
    proposals, _ = propose(asked.task, asked.classes, None, given, asked.seed)
    captions, _ = caption(asked.task, proposals, None, asked.captions_per_cell, asked.seed, asked.templates)
    of_pairs, _ = caption_pairs(pairs(proposals, asked.intersections), captions, None, asked.seed)
    return pa.concat_tables([captions, of_pairs]), note


def _language_model(asked: AuditConfig, captions: int) -> list[Cost]:
    if asked.language_model is None:
        return []
    requests = len(asked.classes) + 1 + captions
    return [Cost(f"requests to {asked.language_model}", requests, requests)]


def _drawn(asked: AuditConfig, captions: pa.Table) -> tuple[int, int]:
    """Images at the first look and at most, from all sources: what the audit's own functions grant."""
    sources = len(asked.images.sources)
    first = sources * sum(targets(captions, first_grant(captions, asked), asked).values())
    whole = asked.model_copy(update={"budget": None})
    most = sources * sum(targets(captions, first_grant(captions, whole), whole).values())
    if asked.budget is not None:
        most = max(first, min(most, asked.budget.images))
    return first, 2 * most if asked.confirm else most  # confirmed on as many fresh images, at most


def _source(source: str, asked: AuditConfig, captions: pa.Table, images: tuple[int, int]) -> Cost:
    """Each source gives the same share. Of a pool all images may be looked at until enough are accepted."""
    least, most = (number // len(asked.images.sources) for number in images)
    if source == "generate":
        return Cost("images to generate", least, most, _generator(str(asked.images.generator)))
    if asked.images.selection == NEAREST or asked.images.pool is None:
        return Cost("images to retrieve", least, most)
    looked = max(least, _pools(asked, captions))
    return Cost("images to retrieve", least, looked, note=f"at most the {asked.images.pool} of each caption's pool")


def _pools(asked: AuditConfig, captions: pa.Table) -> int:
    """Images in the pools of all captions: of an index with fewer images, all of these once."""
    assert asked.images.pool is not None
    rows = sum(len(own) for own in cells_of(captions).values()) * asked.images.pool
    count = getattr(catalog.index(str(asked.images.index)), "count", None)
    return rows if count is None else min(rows, int(count))


def _verified(spec: str, asked: AuditConfig, costs: list[Cost], images: tuple[int, int]) -> Cost:
    """Every image that was fetched or made, once for each class that it was looked at for: each class looks at pools of
    its own, and pools may overlap."""
    of_pools = asked.images.selection != NEAREST
    classes = {"images to retrieve": len(asked.classes) if of_pools else 1, "images to generate": 1}
    most = sum(cost.most * classes.get(cost.what, 0) for cost in costs)
    note = "an image that several captions drew counts once for each class"
    return Cost("images to verify", images[0], most, _captioner(spec), note)


def _of_table(asked: AuditConfig) -> tuple[int, int]:
    """Images of a labelled table at the first look and at most, those of intersections with them."""
    table = LabelledTable(str(asked.images.table), columns=asked.images.renamed)
    limit = Limit(asked.images_per_caption, asked.seed)
    proposals, captions, draws, wanted = labelled(table.labels, table.revision, asked.classes, asked.attributes, limit)
    more_captions, more_draws, more = labelled_pairs(
        table.labels, table.revision, pairs(proposals, asked.intersections), limit
    )
    rows = together(wanted, more, table.revision).num_rows
    if asked.budget is None:
        return rows, rows
    captions, draws = pa.concat_tables([captions, more_captions]), pa.concat_tables([draws, more_draws])
    there = Counter(draws["caption_id"].to_pylist())
    first = sum(min(images, there[own]) for own, images in first_grant(captions, asked).items())
    return min(first, rows), min(rows, max(first, asked.budget.images))


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
