"""Writes an index directory (`faiss_index` reads it) from Parquet files of keys, bytes and embeddings.

It knows neither the images' source nor the encoder: the embeddings are there already. Rows stream through in small
batches; in memory are the vectors alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from c2b_ray.errors import SourceError, StorageError
from c2b_ray.models.faiss_index import FORMAT, IMAGES, KINDS, MANIFEST, VECTORS, Manifest, Part
from c2b_ray.roles import Floats

GROUP_ROWS = 256
"""Images in a row group: what one fetched image makes a reader read."""

_NORM_TOLERANCE = 1e-2


def write(
    directory: str | Path,
    encoder: str,
    encoder_revision: str,
    parts: Iterable[str | Path],
    kind: str = "flat",
    group_rows: int = GROUP_ROWS,
) -> Manifest:
    """Build an index in `directory`, which appears whole or not at all.

    `parts`: local Parquet files with `key` (string), `bytes` (encoded image), `embedding` (fixed-size list of float32,
    unit norm) and any columns of the source, the same in each. Ids count the rows in the order of the parts. Rows
    without bytes or with an embedding that is null or not finite are left out and counted. SourceError where the parts
    hold no usable row or do not agree, or where `directory` holds something already; StorageError where the disk says
    no.
    """
    target = Path(directory)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SourceError(f"{target}: exists already; remove it or build the index elsewhere")
    if kind not in KINDS:
        raise SourceError(f"no index of kind {kind!r}; known: {', '.join(KINDS)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            builder = _Builder(scratch, kind, group_rows)
            for part in parts:
                builder.add(Path(part))
            manifest = builder.finish(encoder, encoder_revision)
            scratch.chmod(0o755)  # mkdtemp's own is for the owner alone
            os.replace(scratch, target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise StorageError(f"{target}: the index cannot be written: {error}") from error
    return manifest


class _Builder:
    """The state of one build: the vectors so far, the parts so far, and a running hash of what went in."""

    def __init__(self, root: Path, kind: str, group_rows: int) -> None:
        self._root = root
        self._kind = kind
        self._group_rows = group_rows
        self._vectors: Any = None
        self._schema: pa.Schema | None = None
        self._parts: list[Part] = []
        self._count = 0
        self._skipped = 0
        self._digest = hashlib.blake2b(digest_size=10)
        (root / IMAGES).mkdir()

    def add(self, source: Path) -> None:
        """One input file becomes one part, without its embeddings."""
        first, name = self._count, f"{IMAGES}/part-{len(self._parts):05d}.parquet"
        writer = None
        try:
            for table, embeddings in self._usable(source):
                ids = pa.array(np.arange(self._count, self._count + len(table)), pa.int64())
                rows = table.add_column(0, "id", ids)
                writer = writer or _Grouped(self._root / name, self._checked(rows.schema, source), self._group_rows)
                writer.write(rows)
                self._take(table, embeddings, source)
        finally:
            if writer is not None:
                writer.close()
        if self._count > first:
            self._parts.append(Part(name, first, self._count - first))

    def finish(self, encoder: str, encoder_revision: str) -> Manifest:
        if self._vectors is None:
            raise SourceError(f"no image to index: {self._skipped} rows, none with both bytes and an embedding")
        faiss.write_index(self._vectors, str(self._root / VECTORS))
        self._digest.update(f"{FORMAT} {self._kind} {encoder} {encoder_revision}".encode())
        manifest = Manifest(
            format=FORMAT,
            encoder=encoder,
            encoder_revision=encoder_revision,
            dimension=self._vectors.d,
            count=self._count,
            skipped=self._skipped,
            kind=self._kind,
            revision=self._digest.hexdigest(),
            group_rows=self._group_rows,
            parts=tuple(self._parts),
        )
        (self._root / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
        return manifest

    def _usable(self, source: Path) -> Iterator[tuple[pa.Table, Floats]]:
        """Batches of the file's usable rows without `embedding`, and their embeddings, float32 (rows, dimension)."""
        try:
            with pq.ParquetFile(source) as file:
                for batch in file.iter_batches(batch_size=self._group_rows):
                    table = pa.Table.from_batches([batch])
                    if missing := {"key", "bytes", "embedding"} - set(table.column_names):
                        raise SourceError(f"{source}: no column {', '.join(sorted(missing))}")
                    kept = table.filter(pc.and_(table["bytes"].is_valid(), table["embedding"].is_valid()))
                    embeddings = _matrix(kept["embedding"], source)
                    finite = np.isfinite(embeddings).all(axis=1)
                    kept = kept.filter(pa.array(finite)).drop_columns(["embedding", *_own_id(kept)])
                    self._skipped += len(table) - len(kept)
                    if len(kept):
                        yield kept, embeddings[finite]
        except FileNotFoundError as error:
            raise SourceError(f"{source}: no such file") from error
        except pa.ArrowException as error:
            raise SourceError(f"{source}: not a Parquet file that can be read: {error}") from error

    def _take(self, table: pa.Table, embeddings: Floats, source: Path) -> None:
        if self._vectors is None:
            self._vectors = KINDS[self._kind](embeddings.shape[1])
        if embeddings.shape[1] != self._vectors.d:
            raise SourceError(f"{source}: embeddings of dimension {embeddings.shape[1]}, others of {self._vectors.d}")
        if (np.abs(np.linalg.norm(embeddings, axis=1) - 1) > _NORM_TOLERANCE).any():
            raise SourceError(f"{source}: embeddings that are not of unit norm")
        self._vectors.add(embeddings)
        for key, data in zip(table["key"].to_pylist(), table["bytes"].to_pylist(), strict=True):
            name = str(key).encode()
            self._digest.update(b"%d %d " % (len(name), len(data)) + name + data)
        self._digest.update(embeddings.tobytes())
        self._count += len(table)

    def _checked(self, schema: pa.Schema, source: Path) -> pa.Schema:
        self._schema = self._schema or schema
        if not schema.equals(self._schema):
            raise SourceError(f"{source}: columns {schema.names} with other types or names than the parts before it")
        return schema


class _Grouped:
    """Writes rows in row groups of exactly `group_rows`, save the last: readers find a row by division."""

    def __init__(self, path: Path, schema: pa.Schema, group_rows: int) -> None:
        # Images are compressed already.
        self._writer = pq.ParquetWriter(path, schema, compression="none", use_dictionary=False)
        self._waiting = schema.empty_table()
        self._group_rows = group_rows

    def write(self, rows: pa.Table) -> None:
        self._waiting = pa.concat_tables([self._waiting, rows])
        while len(self._waiting) >= self._group_rows:
            self._writer.write_table(self._waiting.slice(0, self._group_rows), row_group_size=self._group_rows)
            self._waiting = self._waiting.slice(self._group_rows)

    def close(self) -> None:
        if len(self._waiting):
            self._writer.write_table(self._waiting, row_group_size=self._group_rows)
        self._writer.close()


def _own_id(table: pa.Table) -> list[str]:
    """A source's own `id` column gives way to the index's."""
    return ["id"] if "id" in table.column_names else []


def _matrix(column: pa.ChunkedArray, source: Path) -> Floats:
    kind = column.type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
        raise SourceError(f"{source}: embedding is {kind}, expected a fixed-size list of float32")
    # flatten, not values: the latter keeps what filters and slices have cut off.
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat, dtype=np.float32).reshape(len(column), kind.list_size)
