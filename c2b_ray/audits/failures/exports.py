"""Exports of a run of `c2b failures`: its hypotheses for other programs, and its failures for other tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from c2b_ray.audits.failures.comparison import classifiers_of
from c2b_ray.audits.failures.config import ANY_LABEL
from c2b_ray.audits.failures.discovery.rounds import SAMPLE
from c2b_ray.audits.failures.report.facts import Facts, read_facts
from c2b_ray.audits.failures.report.rows import Hypothesis
from c2b_ray.audits.failures.report.sentences import says, sentence, target_of
from c2b_ray.audits.failures.run import FailuresRun
from c2b_ray.audits.kit.models import one_of
from c2b_ray.errors import Argument, RunError
from c2b_ray.report.export import about, csv_of, exported, exported_only, json_of, parquet_of
from c2b_ray.report.formats.folder import Finding, Place, RunImages, place_of
from c2b_ray.storage.labelled import TARGET
from c2b_ray.tables import content_id
from c2b_ray.tables.path import EXPORTED_IMAGES

SETTINGS = ("labels", "rule", "confidence", "hierarchy", "prompt", "targets", "budget", "alpha", "seed")


def csv(run: FailuresRun, classifier: str | None = None) -> bytes:
    return csv_of(_hypotheses(run, classifier))


def parquet(run: FailuresRun, classifier: str | None = None) -> bytes:
    return parquet_of(_hypotheses(run, classifier))


def json(run: FailuresRun, classifier: str | None = None) -> bytes:
    """Returns one object: the run's id, its settings, its models, and a row per hypothesis, transfer and label
    drawn."""
    return json_of(
        {
            **about(run, SETTINGS),
            "hypotheses": _hypotheses(run, classifier).to_pylist(),
            "transfers": exported_only(run.transfers, _chosen(run, classifier)).to_pylist(),
            "reliability": exported(run.reliability).to_pylist(),
        }
    )


def _hypotheses(run: FailuresRun, classifier: str | None) -> pa.Table:
    """Returns the hypotheses of a classifier, or of all (None). Raises RunError for a run without any."""
    if not run.has("hypotheses"):
        raise RunError(f"{run.path}: the run has no hypotheses yet; run its c2b failures to the end", run=run.path)
    return exported_only(run.hypotheses, _chosen(run, classifier))


def _chosen(run: FailuresRun, classifier: str | None) -> str | None:
    return None if classifier is None else one_of(classifiers_of(run), classifier, Argument.CLASSIFIER, run.path)


# The failures that a run of `c2b failures` kept pictures of, for other tools: each with its caption, the answers,
# and the findings that it is part of.


IMAGE_SETTINGS = ("labels", "rule", "confidence", "prompt", "alpha", "seed")
Bytes = dict[str, bytes]


def run_images(run: FailuresRun, classifier: str | None = None) -> RunImages:
    """Returns the failures of the classifier, or of all (None). Raises RunError for a run without hypotheses."""
    if not run.has("hypotheses"):
        raise RunError(f"{run.path}: the run has no hypotheses yet; run its c2b failures to the end", run=run.path)
    only, facts = _chosen(run, classifier), read_facts(run)
    leads = [finding.lead for finding in facts.findings if only in (None, finding.lead.classifier)]
    image_locations = place_of((run.record.config.get("images") or {}).get("labelled"))
    findings = [
        Finding(
            tag_of(one),
            "".join(span.text for span in sentence(one, facts.names[one.classifier], facts.wording)),
            facts.names[one.classifier],
        )
        for one in leads
    ]
    tables = partial(_tables, run, facts, leads, only, image_locations)
    return RunImages(
        tables=tables,
        findings=findings,
        title=f"Failures of {', '.join(facts.names[name] for name in facts.names if only in (None, name))}",
        about=about(run, IMAGE_SETTINGS),
        read=partial(_read, run, facts),
        root=image_locations.root,
    )


def tag_of(hypothesis: Hypothesis) -> str:
    return f"{hypothesis.label}/{target_of(hypothesis)}/{says(hypothesis)}"


@dataclass
class _Image:
    """What the rounds say of one image."""

    truth: str | None
    text: str
    row: int | None  # of a labelled image, in its table
    predictions: dict[str, dict[str, Any]] = field(default_factory=dict)
    cells: dict[str, None] = field(default_factory=dict)
    tags: dict[str, None] = field(default_factory=dict)


def _tables(
    run: FailuresRun,
    facts: Facts,
    leads: list[Hypothesis],
    classifier: str | None,
    image_locations: Place,
    with_bytes: bool,
) -> Iterator[pa.Table]:
    """Yields a table per part of the rounds; an image of several captions or classifiers comes once."""
    images = _images(run, facts, leads, classifier, image_locations)
    rows = [image.row for image in images.values() if image.row is not None]
    location_of_row = dict(zip(rows, image_locations.locations(rows), strict=True))
    keys = None if image_locations.opened is None else image_locations.opened.keys
    for data in _kept(run, facts):
        images_in_part = {key: images.pop(key) for key in data if key in images}
        yield pa.Table.from_pylist(
            [
                {
                    "image_id": key,
                    "key": None if keys is None or image.row is None else keys[image.row].as_py(),
                    "location": (location := None if image.row is None else location_of_row[image.row]),
                    "bytes": data[key] if with_bytes and location is None else None,
                    "truth": image.truth,
                    "text": image.text,
                    "predictions": list(image.predictions.values()),
                    "cells": list(image.cells),
                    "tags": list(image.tags),
                }
                for key, image in images_in_part.items()
            ],
            EXPORTED_IMAGES,
        )


def _images(
    run: FailuresRun, facts: Facts, leads: list[Hypothesis], classifier: str | None, image_locations: Place
) -> dict[str, _Image]:
    captions = {row["caption_id"]: row for row in run.candidates.to_pylist()}
    truths = None if image_locations.opened is None else image_locations.opened.labels[TARGET]
    images: dict[str, _Image] = {}
    for row, example in _examples(run):
        if classifier not in (None, row["classifier"]):
            continue
        caption = captions[row["caption_id"]]
        row_number = example["seed"] if facts.labelled else None
        label = truths[row_number].as_py() if truths is not None and row_number is not None else caption["label"]
        image = images.setdefault(
            _key(facts, row, example), _Image(None if label == ANY_LABEL else label, caption["text"], row_number)
        )
        name = facts.names[row["classifier"]]
        answer = {"label": example["predicted"], "confidence": example["confidence"], "failed": True}
        image.predictions[name] = {"classifier": name, **answer}
        image.cells |= dict.fromkeys(caption["sentences"])
        caption_and_classifier = (row["caption_id"], row["classifier"])
        hit = [lead for lead in leads if (lead.caption_id, lead.classifier) == caption_and_classifier]
        image.tags |= {tag_of(lead): None for lead in hit if lead.target in (None, example["predicted"])}
    return images


def _examples(run: FailuresRun) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yields each failure that is pictured, with its round."""
    for table in run.each("rounds", ["caption_id", "part", "generator", "classifier", "examples"]):
        for row in table.to_pylist():
            if row["part"] != SAMPLE:  # whose images need not be failures
                yield from ((row, example) for example in row["examples"] if example["image"] is not None)


def _kept(run: FailuresRun, facts: Facts) -> Iterator[Bytes]:
    """Yields the pictures by key, some at a time."""
    data: Bytes = {}
    for row, example in _examples(run):
        data[_key(facts, row, example)] = example["image"]
        if len(data) >= 256:
            yield data
            data = {}
    yield data


def _read(run: FailuresRun, facts: Facts, keys: list[str]) -> Bytes:
    wanted_keys = set(keys)
    return {key: data for part in _kept(run, facts) for key, data in part.items() if key in wanted_keys}


def _key(facts: Facts, row: Mapping[str, Any], example: Mapping[str, Any]) -> str:
    """Returns the image's id. A labelled image is one image under all captions, a seed another one under each."""
    caption_part = "" if facts.labelled else row["caption_id"]
    return content_id("exported", row["generator"], caption_part, example["seed"])
