"""Embeds images, as the input of an index or of distances between sets, and finds the nearest images of captions in it.

It knows neither how an index works nor where encoder and index run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.errors import SourceError
from c2b_ray.roles import Description, Floats, ImageIndex, Neighbours, Pixels, TextImageEncoder
from c2b_ray.steps import encoded
from c2b_ray.steps.decode import decode_batch
from c2b_ray.steps.draw import RETRIEVE, draws_of, wanted
from c2b_ray.steps.encoded import files_of
from c2b_ray.steps.prepared import is_pixels
from c2b_ray.tables import RETRIEVED, SEARCHES, content_id, embeddings
from c2b_ray.tables.dataset import FEATURES

INPUT_COLUMNS = ("key", "bytes", "error")


def embed(rows: pa.Table, encoder: TextImageEncoder) -> pa.Table:
    """Returns a table of `tables.embeddings`, a row per row of a source (`key`, `bytes`, `error`, any metadata)."""
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


# Feature vectors of images by a network.


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
    """Returns a table of `tables.dataset.FEATURES`. `rows`: its columns except `vector`, and `bytes`."""
    row_errors = rows["error"].to_pylist()
    images, decoding_errors = decode_batch(files_of(rows))
    errors = [old_error or new for old_error, new in zip(row_errors, decoding_errors, strict=True)]
    sound = [image for image in images if image is not None]
    vectors = iter(extractor.features(sound)) if sound else iter(())
    values: list[NDArray[np.float32] | None] = []
    for i, image in enumerate(images):
        vector = None if image is None else next(vectors)
        if vector is not None and not np.isfinite(vector).all():
            vector, errors[i] = None, "the network gave no features (they are not numbers)"
        values.append(vector)
    columns = {name: rows[name] for name in FEATURES.names if name not in ("vector", "error")}
    columns["vector"] = pa.array(values, pa.list_(pa.float32()))
    columns["error"] = pa.array(errors, pa.string())
    return pa.table([columns[name] for name in FEATURES.names], FEATURES)


def matrix(table: pa.Table) -> NDArray[np.float32]:
    """The vectors of a table of `tables.dataset.FEATURES` without errors, (rows, dimension)."""
    column = table["vector"].combine_chunks()
    values = column.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values, np.float32).reshape(table.num_rows, -1)


def unit(table: pa.Table) -> NDArray[np.float32]:
    """As `matrix`, each of length 1; a zero vector stays zero."""
    vectors = matrix(table)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    result: NDArray[np.float32] = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    return result


# The nearest images of captions: by key, as `c2b index search --captions` writes them, and as draws.


@dataclass(frozen=True)
class CaptionSearch:
    """An encoder and the index of its embeddings. Raises SourceError where the index is another encoder's."""

    encoder: TextImageEncoder
    index: ImageIndex

    def __post_init__(self) -> None:
        check_encoder(self.encoder, self.index)


def check_encoder(encoder: TextImageEncoder | Description, index: ImageIndex | Description) -> None:
    """Raises SourceError where the index holds the embeddings of another encoder, or of other weights under the same
    name.

    Texts of one encoder are near to images of another only by chance.
    """
    if encoder.dimension != index.dimension:
        raise SourceError(
            f"the index holds embeddings of {index.encoder} with {index.dimension} dimensions, the encoder gives "
            f"{encoder.dimension}: build the index with this encoder (c2b index build)"
        )
    # What stands behind a plus sign changes images' embeddings by rounding alone, such as a GPU's decoder.
    if encoder.revision.partition("+")[0] != index.encoder_revision.partition("+")[0]:
        raise SourceError(
            f"the index holds embeddings of {index.encoder} at revision {index.encoder_revision}, the encoder is at "
            f"revision {encoder.revision}: build the index again (c2b index build), or load the weights that made it"
        )


COSINE = 1.01
"""The largest cosine that is one: half precision, and what an index compresses, round so far beyond 1."""


def nearest_of(index: ImageIndex, embeddings: Floats, k: int) -> Neighbours:
    """Returns the index's answer. Raises SourceError where a similarity is no cosine, which shows a damaged index."""
    result = index.search(embeddings, k)
    cosines = result.similarities[result.ids >= 0]
    if not bool(np.all(np.abs(cosines) <= COSINE)):  # NaN fails the comparison too
        worst = cosines[~(np.abs(cosines) <= COSINE)][0]
        raise SourceError(
            f"the index gives a similarity of {worst:g} where a cosine lies in [-1, 1]: it is damaged, or its vectors "
            "are not of unit length; rebuild it with c2b index build"
        )
    return result


def search(captions: pa.Table, finder: CaptionSearch, k: int) -> pa.Table:
    """Returns a table of `tables.SEARCHES`, a row per row of `caption_id`, `row`, `caption`. An empty caption has an
    error."""
    texts = captions["caption"].to_pylist()
    with_text = [n for n, text in enumerate(texts) if text.strip()]
    result = nearest_of(finder.index, finder.encoder.encode_texts([texts[n] for n in with_text]), k)
    is_found = result.ids >= 0
    distinct, positions = np.unique(result.ids[is_found], return_inverse=True)
    keys = finder.index.metadata(distinct.tolist())["key"].combine_chunks().take(pa.array(positions.reshape(-1)))
    counts = np.zeros(len(texts), np.int32)
    counts[with_text] = is_found.sum(axis=1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    errors = [None if text.strip() else "an empty caption" for text in texts]
    columns = {
        "caption_id": captions["caption_id"],
        "row": captions["row"],
        "caption": captions["caption"],
        "keys": pa.ListArray.from_arrays(offsets, keys),
        "similarities": pa.ListArray.from_arrays(offsets, pa.array(result.similarities[is_found], pa.float32())),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns).cast(SEARCHES)


def retrieve(captions: pa.Table, encoder: TextImageEncoder, index: ImageIndex, k: int) -> tuple[pa.Table, pa.Table]:
    """Returns the k nearest images of each caption (C2B, Eq. 5): a table of `tables.DRAWS`, and one of the images to
    fetch.

    Raises SourceError where the index was built with another encoder.
    """
    searches = to_retrieve(captions, encoder.revision, index.revision, k)
    return retrieved(captions, nearest(searches, CaptionSearch(encoder, index), k), index.revision)


def to_retrieve(captions: pa.Table, encoder: str, index: str, k: int) -> pa.Table:
    """Returns the rows for `nearest`: captions with an id that depends on the text, the index and the search's
    settings."""
    texts = captions["text"].to_pylist()
    ids = [
        content_id("retrieve", caption, text, encoder, index, k)
        for caption, text in zip(captions["caption_id"].to_pylist(), texts, strict=True)
    ]
    return pa.table({"retrieval_id": ids, "caption_id": captions["caption_id"], "text": captions["text"]})


def nearest(searches: pa.Table, finder: CaptionSearch, k: int) -> pa.Table:
    """Returns the k nearest images of each row of `to_retrieve`: a table of `tables.RETRIEVED`."""
    result = nearest_of(finder.index, finder.encoder.encode_texts(searches["text"].to_pylist()), k)
    is_found = result.ids >= 0
    offsets = pa.array(np.concatenate([[0], np.cumsum(is_found.sum(axis=1))]), pa.int32())
    columns = {
        "retrieval_id": searches["retrieval_id"],
        "caption_id": searches["caption_id"],
        "rows": pa.ListArray.from_arrays(offsets, pa.array(result.ids[is_found], pa.int64())),
        "similarities": pa.ListArray.from_arrays(offsets, pa.array(result.similarities[is_found], pa.float32())),
    }
    return pa.table(columns).cast(RETRIEVED)


def retrieved(captions: pa.Table, result: pa.Table, revision: str) -> tuple[pa.Table, pa.Table]:
    """Returns draws and images to fetch, from `nearest`'s result for these captions, in their order."""
    order = pc.index_in(captions["caption_id"], result["caption_id"].combine_chunks())
    result = result.take(order).combine_chunks()
    rows = pc.list_flatten(result["rows"]).to_numpy()
    owners = pc.list_parent_indices(result["rows"]).to_numpy()
    starts = np.concatenate([[0], np.cumsum(pc.list_value_length(result["rows"]).to_numpy())])
    draws = draws_of(
        result["caption_id"].combine_chunks().take(pa.array(owners)),
        rows,
        revision,
        np.arange(len(rows)) - starts[owners],
        pc.list_flatten(result["similarities"]).combine_chunks(),
        RETRIEVE,
    )
    return draws, wanted(rows, revision)
