"""Exports of a run of `c2b latent`: its directions for other programs, and its strips of images for other tools."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from c2b_ray.audits.latent.report import target_of
from c2b_ray.audits.latent.run import LatentRun
from c2b_ray.errors import RunError
from c2b_ray.report import words
from c2b_ray.report.export import about, csv_of, exported, json_of, of_classifier, parquet_of
from c2b_ray.report.formats.folder import Finding, RunImages
from c2b_ray.report.redact import names_of
from c2b_ray.storage.run import Run
from c2b_ray.tables import content_id
from c2b_ray.tables.path import EXPORTED_IMAGES

Row = Mapping[str, Any]


def run_images(run: LatentRun, classifier: str | None = None) -> RunImages:
    """Returns the strips of the directions of the classifier, or of all (None). Raises RunError for a run without
    directions."""
    if not run.has("directions"):
        raise RunError(f"{run.path}: the run has no directions yet; run its c2b latent to the end", run=run.path)
    classifiers = run.problems["classifier"].to_pylist()
    rows = of_classifier(run.directions, classifier, classifiers).to_pylist()
    names = names_of([row["classifier"] for row in rows])
    # The finding names no classifier: its images are no failures, so a view of failures would be empty.
    findings = [Finding(tag_of(row), _sentence(row, names)) for row in rows if row["verdict"] == "found"]
    directions = {row["direction_id"]: row for row in rows}
    title = f"Directions that change the answers of {', '.join(names.values())}"
    return RunImages(partial(_tables, run, directions, names), findings, title, about(run))


def tag_of(row: Row) -> str:
    return f"{target_of(row)}/{row['name'] or 'a direction without a name'}/{row['direction_id'][:8]}"


def _sentence(row: Row, names: Mapping[str, str]) -> str:
    return (
        f"{row['name'] or 'A direction without a name'} moves {target_of(row)} of {names[row['classifier']]} by "
        f"{words.signed(row['effect'])} ({words.signed_range(row['effect_low'], row['effect_high'])})."
    )


def _tables(
    run: LatentRun, directions: Mapping[str, Row], names: Mapping[str, str], with_bytes: bool
) -> Iterator[pa.Table]:
    for part in run.each("strips", run.kind.tables["strips"].names):
        rows = [
            _row(row, directions, names) | ({} if with_bytes else {"bytes": None})
            for row in part.to_pylist()
            if row["direction_id"] in directions
        ]
        yield pa.Table.from_pylist(rows, EXPORTED_IMAGES)


def _row(strip: Row, directions: Mapping[str, Row], names: Mapping[str, str]) -> dict[str, Any]:
    direction = directions[strip["direction_id"]]
    strip_position = f"latent {strip['latent']}, {strip['position']:+g} standard deviations"
    return {
        "image_id": content_id("exported", strip["direction_id"], strip["latent"], strip["position"]),
        "key": strip_position,
        "location": None,
        "bytes": strip["image"],
        "truth": None,
        "text": strip["caption"],
        # P(label) is neither right nor wrong: what a generated image shows is not known.
        "predictions": [
            {
                "classifier": names[direction["classifier"]],
                "label": direction["label"],
                "confidence": strip["probability"],
                "failed": None,
            }
        ],
        "cells": [f"direction/{direction['name'] or direction['direction_id'][:8]}"],
        "tags": [tag_of(direction)] if direction["verdict"] == "found" else [],
    }


# The directions of a run of `c2b latent` in the formats that other programs read: CSV, JSON, Parquet.


def csv(run: Run, classifier: str | None = None) -> bytes:
    table = exported(_directions(run, classifier))
    vectors = [None if row is None else json_module.dumps(row) for row in table["direction"].to_pylist()]
    column = table.schema.get_field_index("direction")
    return csv_of(table.set_column(column, "direction", pa.array(vectors, pa.string())))


def parquet(run: Run, classifier: str | None = None) -> bytes:
    return parquet_of(exported(_directions(run, classifier)))


def json(run: Run, classifier: str | None = None) -> bytes:
    """One object: the run's id, its settings and models, and a row per direction, problem and hyperplane."""
    return json_of(
        {
            **about(run),
            "directions": exported(_directions(run, classifier)).to_pylist(),
            "problems": exported(run.read("problems")).to_pylist(),
            "hyperplanes": exported(run.read("hyperplanes")).to_pylist(),
        }
    )


def _directions(run: Run, classifier: str | None) -> pa.Table:
    return of_classifier(run.read("directions"), classifier, run.read("problems")["classifier"].to_pylist())
