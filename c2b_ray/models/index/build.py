"""Builds an index: sources of rows, the tables and the file of vectors that store them, then the shards.

It knows Parquet and Arrow files, and only passes on a source's vectors.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from c2b_ray.errors import ConfigError, RunError, SourceError, StorageError
from c2b_ray.models.index import plan, vectors
from c2b_ray.models.index.plan import FORMAT, IMAGES, MANIFEST, ROWS, VECTORS, IndexPlan, IndexWishes, Manifest, Part
from c2b_ray.roles import Floats
from c2b_ray.storage.writers import LOCK, only_writer

ROWS_PER_BATCH = 65536
"""Rows in a record batch of rows.arrow."""


class Source(Protocol):
    """Some rows of an index, in a fixed order. `rows` may exceed the number that `read` returns: the others are
    skipped."""

    @property
    def name(self) -> str: ...

    @property
    def rows(self) -> int: ...

    def read(self, most: int) -> Iterator[tuple[pa.Table, Floats]]:
        """Yields tables of at most `most` rows and their embeddings, float32 (rows, dimension), unit norm."""
        ...


class ParquetPart:
    """A Parquet file of keys, bytes and embeddings."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        try:
            self.rows = pq.read_metadata(path).num_rows
        except FileNotFoundError as error:
            raise SourceError(f"{path}: no such file") from error
        except pa.ArrowException as error:
            raise SourceError(f"{path}: not a Parquet file that can be read: {error}") from error

    def read(self, most: int) -> Iterator[tuple[pa.Table, Floats]]:
        """Yields batches of the usable rows without `embedding`, and their embeddings."""
        try:
            with pq.ParquetFile(self._path, page_checksum_verification=True) as file:
                for batch in file.iter_batches(batch_size=most):
                    table = pa.Table.from_batches([batch])
                    if missing := {"key", "bytes", "embedding"} - set(table.column_names):
                        raise SourceError(f"{self._path}: no column {', '.join(sorted(missing))}")
                    usable = table.filter(pc.and_(table["bytes"].is_valid(), table["embedding"].is_valid()))
                    embeddings = _matrix(usable["embedding"], self._path)
                    finite = np.isfinite(embeddings).all(axis=1)
                    # The index has ids of its own.
                    replaced = [name for name in ("embedding", "id") if name in usable.column_names]
                    usable = usable.filter(pa.array(finite)).drop_columns(replaced)
                    if len(usable):
                        yield usable, embeddings[finite]
        except pa.ArrowException as error:
            raise SourceError(f"{self._path}: not a Parquet file that can be read: {error}") from error


class GroupWriter:
    """Writes rows in row groups of exactly `group_rows`, except the last, so readers find a row by division."""

    def __init__(self, path: Path, schema: pa.Schema, group_rows: int) -> None:
        # Images are compressed already.
        self._writer = pq.ParquetWriter(
            path, schema, compression="none", use_dictionary=False, write_page_checksum=True
        )
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


def write_rows(root: Path, parts: Sequence[Part]) -> None:
    """Writes `rows.arrow` from the parts: all columns except the bytes, in batches of the same length except
    the last."""
    schema = pq.read_schema(root / parts[0].file).remove_metadata()
    names = [name for name in schema.names if name not in ("id", "bytes")]
    schema = pa.schema([schema.field(name) for name in names])
    temporary = root / f"{ROWS}.tmp"
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        waiting = schema.empty_table()
        for part in parts:
            file = pq.ParquetFile(root / part.file, page_checksum_verification=True)
            waiting = pa.concat_tables([waiting, file.read(names)])
            n_rows = len(waiting) // ROWS_PER_BATCH * ROWS_PER_BATCH
            for start in range(0, n_rows, ROWS_PER_BATCH):
                writer.write_batch(_joined(waiting.slice(start, ROWS_PER_BATCH), schema))
            waiting = waiting.slice(n_rows)
        if len(waiting):
            writer.write_batch(_joined(waiting, schema))
    os.replace(temporary, root / ROWS)


def _joined(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    return table.cast(schema).combine_chunks().to_batches()[0]


def _matrix(column: pa.ChunkedArray, source: Path) -> Floats:
    kind = column.type
    if not pa.types.is_fixed_size_list(kind) or not pa.types.is_floating(kind.value_type):
        raise SourceError(f"{source}: embedding is {kind}, expected a fixed-size list of float32")
    # flatten, not values: the latter keeps what filters and slices have cut off.
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat, dtype=np.float32).reshape(len(column), kind.list_size)


# Writes an index directory (`plan.Manifest` says what is in it) from sources of rows and embeddings.


GROUP_ROWS = 256
"""Images in a row group, the unit that a reader reads to fetch one image."""

JOURNAL = "journal.json"
UNROUNDED = "vectors.f32"
"""The vectors of a flat index until its shards hold them."""
_NORM_TOLERANCE = 1e-2


def write(
    directory: str | Path,
    encoder: str,
    encoder_revision: str,
    parts: Iterable[str | Path | Source],
    wish: IndexWishes = IndexWishes(),  # noqa: B008  # frozen
    *,
    group_rows: int = GROUP_ROWS,
    images_root: str | None = None,
    more: Callable[[Path, Manifest], None] = lambda folder, manifest: None,
) -> Manifest:
    """Builds an index in `directory`, which appears whole or not at all; resumes where an earlier call was killed.

    `parts`: local Parquet files with `key` (string), `bytes` (encoded image), `embedding` (fixed-size list of float32,
    unit norm) and any columns of the source, the same in each part; or other sources. Ids count the rows in the order
    of the parts. Rows without bytes or with an embedding that is null or not finite are left out and counted. `more`
    writes the caller's own files into the folder before it gets its name. Raises SourceError where the parts hold no
    usable row or do not agree, or where `directory` is not empty; RunError where another process builds there;
    StorageError where writing fails.
    """
    target = Path(directory)
    _refuse_existing(target)
    scratch = target.with_name(f".{target.name}.partial")
    sources = [part if not isinstance(part, str | Path) else ParquetPart(Path(part)) for part in parts]
    started_from = {
        "encoder": [encoder, encoder_revision],
        "sources": [[source.name, source.rows] for source in sources],
        "wish": wish.as_json(),
        "group_rows": group_rows,
        "images_root": images_root,
    }
    with _writing(target, scratch):
        manifest = _Builder(scratch, started_from).build(sources, more)
        (scratch / UNROUNDED).unlink(missing_ok=True)
        os.replace(scratch, target)
        for name in (LOCK, JOURNAL):
            (target / name).unlink(missing_ok=True)
    return manifest


@contextmanager
def _writing(target: Path, scratch: Path) -> Iterator[None]:
    """Holds the lock of the only writer. Removes the scratch folder after an error in the input, and keeps it after an
    accident."""
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        with only_writer(scratch, str(target), "building here"):
            try:
                _refuse_existing(target)
                yield
            except (SourceError, ConfigError):
                shutil.rmtree(scratch, ignore_errors=True)
                raise
    except OSError as error:
        raise StorageError(
            f"{target}: the index cannot be written: {error}; mend that and run again, it goes on"
        ) from error


def _refuse_existing(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise SourceError(f"{target}: exists already; remove it or build the index elsewhere")


class _Builder:
    """The state of one build, kept in its journal: the parts so far, and a hash of each."""

    def __init__(self, root: Path, began: dict[str, Any]) -> None:
        self._root = root
        self._began = began
        self._done: list[dict[str, Any]] = []
        self._dimension: int | None = None
        self._schema: pa.Schema | None = None
        self._plan: IndexPlan | None = None
        self._count = 0
        journal = root / JOURNAL
        if journal.exists():
            self._resume(json.loads(journal.read_text(encoding="utf-8")))
        (root / IMAGES).mkdir(exist_ok=True)

    def add(self, source: Source) -> None:
        """Writes one source as one part, without its embeddings."""
        if any(done["source"] == source.name for done in self._done):
            return
        name = f"{IMAGES}/part-{len(self._done):05d}.parquet"
        writer, digest, rows = None, hashlib.blake2b(digest_size=10), 0
        try:
            for table, embeddings in source.read(self._began["group_rows"]):
                ids = pa.array(np.arange(self._count + rows, self._count + rows + len(table)), pa.int64())
                numbered = table.add_column(0, "id", ids)
                writer = writer or GroupWriter(
                    self._root / name, self._checked(numbered.schema, source), self._began["group_rows"]
                )
                writer.write(numbered)
                self._keep(embeddings, source, self._count + rows)
                _hash(digest, table, embeddings)
                rows += len(table)
        finally:
            if writer is not None:
                writer.close()
        self._count += rows
        self._done.append({"source": source.name, "file": name, "rows": rows, "digest": digest.hexdigest()})
        self._note()

    def build(self, sources: Iterable[Source], more: Callable[[Path, Manifest], None]) -> Manifest:
        path = self._root / MANIFEST
        if self._done and path.exists():  # killed when only the folder's name was missing
            return Manifest.from_json(path.read_text(encoding="utf-8"), str(self._root))
        for source in sources:
            self.add(source)
        return self.finish(more)

    def finish(self, more: Callable[[Path, Manifest], None]) -> Manifest:
        skipped = sum(rows for _, rows in self._began["sources"]) - self._count
        if self._dimension is None or self._plan is None:
            raise SourceError(f"no image to index: {skipped} rows, none with both bytes and an embedding")
        parts = [Part(done["file"], 0, done["rows"]) for done in self._done if done["rows"]]
        first_ids = np.cumsum([0, *(part.rows for part in parts)]).tolist()
        parts = [Part(part.file, first, part.rows) for part, first in zip(parts, first_ids, strict=False)]
        if not (self._root / ROWS).exists():
            write_rows(self._root, parts)
        stored = vectors.VectorFile(self._file, self._type, self._count, self._dimension)
        shards = vectors.shards(self._root, stored, self._plan)
        encoder, encoder_revision = self._began["encoder"]
        manifest = Manifest(
            format=FORMAT,
            encoder=encoder,
            encoder_revision=encoder_revision,
            dimension=self._dimension,
            count=self._count,
            skipped=skipped,
            kind=self._plan.kind,
            revision=self._revision(),
            group_rows=self._began["group_rows"],
            parts=tuple(parts),
            plan=self._plan,
            shards=shards,
            images_root=self._began["images_root"],
        )
        more(self._root, manifest)
        self._replace(MANIFEST, manifest.to_json())
        return manifest

    @property
    def _type(self) -> Any:
        """Returns the type of the vector file; flat shards are built from unrounded vectors."""
        assert self._plan is not None
        return np.float32 if self._plan.kind == "flat" else np.float16

    @property
    def _file(self) -> Path:
        return self._root / (VECTORS if self._type is np.float16 else UNROUNDED)

    def _revision(self) -> str:
        settings = [FORMAT, asdict(self._plan) if self._plan else None, self._began["encoder"]]
        parts = [done["digest"] for done in self._done if done["rows"]]
        return hashlib.blake2b(json.dumps([settings, parts]).encode(), digest_size=10).hexdigest()

    def _resume(self, journal: dict[str, Any]) -> None:
        if journal["began"] != json.loads(json.dumps(self._began)):
            raise RunError(
                f"{self._root} was begun from other images or other options; delete it, or choose another --out"
            )
        self._done = journal["done"]
        self._dimension, self._count = journal["dimension"], sum(done["rows"] for done in self._done)
        self._plan = IndexPlan(**journal["plan"]) if journal["plan"] else None
        first_file = next((done["file"] for done in self._done if done["rows"]), None)
        self._schema = pq.read_schema(self._root / first_file) if first_file else None

    def _note(self) -> None:
        plan = asdict(self._plan) if self._plan else None
        journal = {"began": self._began, "done": self._done, "dimension": self._dimension, "plan": plan}
        self._replace(JOURNAL, json.dumps(journal))

    def _replace(self, name: str, text: str) -> None:
        """Writes a file whole or not at all."""
        temporary = self._root / f"{name}.tmp"
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, self._root / name)

    def _keep(self, embeddings: Floats, source: Source, first: int) -> None:
        if self._dimension is None or self._plan is None:
            self._dimension = embeddings.shape[1]
            wish = IndexWishes(**self._began["wish"])
            self._plan = plan.plan(sum(rows for _, rows in self._began["sources"]), self._dimension, wish)
        if embeddings.shape[1] != self._dimension:
            raise SourceError(
                f"{source.name}: embeddings of dimension {embeddings.shape[1]}, others of {self._dimension}"
            )
        if (np.abs(np.linalg.norm(embeddings, axis=1) - 1) > _NORM_TOLERANCE).any():
            raise SourceError(f"{source.name}: embeddings that are not of unit norm")
        with _at(self._file, first * self._dimension * np.dtype(self._type).itemsize) as file:
            file.write(embeddings.astype(self._type).tobytes())

    def _checked(self, schema: pa.Schema, source: Source) -> pa.Schema:
        self._schema = self._schema or schema
        if not schema.equals(self._schema):
            raise SourceError(
                f"{source.name}: columns {schema.names} with other types or names than the parts before it"
            )
        return schema


@contextmanager
def _at(path: Path, offset: int) -> Iterator[BinaryIO]:
    """Opens the file truncated at the offset: bytes that a killed build wrote beyond it are dropped."""
    with open(path, "r+b" if path.exists() else "w+b") as file:
        file.truncate(offset)
        file.seek(offset)
        yield file


def _hash(digest: Any, table: pa.Table, embeddings: Floats) -> None:
    column = table["bytes"] if "bytes" in table.column_names else table["key"]
    for key, data in zip(table["key"].to_pylist(), column.to_pylist(), strict=True):
        name, content = str(key).encode(), data if isinstance(data, bytes) else b""
        digest.update(b"%d %d " % (len(name), len(content)) + name + content)
    digest.update(embeddings.tobytes())
