"""The example pictures of a run of `c2b prompts` for other tools: each with its prompt, and the value that the prompt
is to bring about."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from c2b_ray.audits.prompts.report.rows import search_sentences
from c2b_ray.audits.prompts.run import PromptsRun
from c2b_ray.errors import Argument, ConfigError, RunError
from c2b_ray.report.export import about, exported
from c2b_ray.report.formats.images import Finding, RunImages
from c2b_ray.tables import content_id
from c2b_ray.tables.exported import EXPORTED_IMAGES


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
