"""A table of a run in the formats that other programs read: CSV, JSON, Parquet.

An export may leave the machine, so classifiers are named as on the page, and credentials and paths are removed from
every text. Unknown values are empty in CSV and null in JSON and Parquet, never 0. Knows no kind of run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from c2b_ray.errors import ConfigError, nearest
from c2b_ray.report.kit.redact import clean, clean_setting, cleaned, distinct_names
from c2b_ray.store.run import Run
from c2b_ray.text import cell, finite, visible, visible_json

SPECS = ("classifier", "generator", "source")
"""Columns that hold the specs of models, which may hold paths."""


def csv_of(table: pa.Table) -> bytes:
    """Texts are written by `text.cell`, so that no spreadsheet runs one as a formula. Terminal
    control characters are escaped. Lists of texts become one text, separated by semicolons."""
    for number, field in enumerate(table.schema):
        values = table[field.name].to_pylist() if _is_text(field.type) else ()
        if pa.types.is_list(field.type):
            values = [None if texts is None else "; ".join(texts) for texts in values]
        if _is_text(field.type):
            texts = [None if text is None else cell(visible(text)) for text in values]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(table, sink)
    return bytes(sink.getvalue().to_pybytes())


def json_of(document: Mapping[str, Any]) -> bytes:
    text = json.dumps(finite(document), ensure_ascii=False, allow_nan=False, indent=2)
    return (visible_json(text) + "\n").encode()


def parquet_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def of_classifier(table: pa.Table, classifier: str | None, known: Iterable[str | None]) -> pa.Table:
    """Returns the rows of one classifier; all rows if None. Raises ConfigError for one that is not among `known`."""
    if classifier is None:
        return table
    names = {name for name in (*known, *table["classifier"].to_pylist()) if name}
    if classifier not in names:
        raise ConfigError("--classifier", f"the run has no classifier {classifier!r}; {nearest(classifier, names)}")
    return only(table, classifier)


def only(table: pa.Table, classifier: str | None) -> pa.Table:
    """Returns the rows of one classifier; all rows if None."""
    return table if classifier is None else table.filter(pc.equal(table["classifier"], classifier))


def about(run: Run, settings: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns what a JSON document begins with: the run's id and state, its settings of these names (None: all), its
    models and versions."""
    manifest, config = run.manifest, run.manifest.get("config", {})
    return {
        **{name: manifest.get(name) for name in ("run_id", "status", "finished")},
        "settings": cleaned({name: config[name] for name in settings or config if name in config}),
        "models": cleaned(manifest.get("models", {})),
        "versions": cleaned(manifest.get("versions", {})),
    }


def exported(table: pa.Table) -> pa.Table:
    """Returns the table without credentials and paths, and with null for NaN."""
    columns = []
    for field in table.schema:
        column = table[field.name]
        if pa.types.is_string(field.type):
            shorten = clean_setting if field.name in SPECS else clean
            names = distinct_names(pc.unique(column).drop_null().to_pylist(), shorten)
            texts = [None if text is None else names[text] for text in column.to_pylist()]
            column = pa.chunked_array([pa.array(texts, field.type)])
        elif _is_text(field.type):
            lists = [None if texts is None else [clean(text) for text in texts] for texts in column.to_pylist()]
            column = pa.chunked_array([pa.array(lists, field.type)])
        elif pa.types.is_floating(field.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, field.type), column)
        columns.append(column)
    known = zip(table.schema, columns, strict=True)
    # A column that may not hold null in the run may hold NaN, which is null from here on; Parquet refuses it else.
    schema = pa.schema([field.with_nullable(field.nullable or column.null_count > 0) for field, column in known])
    return pa.Table.from_arrays(columns, schema=schema.with_metadata(table.schema.metadata))


def _is_text(kind: pa.DataType) -> bool:
    """Tells whether a type is text or a list of texts."""
    return bool(pa.types.is_string(kind) or (pa.types.is_list(kind) and pa.types.is_string(kind.value_type)))
