"""Exports of a run of `c2b prompts`: its prompts for other programs, and its pictures for other tools."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from c2b_ray.audits.prompts.run import PromptsRun
from c2b_ray.audits.prompts.summary import search_sentences
from c2b_ray.errors import Argument, ConfigError, RunError
from c2b_ray.report.export import about, csv_of, exported, json_of, parquet_of
from c2b_ray.report.formats.folder import Finding, RunImages
from c2b_ray.report.redact import cleaned
from c2b_ray.storage.run import Run
from c2b_ray.tables import content_id
from c2b_ray.tables.path import EXPORTED_IMAGES


def run_images(run: PromptsRun, classifier: str | None = None) -> RunImages:
    """Returns the pictures. Raises RunError for a run without prompts, ConfigError for a classifier: there is none."""
    if classifier is not None:
        raise ConfigError(Argument.CLASSIFIER, "a run of c2b prompts has no classifiers")
    if not run.has("prompts"):
        raise RunError(f"{run.path}: the run has no prompts yet; run its c2b prompts to the end", run=run.path)
    gains = exported(run.read("gains")).to_pylist()
    of_value: dict[str, list[str]] = {}
    for row in gains:
        of_value.setdefault(f"{row['attribute']}/{row['value']}", []).extend(search_sentences([row]))
    findings = [Finding(tag, text) for tag, texts in of_value.items() for text in texts]
    return RunImages(
        partial(_tables, run, {finding.tag for finding in findings}),
        findings,
        "Pictures of prompts with a hidden bias",
        about(run),
    )


def _tables(run: PromptsRun, tags: set[str], with_bytes: bool) -> Iterator[pa.Table]:
    for part in run.each("examples", ["example_id", "attribute", "value", "generator", "prompt", "pictures"]):
        yield pa.Table.from_pylist(
            [
                {
                    "image_id": content_id("exported", row["example_id"], number),
                    "key": f"picture {number}",
                    "location": None,
                    "bytes": data if with_bytes else None,
                    "truth": None,
                    "text": row["prompt"],
                    "predictions": [],
                    "cells": [cell := f"{row['attribute']}/{row['value']}"],
                    "tags": [cell] if cell in tags else [],
                }
                for row in part.to_pylist()
                for number, data in enumerate(row["pictures"])
                if data is not None
            ],
            EXPORTED_IMAGES,
        )


# The prompts of a run of `c2b prompts` in the formats that other programs read: CSV, JSON, Parquet.


TABLES = ("prompts", "methods", "gains", "associations", "modifiers", "heads")


def csv(run: Run, classifier: str | None = None) -> bytes:
    return csv_of(exported(_complete(run, classifier).read("prompts")))


def parquet(run: Run, classifier: str | None = None) -> bytes:
    return parquet_of(exported(_complete(run, classifier).read("prompts")))


def json(run: Run, classifier: str | None = None) -> bytes:
    """One object: the run's id, its settings, its models, and the rows of each table."""
    manifest = _complete(run, classifier).manifest
    tables = {name: exported(run.read(name)).to_pylist() for name in TABLES}
    run_fields = {name: manifest.get(name) for name in ("run_id", "status", "finished", "notes")}
    cleaned_parts = {name: cleaned(manifest.get(name, {})) for name in ("config", "models", "versions")}
    return json_of({**run_fields, **cleaned_parts, **tables})


def _complete(run: Run, classifier: str | None) -> Run:
    if classifier is not None:
        raise ConfigError(Argument.CLASSIFIER, "a run of c2b prompts has no classifiers")
    if not run.has("prompts"):
        raise RunError(f"{run.path}: the run has no prompts yet; run its c2b prompts to the end", run=run.path)
    return run
