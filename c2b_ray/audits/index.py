"""Building an index from images, and searching one by caption: what `c2b index` calls.

It composes the embedding pipeline, the encoder and the index; how either works is theirs.
"""

from __future__ import annotations

import json
from typing import Any

from c2b_ray.audits.backend import backend
from c2b_ray.audits.events import Listener, Steps
from c2b_ray.errors import SourceError
from c2b_ray.models import catalog
from c2b_ray.pipelines import index as pipeline


def build(images: str, encoder: str, out: str, via: str = "actors", listener: Listener | None = None) -> dict[str, Any]:
    """Embeds every image of `images` with `encoder` and builds an index at `out`; resumes what was begun.

    Returns `index`, `images` (indexed) and `errors` (images that could not be used, listed in `out`/errors.parquet).
    """
    steps = Steps(listener)
    with backend(via) as models:
        with steps.step("load the encoder"):
            factory = models.encoder(encoder)
            loaded = factory()
            made_by = {
                "images": images,
                "encoder": encoder,
                "encoder_revision": loaded.revision,
                "dimension": loaded.dimension,
            }
        if (summary := pipeline.built(out, made_by)) is not None:
            return summary
        with steps.step("embed images") as on_progress:
            pipeline.embed_source(images, factory, made_by, out, on_progress)
    with steps.step("build the index"):
        return pipeline.build(out, made_by)


def search(index: str, caption: str, k: int) -> list[dict[str, Any]]:
    """The k images nearest to a caption, nearest first: `rank`, `key`, `similarity` and the source's metadata."""
    opened = catalog.index(index)
    encoder = catalog.encoder(opened.encoder)
    if encoder.dimension != opened.dimension:
        raise SourceError(
            f"{index} holds embeddings of {opened.dimension} dimensions, its encoder {opened.encoder} now gives "
            f"{encoder.dimension}: build the index again (c2b index build)"
        )
    found = opened.search(encoder.encode_texts([caption]), k)
    ids = [int(i) for i in found.ids[0] if i >= 0]
    rows = opened.fetch(ids).to_pylist()
    hits = []
    for rank, (row, similarity) in enumerate(zip(rows, found.similarities[0], strict=False)):
        metadata = json.loads(row.get("metadata") or "{}")
        hits.append({"rank": rank, "key": row["key"], "similarity": float(similarity), "metadata": metadata})
    return hits
