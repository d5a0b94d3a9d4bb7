"""Embeds images, as the input of an index. It knows neither the index nor where the encoder runs."""

from __future__ import annotations

import json

import pyarrow as pa

from c2b_ray.roles import TextImageEncoder
from c2b_ray.schemas import embeddings
from c2b_ray.steps import encoded
from c2b_ray.steps.prepared import is_pixels

INPUT_COLUMNS = ("key", "bytes", "error")


def embed(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table of `schemas.embeddings`, a row per row of a source (`key`, `bytes`, `error`, any metadata)."""
    vectors, errors = encoded.embedded(rows, encoder)
    extra = [name for name in rows.column_names if name not in INPUT_COLUMNS and not is_pixels(name)]
    metadata = [json.dumps(row, default=str, ensure_ascii=False) for row in rows.select(extra).to_pylist()]
    schema = embeddings(encoder.dimension)
    columns = {
        "key": rows["key"],
        "bytes": rows["bytes"],
        "embedding": pa.array(vectors, schema.field("embedding").type),
        "metadata": pa.array(metadata if extra else ["{}"] * rows.num_rows, pa.string()),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns).cast(schema)
