"""The scores of a run in the formats that other programs read, CSV, JSON, Parquet, and its failures as CSV.

What an export holds may leave the machine, so classifiers are named as on the page, and credentials and places are
taken out of every text. What is not known is empty in CSV and null in JSON and Parquet, never 0. Knows the columns of
`schemas.SCORES`; knows nothing of where an export goes.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from c2b_ray.report.kit.redact import clean, clean_setting, cleaned, told_apart
from c2b_ray.store.c2b_run import C2BRun
from c2b_ray.text import cell, finite, visible, visible_json

SETTINGS = (
    "task", "classes", "right", "tau", "alpha", "seed", "images_per_caption", "captions_per_cell", "intersections",
)  # fmt: skip


def scores_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    return _csv(exported(_of(classifier, run.scores)))


def failures_csv(run: C2BRun, classifier: str | None = None) -> bytes:
    """The images that were answered wrong, as `C2BRun.failures` gives them: columns of `schemas.FAILURES`."""
    return _csv(exported(_of(classifier, run.failures())))


def _of(classifier: str | None, table: pa.Table) -> pa.Table:
    return table if classifier is None else table.filter(pc.equal(table["classifier"], classifier))


def _csv(table: pa.Table) -> bytes:
    """Texts are written by `text.cell`, so that no spreadsheet runs one as a formula; `text.uncell` undoes it. What
    acts on a terminal stands as its escape."""
    for number, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            texts = [None if text is None else cell(visible(text)) for text in table[field.name].to_pylist()]
            table = table.set_column(number, field, pa.array(texts, field.type))
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink)
    return bytes(sink.getvalue().to_pybytes())


def scores_json(run: C2BRun, classifier: str | None = None) -> bytes:
    """One object: the run's id, its settings, its models, and a row per classifier and cell: of one attribute in
    `scores`, of two in `intersections`."""
    manifest = run.manifest
    config = manifest.get("config", {})
    whole = {
        "run_id": manifest.get("run_id"),
        "status": manifest.get("status"),
        "finished": manifest.get("finished"),
        "settings": cleaned({name: config[name] for name in SETTINGS if name in config}),
        "models": cleaned(manifest.get("models", {})),
        "versions": cleaned(manifest.get("versions", {})),
        "scores": exported(_of(classifier, run.scores)).to_pylist(),
        "intersections": exported(_of(classifier, run.intersections)).to_pylist(),
    }
    text = json.dumps(finite(whole), ensure_ascii=False, allow_nan=False, indent=2)
    return (visible_json(text) + "\n").encode()


def scores_parquet(run: C2BRun, classifier: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(exported(_of(classifier, run.scores)), sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def exported(scores: pa.Table) -> pa.Table:
    """The scores with nothing in them that should stay on the machine, and null for NaN."""
    columns = []
    for field in scores.schema:
        column = scores[field.name]
        if pa.types.is_string(field.type):
            shorten = clean_setting if field.name == "classifier" else clean
            names = told_apart(pc.unique(column).drop_null().to_pylist(), shorten)
            texts = [None if text is None else names[text] for text in column.to_pylist()]
            column = pa.chunked_array([pa.array(texts, field.type)])
        elif pa.types.is_floating(field.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, field.type), column)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=scores.schema)
