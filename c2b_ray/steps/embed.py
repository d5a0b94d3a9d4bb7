"""Embeds images, as the input of an index. It knows neither the index nor where the encoder runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.roles import Floats, Pixels, TextImageEncoder
from c2b_ray.steps import encoded
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.encoded import files_of
from c2b_ray.steps.prepared import is_pixels
from c2b_ray.tables import embeddings
from c2b_ray.tables.evaluation import FEATURES

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


# Computes feature vectors of images by a network. It knows neither the network nor where images come from.


class FeatureExtractor(Protocol):
    """A network without its last layer. `name`: a description of the features."""

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    def features(self, images: Sequence[Pixels]) -> Floats:
        """Returns float32 (images, dimension); a row of NaN where an image has no features."""
        ...


def extract(rows: pa.Table, extractor: FeatureExtractor) -> pa.Table:
    """Returns a table of `schemas.FEATURES`. `rows`: its columns except `vector`, and `bytes`."""
    known = rows["error"].to_pylist()
    images, undecoded = decode_batch(files_of(rows))
    errors = [before or new for before, new in zip(known, undecoded, strict=True)]
    sound = [image for image in images if image is not None]
    vectors = iter(extractor.features(sound)) if sound else iter(())
    values: list[NDArray[np.float32] | None] = []
    for at, image in enumerate(images):
        vector = None if image is None else next(vectors)
        if vector is not None and not np.isfinite(vector).all():
            vector, errors[at] = None, "the network gave no features (they are not numbers)"
        values.append(vector)
    columns = {name: rows[name] for name in FEATURES.names if name not in ("vector", "error")}
    columns["vector"] = pa.array(values, pa.list_(pa.float32()))
    columns["error"] = pa.array(errors, pa.string())
    return pa.table([columns[name] for name in FEATURES.names], FEATURES)


def matrix(table: pa.Table) -> NDArray[np.float32]:
    """The vectors of a table of `schemas.FEATURES` without errors, (rows, dimension)."""
    column = table["vector"].combine_chunks()
    values = column.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values, np.float32).reshape(table.num_rows, -1)


def unit(table: pa.Table) -> NDArray[np.float32]:
    """As `matrix`, each of length 1; a zero vector stays zero."""
    vectors = matrix(table)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return result
