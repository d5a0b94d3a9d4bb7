"""Tables as JSON, CSV and Parquet, a slice at a time. `report.kit.export` cleans their texts."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.report.kit.export import csv_of
from c2b_ray.text import finite

ROWS = 5000


def json_rows(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [dict(finite(row)) for row in table.to_pylist()]
    return rows


def csv_of_slices(table: pa.Table) -> Iterator[bytes]:
    """Yields CSV with one header. Lists and structs become JSON; no cell is a formula (`report.kit.export.csv_of`)."""
    for start in range(0, max(table.num_rows, 1), ROWS):
        data = csv_of(_flat(table.slice(start, ROWS)))
        yield data if start == 0 else data.partition(b"\n")[2]


def parquet_slices(table: pa.Table) -> Iterator[bytes]:
    """Yields one Parquet file. At most one slice is encoded in memory."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
        for start in range(0, max(table.num_rows, 1), ROWS):
            writer.write_table(table.slice(start, ROWS))
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
