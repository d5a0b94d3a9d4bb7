"""Builds an index from images or embeddings, and searches one by captions, for `c2b index`.

It composes the pipelines, the encoder and the index; it does not know how any of them works.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import Any

from c2b_ray.audits.kit.progress import Listener
from c2b_ray.audits.kit.session import Session, Steps
from c2b_ray.engine import index as pipeline
from c2b_ray.engine import index as search
from c2b_ray.engine.sources import clip_retrieval
from c2b_ray.engine.sources.datasets import opened
from c2b_ray.engine.sources.files import sizes
from c2b_ray.engine.stage import StageResult
from c2b_ray.models import catalog
from c2b_ray.models.index.plan import IndexWishes
from c2b_ray.roles import Description
from c2b_ray.steps.retrieve import CaptionSearch

DEFAULT = IndexWishes()
ALONE = Session()


def build(
    images: str,
    encoder: str,
    out: str,
    session: Session = ALONE,
    wish: IndexWishes = DEFAULT,
) -> dict[str, Any]:
    """Embeds every image of `images` with `encoder` and builds an index at `out`; resumes an interrupted build.

    An existing index is left as it is. Raises RunError where the files of `images` have changed since. A folder of
    clip-retrieval's embeddings is imported; its images must be below it. Returns `index`, `images` (indexed), `errors`
    (images that could not be used, listed in `out`/errors.parquet), `left_out` (reason → files that are no images),
    `kind`, `shards` and `memory`.
    """
    if clip_retrieval.is_folder(images):
        return import_folder(images, encoder, out, listener=session.listener, wish=wish)
    source = opened(images)
    rows, steps = source.rows, Steps(session.listener)
    for sentence in source.left_out.sentences():
        steps.warn(sentence)
    with session.backend(lambda: rows.total) as models:
        models.runner.check_paths(None, {images: "images"})
        with steps.step("load the encoder"):
            factory = models.encoder(encoder)
            description = models.describe("encoder", encoder)
            made_by = _made_by(images, description, encoder, wish)
        listed = sizes(images)
        if (summary := pipeline.built(out, made_by, listed)) is not None:
            return summary
        with steps.step("embed images") as on_progress:
            pipeline.embed_source(models.runner, rows, factory, made_by, out, on_progress, description.shape)
    with steps.step("build the index"):
        return pipeline.build(out, made_by, wish, listed, source.left_out.as_dict())


def import_folder(
    folder: str,
    encoder: str,
    out: str,
    images: str | None = None,
    *,
    moved_from: str | None = None,
    skip_bad: bool = False,
    listener: Listener | None = None,
    wish: IndexWishes = DEFAULT,
) -> dict[str, Any]:
    """Builds an index at `out` from the embeddings in `folder`, made by `encoder`.

    Images stay where they are and are read on demand: below `images` (None: `folder`) or in the WebDataset shards
    there. `moved_from`: the prefix of the paths in the metadata, if the images have been moved. `skip_bad` leaves out
    zero and NaN rows, and counts them.
    """
    steps = Steps(listener)
    with steps.step("load the encoder"):
        made_by = _made_by(folder, catalog.described("encoder", encoder), encoder, wish)
        made_by |= {"images_at": images, "moved_from": moved_from, "skip_bad": skip_bad}
    listed = sizes(folder)
    if (summary := pipeline.built(out, made_by, listed)) is not None:
        return summary
    with steps.step("look through the embeddings"):
        source = clip_retrieval.partitions(folder, images or folder, moved_from=moved_from, skip_bad=skip_bad)
    with steps.step("build the index"):
        return pipeline.import_folder(out, made_by, wish, source, listed)


def search_one(index: str, caption: str, k: int) -> list[dict[str, Any]]:
    """Returns the k images nearest to a caption, nearest first: `rank`, `key`, `similarity` and the source's
    metadata."""
    image_index = catalog.index(index)
    finder = CaptionSearch(catalog.encoder(image_index.encoder), image_index)
    neighbours = image_index.search(finder.encoder.encode_texts([caption]), k)
    ids = [int(i) for i in neighbours.ids[0] if i >= 0]
    hits = []
    for rank, (row, similarity) in enumerate(
        zip(image_index.metadata(ids).to_pylist(), neighbours.similarities[0], strict=False)
    ):
        metadata = json.loads(row.get("metadata") or "{}")
        hits.append({"rank": rank, "key": row["key"], "similarity": float(similarity), "metadata": metadata})
    return hits


def search_many(index: str, captions: str, out: str, k: int, session: Session = ALONE) -> StageResult:
    """Writes the k nearest images of every caption in a file, as `tables.SEARCHES` under `out`; resumes an earlier
    call."""
    rows = search.read_captions(captions)
    steps = Steps(session.listener)
    with session.backend(lambda: rows.total) as models:
        models.runner.check_paths(None, {index: "index", captions: "captions"})
        with steps.step("open the index"):
            description = models.describe("index", index)
            of_index, of_encoder = models.index(index), models.encoder(description.encoder)
            made_by = {"captions": captions, "index": description.revision, "k": k}
        with steps.step("search") as on_progress:
            finder = partial(search.finder_of, of_encoder, of_index)
            return search.search_captions(models.runner, rows, finder, made_by, out, on_progress)


def _made_by(images: str, description: Description, encoder: str, wishes: IndexWishes) -> dict[str, Any]:
    made_by = {
        "images": images,
        "encoder": encoder,
        "encoder_revision": description.revision,
        "dimension": description.dimension,
    }
    return made_by if wishes == DEFAULT else {**made_by, "wish": asdict(wishes)}
