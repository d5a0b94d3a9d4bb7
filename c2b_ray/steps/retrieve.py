"""Retrieves draws for captions: the nearest images of each caption in an index.

It does not know where encoder and index are; the images' bytes are fetched afterwards, in batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.errors import SourceError
from c2b_ray.roles import Description, Floats, ImageIndex, Neighbours, TextImageEncoder
from c2b_ray.steps.draw import RETRIEVE, draws_of, wanted
from c2b_ray.tables import RETRIEVED, SEARCHES, content_id

# Finds the nearest images of captions, by key, as `c2b index search --captions` writes them.


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
    """Returns a table of `schemas.SEARCHES`, a row per row of `caption_id`, `row`, `caption`. An empty caption has an
    error."""
    texts = captions["caption"].to_pylist()
    with_text = [n for n, text in enumerate(texts) if text.strip()]
    result = nearest_of(finder.index, finder.encoder.encode_texts([texts[n] for n in with_text]), k)
    kept = result.ids >= 0
    distinct, positions = np.unique(result.ids[kept], return_inverse=True)
    keys = finder.index.metadata(distinct.tolist())["key"].combine_chunks().take(pa.array(positions.reshape(-1)))
    counts = np.zeros(len(texts), np.int32)
    counts[with_text] = kept.sum(axis=1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())
    errors = [None if text.strip() else "an empty caption" for text in texts]
    columns = {
        "caption_id": captions["caption_id"],
        "row": captions["row"],
        "caption": captions["caption"],
        "keys": pa.ListArray.from_arrays(offsets, keys),
        "similarities": pa.ListArray.from_arrays(offsets, pa.array(result.similarities[kept], pa.float32())),
        "error": pa.array(errors, pa.string()),
    }
    return pa.table(columns).cast(SEARCHES)


def retrieve(captions: pa.Table, encoder: TextImageEncoder, index: ImageIndex, k: int) -> tuple[pa.Table, pa.Table]:
    """Returns the k nearest images of each caption (C2B, Eq. 5): a table of `schemas.DRAWS`, and one of the images to
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
    """Returns the k nearest images of each row of `to_retrieve`: a table of `schemas.RETRIEVED`."""
    result = nearest_of(finder.index, finder.encoder.encode_texts(searches["text"].to_pylist()), k)
    kept = result.ids >= 0
    offsets = pa.array(np.concatenate([[0], np.cumsum(kept.sum(axis=1))]), pa.int32())
    columns = {
        "retrieval_id": searches["retrieval_id"],
        "caption_id": searches["caption_id"],
        "rows": pa.ListArray.from_arrays(offsets, pa.array(result.ids[kept], pa.int64())),
        "similarities": pa.ListArray.from_arrays(offsets, pa.array(result.similarities[kept], pa.float32())),
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
