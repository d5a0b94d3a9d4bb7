"""Retrieves draws for captions: the nearest images of each caption in an index.

It does not know where encoder and index are; the images' bytes are fetched afterwards, in batches.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.roles import ImageIndex, TextImageEncoder
from c2b_ray.schemas import RETRIEVED, content_id
from c2b_ray.steps.draw import RETRIEVE, draws_of, wanted
from c2b_ray.steps.search import Finder, nearest_of


def retrieve(captions: pa.Table, encoder: TextImageEncoder, index: ImageIndex, k: int) -> tuple[pa.Table, pa.Table]:
    """Returns the k nearest images of each caption (C2B, Eq. 5): a table of `schemas.DRAWS`, and one of the images to
    fetch.

    Raises SourceError where the index was built with another encoder.
    """
    searches = to_retrieve(captions, encoder.revision, index.revision, k)
    return retrieved(captions, nearest(searches, Finder(encoder, index), k), index.revision)


def to_retrieve(captions: pa.Table, encoder: str, index: str, k: int) -> pa.Table:
    """Returns the rows for `nearest`: captions with an id that depends on the text, the index and the search's
    settings."""
    texts = captions["text"].to_pylist()
    ids = [
        content_id("retrieve", caption, text, encoder, index, k)
        for caption, text in zip(captions["caption_id"].to_pylist(), texts, strict=True)
    ]
    return pa.table({"retrieval_id": ids, "caption_id": captions["caption_id"], "text": captions["text"]})


def nearest(searches: pa.Table, finder: Finder, k: int) -> pa.Table:
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
