"""Tables as JSON, CSV and Parquet, a part at a time. `report.export` cleans their texts."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.endpoint.api.auth import finite_json
from c2b_ray.report.export import csv_of
from c2b_ray.text import finite


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [dict(finite(row)) for row in table.to_pylist()]
    return rows


def json_slices(parts: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yields one JSON list of all rows."""
    between = b"["
    for part in parts:
        if rows := bytes(finite_json(json_rows(part)).body)[1:-1]:
            yield between + rows
            between = b","
    yield b"[]" if between == b"[" else b"]"


def csv_slices(parts: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yields CSV with one header. Lists and structs become JSON; no cell is a formula (`report.export.csv_of`)."""
    for number, part in enumerate(parts):
        data = csv_of(_flat(part))
        yield data.partition(b"\n")[2] if number else data


def parquet_slices(schema: pa.Schema, parts: Iterable[pa.Table]) -> Iterator[bytes]:
    """Yields one Parquet file. At most one part is encoded in memory."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for part in (part for part in parts if part.num_rows):
            writer.write_table(part)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def _flat(table: pa.Table) -> pa.Table:
    for number, field in enumerate(table.schema):
        if pa.types.is_struct(field.type) or (pa.types.is_list(field.type) and not _of_texts(field.type)):
            texts = [
                None if value is None else json.dumps(finite(value), ensure_ascii=False)
                for value in table[field.name].to_pylist()
            ]
            table = table.set_column(number, field.name, pa.array(texts, pa.string()))
    return table


def _of_texts(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) and pa.types.is_string(kind.value_type))
