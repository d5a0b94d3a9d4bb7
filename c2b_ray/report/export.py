"""A table of a run in the formats that other programs read: CSV, JSON, Parquet.

An export may leave the machine, so classifiers are named as on the page, and credentials and paths are removed from
every text. Unknown values are empty in CSV and null in JSON and Parquet, never 0. Knows no kind of run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from c2b_ray.errors import Argument, ConfigError, nearest
from c2b_ray.report.redact import clean, clean_setting, cleaned, distinct_names
from c2b_ray.storage.run import Run
from c2b_ray.text import cell, finite, visible, visible_json

SPECS = ("classifier", "generator", "source")
"""Columns that hold the specs of models, which may hold paths."""
Names = Mapping[str, Mapping[str, str]]
"""By column, the names of the texts that are not shown as they are."""
_TEXTS_AT_ONCE = 4096


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
        raise ConfigError(
            Argument.CLASSIFIER, f"the run has no classifier {classifier!r}; {nearest(classifier, names)}"
        )
    return only(table, classifier)


def only(table: pa.Table, classifier: str | None) -> pa.Table:
    """Returns the rows of one classifier; all rows if None."""
    return table if classifier is None else table.filter(pc.equal(table["classifier"], classifier))


def exported_only(table: pa.Table, classifier: str | None) -> pa.Table:
    """Returns the rows of `only`, `exported`; the classifier has the name that it has among the others."""
    return exported(only(table, classifier), names_in(table.schema, lambda _: [table]))


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


def exported(table: pa.Table, names: Names | None = None) -> pa.Table:
    """Returns the table without credentials and paths, and with null for NaN, so columns of floats may hold null.

    `names`: of the whole table (`names_in`), where `table` is a part of it. By default `table` is the whole.
    """
    names = names_in(table.schema, lambda _: [table]) if names is None else names
    columns, fields = [], []
    for field in table.schema:
        column = table[field.name]
        if of_column := names.get(field.name):
            texts = [text if text is None else _short(of_column, text) for text in column.to_pylist()]
            column = pa.chunked_array([pa.array(texts, field.type)])
        elif _is_text(field.type) and pa.types.is_list(field.type):
            lists = [None if texts is None else [clean(text) for text in texts] for texts in column.to_pylist()]
            column = pa.chunked_array([pa.array(lists, field.type)])
        elif pa.types.is_floating(field.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, field.type), column)
            field = field.with_nullable(True)
        columns.append(column)
        fields.append(field)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, table.schema.metadata))


def names_in(schema: pa.Schema, read: Callable[[list[str]], Iterable[pa.Table]]) -> Names:
    """Returns the names of a table's texts, so that each text has one name in every part of the table.

    `read`: returns the parts of the table with these columns. It is called a second time where texts are changed, to
    find those that are equal to the short form of another. Only changed texts are kept in memory.
    """
    columns = [field.name for field in schema if pa.types.is_string(field.type)]
    changed: dict[str, dict[str, str]] = {column: {} for column in columns}
    for part in read(columns) if columns else ():
        for column in columns:
            shorten = clean_setting if column in SPECS else clean
            changed[column].update(_changed(_distinct(part[column]), shorten))
    changed = {column: of_column for column, of_column in changed.items() if of_column}
    texts_of_column: dict[str, dict[str, None]] = {column: {} for column in changed}
    short = {column: set(of_column.values()) for column, of_column in changed.items()}
    for part in read(list(changed)) if changed else ():
        for column, equal in texts_of_column.items():
            equal.update(dict.fromkeys(text for text in _distinct(part[column]) if text in short[column]))
    return {
        column: distinct_names([*of_column, *texts_of_column[column]], partial(_short, of_column))
        for column, of_column in changed.items()
    }


def _short(changed: Mapping[str, str], text: str) -> str:
    return changed.get(text, text)


def _distinct(column: pa.ChunkedArray) -> list[str]:
    texts: list[str] = pc.unique(column).drop_null().to_pylist()
    return texts


def _changed(texts: list[str], shorten: Callable[[str], str]) -> dict[str, str]:
    """Returns the short forms of the texts that `shorten` changes."""
    if shorten is clean:  # no pattern uses line ends, so one call tells that a thousand texts have nothing to remove
        groups = [texts[start : start + _TEXTS_AT_ONCE] for start in range(0, len(texts), _TEXTS_AT_ONCE)]
        texts = [text for group in groups if clean(lines := "\n".join(group)) != lines for text in group]
    return {text: short for text in texts if (short := shorten(text)) != text}


def _is_text(kind: pa.DataType) -> bool:
    """Tells whether a type is text or a list of texts."""
    return bool(pa.types.is_string(kind) or (pa.types.is_list(kind) and pa.types.is_string(kind.value_type)))
