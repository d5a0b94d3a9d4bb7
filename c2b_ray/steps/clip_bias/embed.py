"""Computes embeddings of images and texts, with permanent ids. It knows neither where the encoder runs nor what is
embedded."""

from __future__ import annotations

import pyarrow as pa

from c2b_ray.roles import TextImageEncoder
from c2b_ray.schemas.clip_bias import CLIP_EMBEDDINGS
from c2b_ray.steps import encoded


def embed_images(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table of `CLIP_EMBEDDINGS` from `embedding_id`, `bytes` and `error`; images that cannot be decoded get
    an error."""
    return _table(rows, *encoded.embedded(rows, encoder))


def embed_texts(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table like that of `embed_images`, from `embedding_id` and `text`."""
    vectors = encoder.encode_texts(rows["text"].to_pylist())
    return _table(rows, [vector.tolist() for vector in vectors], [None] * rows.num_rows)


def _table(rows: pa.Table, vectors: list[list[float] | None], errors: list[str | None]) -> pa.Table:
    columns = {
        "embedding_id": rows["embedding_id"],
        "embedding": pa.array(vectors, CLIP_EMBEDDINGS.field("embedding").type),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns).cast(CLIP_EMBEDDINGS)
