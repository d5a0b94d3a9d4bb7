"""images → embeddings: what an index is built from. It knows neither the index nor where the encoder runs."""

from __future__ import annotations

import json

import pyarrow as pa

from c2b_ray.roles import TextImageEncoder
from c2b_ray.schemas import embeddings
from c2b_ray.steps.decode import decode_batch

OWN = ("key", "bytes", "error")


def embed(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """A table of `schemas.embeddings`, a row per row of a source (`key`, `bytes`, `error`, any metadata)."""
    pixels, result = decode_batch(rows["bytes"].to_pylist())
    errors = [given or new for given, new in zip(rows["error"].to_pylist(), result, strict=True)]
    good = [i for i, error in enumerate(errors) if error is None]
    vectors: list[list[float] | None] = [None] * rows.num_rows
    if good:
        embedded = encoder.encode_images([pixels[i] for i in good])  # type: ignore[misc]
        for i, vector in zip(good, embedded, strict=True):
            vectors[i] = vector.tolist()
    extra = [name for name in rows.column_names if name not in OWN]
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
