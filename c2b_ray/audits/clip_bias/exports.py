"""Exports of a run of `c2b clip-bias`: its biases for other programs, and its example images for other tools."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.clip_bias import wording
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.errors import Argument, ConfigError, RunError, nearest
from c2b_ray.report import words
from c2b_ray.report.export import about, csv_of, exported, json_of, parquet_of
from c2b_ray.report.formats.folder import Finding, RunImages
from c2b_ray.report.redact import names_of
from c2b_ray.tables import content_id
from c2b_ray.tables.path import EXPORTED_IMAGES

SETTINGS = ("recall_k", "hit", "skew_k", "skew_share", "skew_rule", "groups", "amplification", "leakage", "window",
            "chance", "alpha", "seed")  # fmt: skip


def csv(run: ClipBiasRun, model: str | None = None) -> bytes:
    return csv_of(exported(_biases(run, model)))


def parquet(run: ClipBiasRun, model: str | None = None) -> bytes:
    return parquet_of(exported(_biases(run, model)))


def json(run: ClipBiasRun, model: str | None = None) -> bytes:
    """One object: the run's id, its settings, its models, and a row per bias and correlation."""
    correlations = {
        name: exported(run.read(name)).to_pylist() for name in ("transfer", "locality", "model_pairs", "convergence")
    }
    return json_of({**about(run, SETTINGS), "biases": exported(_biases(run, model)).to_pylist(), **correlations})


def _biases(run: ClipBiasRun, model: str | None) -> pa.Table:
    """Returns the biases of a model, or of all (None). Raises RunError for a run without any."""
    if not run.has("clip_bias"):
        raise RunError(f"{run.path}: nothing is measured yet; run its c2b clip-bias to the end", run=run.path)
    known = run.biases["model"].unique().to_pylist()
    if model is not None and model not in known:
        raise ConfigError(Argument.CLASSIFIER, f"{run.path} has no model {model!r}; {nearest(model, known)}")
    return run.biases if model is None else run.biases.filter(pc.equal(run.biases["model"], model))


# The example images of the groups of a run of `c2b clip-bias` for other tools, with the biases found in each group.


def run_images(run: ClipBiasRun, model: str | None = None) -> RunImages:
    """Returns the examples, and the findings of the model, or of all (None). Raises RunError for a run without
    biases."""
    if not run.has("clip_bias"):
        raise RunError(f"{run.path}: nothing is measured yet; run its c2b clip-bias to the end", run=run.path)
    names = names_of(run.biases["model"].unique().to_pylist())
    if model is not None and model not in names:
        raise ConfigError(Argument.CLASSIFIER, f"{run.path} has no model {model!r}; {nearest(model, names)}")
    alpha = run.config.alpha
    rows = [
        row
        for row in run.biases.to_pylist()
        if row["q_value"] <= alpha and row["view"] == "local" and model in (None, row["model"])
    ]
    findings = [
        Finding(
            f"{row['dataset']}/{row['group']}",
            f"{names[row['model']]}, {row['metric']} of {row['attribute']} in group {row['group']} of "
            f"{row['dataset']}: {wording.amount(row['value'])} "
            f"({wording.amounts(row['value_low'], row['value_high'])}).",
        )
        for row in sorted(rows, key=lambda row: (row["q_value"], -row["value"]))
    ]
    tables = partial(_tables, run, {finding.tag for finding in findings})
    models_shown = [names[name] for name in names if model in (None, name)]
    title = f"Groups in which {words.listed(models_shown)} {'is' if len(models_shown) == 1 else 'are'} biased"
    return RunImages(tables, findings, title, about(run))


def _tables(run: ClipBiasRun, tags: set[str], with_bytes: bool) -> Iterator[pa.Table]:
    for part in run.each("examples", ["dataset", "group", "key", "caption", "bytes"]):
        yield pa.Table.from_pylist(
            [
                {
                    "image_id": content_id("exported", row["dataset"], row["group"], row["key"]),
                    "key": row["key"],
                    "location": None,
                    "bytes": row["bytes"] if with_bytes else None,
                    "truth": None,
                    "text": row["caption"],
                    "predictions": [],
                    "cells": [f"group/{row['group']}"],
                    "tags": [tag] if (tag := f"{row['dataset']}/{row['group']}") in tags else [],
                }
                for row in part.to_pylist()
            ],
            EXPORTED_IMAGES,
        )
