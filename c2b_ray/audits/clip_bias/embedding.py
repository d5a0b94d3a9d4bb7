"""Embeds a dataset's images and texts by every model: once, in a stage; afterwards embeddings are read from the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.audits.clip_bias.captioned import CaptionedTable
from c2b_ray.audits.clip_bias.run import ClipBiasRun
from c2b_ray.audits.clip_bias.steps.retrieval import Vectors, embed_images, embed_texts
from c2b_ray.engine.images import CLASSIFY, FETCH, OnProgress, of_revision
from c2b_ray.engine.stage import Rows, Runner, StageConfig
from c2b_ray.errors import SourceError
from c2b_ray.roles import TextImageEncoder
from c2b_ray.storage.parts import absent, digests, opened, writing
from c2b_ray.tables import content_id, content_ids
from c2b_ray.tables.clip_bias import CLIP_EMBEDDINGS

FETCHED_AT_ONCE = 256
READ_AT_ONCE = 4096
TEXTS_AT_ONCE = 2048
IMAGES = replace(CLASSIFY, schema=CLIP_EMBEDDINGS, stage="embed", rows_per_file=2048)
TEXTS = StageConfig(CLIP_EMBEDDINGS, stage="embed", rows_per_file=4096)
LEAST_USABLE = 0.5


@dataclass(frozen=True)
class Files:
    """A table's images, and the hash of each one's bytes as they are now; None where they cannot be read."""

    table: CaptionedTable
    contents: list[str | None]


@dataclass(frozen=True)
class Encoder:
    """A model of the run: how the stage loads it, and its expected revision."""

    name: str
    spec: str
    revision: str
    factory: Callable[[], TextImageEncoder]

    def image_ids(self, files: Files) -> list[str]:
        keys_and_contents = [
            list(key_and_content) for key_and_content in zip(files.table.keys, files.contents, strict=True)
        ]
        return content_ids("clip-bias image", keys_and_contents, self.revision)

    def text_ids(self, texts: Sequence[str]) -> list[str]:
        return content_ids("clip-bias text", list(texts), self.revision)


@dataclass(frozen=True)
class Embedding:
    """Makes and keeps embeddings. `earlier`: a run whose embeddings are copied where it has them."""

    run: ClipBiasRun
    runner: Runner
    earlier: ClipBiasRun | None = None

    def files(self, table: CaptionedTable) -> Files:
        """Reads every image, since a file may have been replaced under its name after the run embedded it."""
        pieces = [range(start, min(start + READ_AT_ONCE, len(table))) for start in range(0, len(table), READ_AT_ONCE)]
        contents = self.runner.call_each([partial(_contents, table, rows) for rows in pieces], FETCH)
        return Files(table, [content for piece in contents for content in piece])

    def embed(self, encoder: Encoder, files: Files, on_progress: OnProgress) -> None:
        """Embeds the images that the run does not hold yet."""
        load = partial(of_revision, encoder.factory, encoder.revision, encoder.spec)
        images, out = encoder.image_ids(files), self.run.location("embeddings")
        ids = pa.table({"embedding_id": images, "row": pa.array(range(len(images)), pa.int64())})
        rows = replace(
            Rows.of(ids, FETCHED_AT_ONCE),
            expand=partial(_fetched, table=files.table),
            ids=lambda: iter([pa.array(images)]),
        )
        config = replace(IMAGES, total=len(ids))
        self.run.begin_writing()
        self._take_over(images)
        self.runner.run(rows, embed_images, load, out, id_column="embedding_id", config=config, on_progress=on_progress)

    def embed_texts(self, encoder: Encoder, texts: Sequence[str], on_progress: OnProgress) -> None:
        """Embeds the texts that the run does not hold yet."""
        load = partial(of_revision, encoder.factory, encoder.revision, encoder.spec)
        distinct, out = list(dict.fromkeys(texts)), self.run.location("embeddings")
        if not distinct:
            return
        self.run.begin_writing()
        self._take_over(encoder.text_ids(distinct))
        texts_wanted = pa.table({"embedding_id": encoder.text_ids(distinct), "text": distinct})
        config = replace(TEXTS, total=len(texts_wanted))
        self.runner.run(
            Rows.of(texts_wanted, TEXTS_AT_ONCE), embed_texts, load, out, id_column="embedding_id", config=config,
            on_progress=on_progress,
        )  # fmt: skip

    def _take_over(self, ids: Sequence[str]) -> None:
        """Copies from the earlier run the embeddings of these ids that this run lacks. An id contains the model's
        revision."""
        if self.earlier is None:
            return
        marks = np.unique(digests(pa.array(ids, pa.string())))
        source = opened(self.earlier.location("embeddings"))
        with writing(self.run.location("embeddings")) as parts:
            ids_here = parts.census("embedding_id").ids
            for name in source.names():
                table = source.read(name)
                of_ids = ~absent(table["embedding_id"], marks) & absent(table["embedding_id"], ids_here)
                is_wanted = of_ids & np.asarray(table["error"].is_null())
                if is_wanted.any():
                    parts.write(table.filter(pa.array(is_wanted)), "embedding_id")

    def read(self, ids: Sequence[str]) -> tuple[Vectors, list[str | None]]:
        """Returns embeddings by id, float32 (ids, dimension), and for each id why there is none; its row is then NaN.

        Parts that hold none of the ids are not read beyond their ids.
        """
        marks = np.unique(digests(pa.array(ids, pa.string())))
        parts = opened(self.run.location("embeddings"))
        tables = []
        for name in parts.names():
            ids_of_part = parts.read(name, ("embedding_id",))["embedding_id"]
            if not absent(ids_of_part, marks).all():
                table = parts.read(name)
                tables.append(table.filter(pa.array(~absent(table["embedding_id"], marks))))
        embeddings = pa.concat_tables(tables) if tables else CLIP_EMBEDDINGS.empty_table()
        positions = pc.index_in(pa.array(ids, pa.string()), embeddings["embedding_id"].combine_chunks())
        if positions.null_count:
            raise SourceError(
                f"{self.run.path}/embeddings lacks {positions.null_count:,} rows; delete it and run again"
            )
        rows = embeddings.take(positions)
        errors: list[str | None] = rows["error"].to_pylist()
        vectors = rows["embedding"].combine_chunks()
        is_usable = np.array([error is None for error in errors], bool)
        flat = vectors.filter(pa.array(is_usable)).flatten().to_numpy(zero_copy_only=False)
        width = len(flat) // max(int(is_usable.sum()), 1)
        result = np.full((len(ids), width), np.nan, np.float32)
        result[is_usable] = flat.reshape(int(is_usable.sum()), width)
        return result, errors


def usable(table: CaptionedTable, errors: dict[str, list[str | None]]) -> tuple[list[int], str | None]:
    """Returns the rows that every model embedded, and a note on the others. Raises SourceError where fewer than half of
    the rows are usable."""
    rows = [row for row in range(len(table)) if all(of_model[row] is None for of_model in errors.values())]
    left_out = len(table) - len(rows)
    if not left_out:
        return rows, None
    reason = next(error for of_model in errors.values() for error in of_model if error is not None)
    if len(rows) < LEAST_USABLE * len(table):
        raise SourceError(f"{table.location}: {left_out:,} of {len(table):,} images cannot be used; such as: {reason}")
    return (
        rows,
        f"{left_out:,} of {len(table):,} images of {table.location} are left out for all models; such as: {reason}",
    )


def _fetched(ids: pa.Table, table: CaptionedTable) -> Iterator[pa.Table]:
    images = table.fetch(ids["row"].to_pylist())
    yield images.append_column("embedding_id", ids["embedding_id"])


def _contents(table: CaptionedTable, rows: range) -> list[str | None]:
    return [
        None if data is None else content_id(data)
        for start in range(0, len(rows), FETCHED_AT_ONCE)
        for data in table.fetch(rows[start : start + FETCHED_AT_ONCE])["bytes"].to_pylist()
    ]
