"""Nearest images by embedding, from a directory that faiss and Parquet share.

    manifest.json           what the index holds, and the encoder whose embeddings they are
    vectors.faiss           the embeddings, by id
    images/part-*.parquet   id, key, bytes and the source's own columns, sorted by id

It knows vectors, not models: the encoder is a name that callers compare. Reading goes through pyarrow's file systems,
so an index may lie on an object store; `faiss_build` writes one on a local disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.errors import SourceError
from c2b_ray.filesystems import absent_bucket, refusal, resolve
from c2b_ray.models.catalog import Spec
from c2b_ray.roles import Floats, Neighbours

FORMAT = 1
MANIFEST = "manifest.json"
VECTORS = "vectors.faiss"
IMAGES = "images"

KINDS: dict[str, Callable[[int], Any]] = {"flat": faiss.IndexFlatIP}
"""How each kind of index begins, from its dimension. Unit-norm vectors: the inner product is the cosine."""


@dataclass(frozen=True)
class Part:
    """One Parquet file of the images: the ids first_id, …, first_id + rows − 1."""

    file: str
    first_id: int
    rows: int


@dataclass(frozen=True)
class Manifest:
    """`encoder` is a spec; `skipped` counts the rows of the source that had no bytes or no embedding."""

    format: int
    encoder: str
    encoder_revision: str
    dimension: int
    count: int
    skipped: int
    kind: str
    revision: str
    group_rows: int
    parts: tuple[Part, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str, path: str) -> Manifest:
        """SourceError where `text` is not the manifest of an index that this version reads."""
        try:
            found = json.loads(text)
            parts = tuple(Part(str(p["file"]), int(p["first_id"]), int(p["rows"])) for p in found["parts"])
            values = {f.name: found[f.name] for f in fields(Manifest)}
            manifest = Manifest(**{**values, "parts": parts})
        except (ValueError, KeyError, TypeError) as error:
            detail = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise SourceError(
                f"{path}/{MANIFEST} is no index manifest ({detail}); rebuild with c2b index build"
            ) from error
        if manifest.format != FORMAT or manifest.kind not in KINDS:
            raise SourceError(
                f"{path}: an index of format {manifest.format!r} and kind {manifest.kind!r}, expected format {FORMAT} "
                f"and kind {' or '.join(KINDS)}; rebuild with c2b index build"
            )
        sizes = (manifest.dimension, manifest.count, manifest.group_rows)
        if any(not isinstance(size, int) or size < 1 for size in sizes):
            raise SourceError(
                f"{path}/{MANIFEST}: dimension, count and group_rows are {sizes}; all are numbers and must be above 0"
            )
        firsts = np.cumsum([0, *(part.rows for part in parts)]).tolist()
        if [*(part.first_id for part in parts), manifest.count] != firsts:
            raise SourceError(f"{path}/{MANIFEST}: its parts do not add up to {manifest.count} images")
        return manifest


class FaissIndex:
    """An index directory, opened for search; implements `roles.ImageIndex`.

    `path` is a local directory or a URI such as s3://bucket/index. SourceError where it is no whole index.
    """

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/")
        self._files, self._root = resolve(self._path)
        self.manifest = Manifest.from_json(self._read(MANIFEST).decode("utf-8", "replace"), self._path)
        self._vectors = self._open_vectors()
        self._firsts = [part.first_id for part in self.manifest.parts]
        self._footers: dict[str, pq.FileMetaData] = {}

    @property
    def encoder(self) -> str:
        return self.manifest.encoder

    @property
    def encoder_revision(self) -> str:
        """The revision of the encoder that made the embeddings; another one's queries answer another question."""
        return self.manifest.encoder_revision

    @property
    def dimension(self) -> int:
        return self.manifest.dimension

    @property
    def revision(self) -> str:
        return self.manifest.revision

    @property
    def count(self) -> int:
        return self.manifest.count

    def search(self, embeddings: Floats, k: int) -> Neighbours:
        """The k nearest images of each unit-norm embedding, float32 (queries, dimension), nearest first.

        Where fewer than k images exist, ids end in −1 and similarities in NaN. SourceError for another dimension.
        """
        queries = np.ascontiguousarray(embeddings, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dimension:
            raise SourceError(
                f"{self._path}: index of another encoder: {self.encoder} has dimension {self.dimension}, "
                f"the query has shape {queries.shape}; rebuild with c2b index build"
            )
        if k < 1 or len(queries) == 0:
            return Neighbours(
                np.zeros((len(queries), max(k, 0)), np.int64), np.zeros((len(queries), max(k, 0)), np.float32)
            )
        similarities, ids = self._vectors.search(queries, k)
        similarities[ids < 0] = np.nan
        return Neighbours(ids.astype(np.int64, copy=False), similarities)

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        """Columns `key`, `bytes` and the source's own, a row per id in the order of `ids`; repeated ids repeat rows.

        Only the row groups that hold one of the ids are read. SourceError for an id that the index does not have.
        """
        wanted = np.asarray(ids, dtype=np.int64).reshape(-1)
        outside = wanted[(wanted < 0) | (wanted >= self.count)]
        if len(outside):
            raise SourceError(f"{self._path}: no image {outside[0]}; its ids are 0 to {self.count - 1}")
        distinct, places = np.unique(wanted, return_inverse=True)
        owners = np.searchsorted(self._firsts, distinct, side="right") - 1
        # No ids: the first part, of which no row, has the columns.
        asked = np.unique(owners) if len(owners) else np.zeros(1, np.int64)
        found = [self._rows(self.manifest.parts[owner], distinct[owners == owner]) for owner in asked]
        return pa.concat_tables(found).take(pa.array(places)).drop_columns(["id"])

    def _rows(self, part: Part, ids: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Table:
        """The rows of a part with the given ids, which are sorted, distinct and its own."""
        name = f"{self._root}/{part.file}"
        try:
            with self._files.open_input_file(name) as stream:
                file = pq.ParquetFile(stream, metadata=self._footers.get(name))
                self._footers[name] = file.metadata
                groups, within = np.divmod(ids - part.first_id, self.manifest.group_rows)
                # One row group at a time in memory: a group is many images, of which few are wanted.
                tables = [
                    file.read_row_group(int(group)).take(pa.array(within[groups == group]))
                    for group in np.unique(groups)
                ]
                table = pa.concat_tables(tables) if tables else file.schema_arrow.empty_table()
        except (OSError, pa.ArrowException, IndexError) as error:
            why = refusal(self._path, error) or f"{name}: images of the index cannot be read: {error}"
            raise SourceError(why) from error
        if table.column("id").to_pylist() != ids.tolist():
            raise SourceError(f"{name}: holds other ids than its manifest says; rebuild with c2b index build")
        return table

    def _read(self, name: str) -> bytes:
        try:
            with self._files.open_input_stream(f"{self._root}/{name}", compression=None) as stream:
                return bytes(stream.read())
        except OSError as error:
            refused = absent_bucket(self._path) if isinstance(error, FileNotFoundError) else refusal(self._path, error)
            raise SourceError(
                refused or f"{self._path}: no image index ({name}: {error}); build one with c2b index build"
            ) from error

    def _open_vectors(self) -> Any:
        # Not faiss.read_index: it knows local paths alone.
        data = np.frombuffer(self._read(VECTORS), dtype=np.uint8)
        try:
            vectors = faiss.deserialize_index(data)
        except (RuntimeError, ValueError) as error:
            raise SourceError(f"{self._path}/{VECTORS}: damaged; rebuild with c2b index build") from error
        if (vectors.d, vectors.ntotal) != (self.dimension, self.count):
            raise SourceError(
                f"{self._path}/{VECTORS}: {vectors.ntotal} vectors of dimension {vectors.d}, its manifest says "
                f"{self.count} of {self.dimension}; rebuild with c2b index build"
            )
        return vectors


def load(spec: Spec) -> FaissIndex:
    """The index of a `faiss:` spec or of a plain path."""
    spec.options_among(())
    return FaissIndex(spec.name)
