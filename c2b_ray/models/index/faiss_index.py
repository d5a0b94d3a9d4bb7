"""The images of an index: their rows, columnar, and their bytes, inside its Parquet parts or outside the index.

It knows no vectors. Rows without bytes come from a file mapped into memory, so that a thousand of them out of millions
take milliseconds. Images outside the index are read on demand; one that is gone is a row with an error.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock
from numpy.typing import NDArray
from pyarrow import fs

from c2b_ray.errors import ImageError, SourceError, SpecError, StorageError
from c2b_ray.models.catalog import Spec
from c2b_ray.models.index.plan import MANIFEST, ROWS, VECTORS, Manifest, Part
from c2b_ray.models.index.vectors import SearchEffort, Vectors
from c2b_ray.roles import Description, Floats, Neighbours
from c2b_ray.storage import absent_bucket, is_remote, refusal, resolve
from c2b_ray.storage.confined import MAX_BYTES, Folder
from c2b_ray.storage.folders import Readers
from c2b_ray.storage.s3 import open_input

FILE, OFFSET, SIZE = "file", "offset", "size"
"""Columns that locate an image outside the index: a file below the root, and the range of its bytes; the whole file
where null."""

Ids = NDArray[np.int64]


class Rows:
    """Keys and metadata by id, from the mapped file `path`: record batches of the same length, except the last."""

    def __init__(self, path: str, count: int) -> None:
        try:
            self._file = pa.ipc.open_file(pa.memory_map(path))
            batches = [self._file.get_batch(n) for n in range(self._file.num_record_batches)]
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{path}: cannot be read ({error}); rebuild with c2b index build") from error
        if sum(len(batch) for batch in batches) != count:
            raise SourceError(f"{path}: holds other rows than the manifest's {count}; rebuild with c2b index build")
        self._batches = batches
        self._size = len(batches[0])

    def take(self, ids: Ids) -> pa.Table:
        """Returns the rows of `ids`, in their order."""
        distinct, positions = np.unique(ids, return_inverse=True)
        owners, rows_in_batch = np.divmod(distinct, self._size)
        # Batch by batch: take on a chunked column of strings would join all its chunks first.
        batches_taken = [self._batches[int(n)].take(pa.array(rows_in_batch[owners == n])) for n in np.unique(owners)]
        batches_taken = batches_taken or [self._batches[0].slice(0, 0)]
        return pa.Table.from_batches(batches_taken).combine_chunks().take(pa.array(positions.reshape(-1)))


class Images:
    """The parts of the index at `place`, a path or URI. `local`: returns the path of a file that must be local."""

    def __init__(self, location: str, manifest: Manifest, local: Callable[[str], str]) -> None:
        self._location, self._manifest = location, manifest
        self._files, self._root = resolve(location)
        self._firsts = [part.first_id for part in manifest.parts]
        self._footers: dict[str, pq.FileMetaData] = {}
        self._columns: pa.Table | None = None
        self._mapped = Rows(local(ROWS), manifest.count) if manifest.format > 1 else None
        self._outside = None if manifest.images_root is None else _Outside(manifest.images_root)

    def metadata(self, ids: Ids) -> pa.Table:
        """Returns `key` and the source's columns, a row per id in the order of `ids`."""
        if self._mapped is not None:
            return _without(self._mapped.take(ids), FILE, OFFSET, SIZE)
        if self._columns is None:  # format 1: an index that was built in memory
            self._columns = pa.concat_tables(self._of_part(part) for part in self._manifest.parts).combine_chunks()
        return self._columns.take(pa.array(ids))

    def fetch(self, ids: Ids) -> pa.Table:
        """Returns `key`, `bytes` and the source's columns, and `error` where images lie outside the index."""
        if self._outside is not None and self._mapped is not None:
            rows = self._mapped.take(ids)
            data, errors = self._outside.read(rows)
            rows = _without(rows, FILE, OFFSET, SIZE).add_column(1, "bytes", pa.array(data, pa.binary()))
            return rows.append_column("error", pa.array(errors, pa.string()))
        distinct, positions = np.unique(ids, return_inverse=True)
        owners = np.searchsorted(self._firsts, distinct, side="right") - 1
        # No ids: the first part, of which no row, has the columns.
        parts = np.unique(owners) if len(owners) else np.zeros(1, np.int64)
        result = [self._rows(self._manifest.parts[owner], distinct[owners == owner]) for owner in parts]
        return pa.concat_tables(result).take(pa.array(positions)).drop_columns(["id"])

    def _rows(self, part: Part, ids: Ids) -> pa.Table:
        """Returns the rows of a part with the given ids, which are sorted, distinct and belong to the part."""
        name = f"{self._root}/{part.file}"
        try:
            with open_input(self._files, name) as stream:
                file = pq.ParquetFile(stream, metadata=self._footers.get(name), page_checksum_verification=True)
                self._footers[name] = file.metadata
                groups, rows_in_group = np.divmod(ids - part.first_id, self._manifest.group_rows)
                # One row group at a time in memory: a group is many images, of which few are wanted.
                tables = [
                    file.read_row_group(int(group)).take(pa.array(rows_in_group[groups == group]))
                    for group in np.unique(groups)
                ]
                table = pa.concat_tables(tables) if tables else file.schema_arrow.empty_table()
        except (OSError, pa.ArrowException, IndexError) as error:
            raise self._unread(name, error) from error
        if table.column("id").to_pylist() != ids.tolist():
            raise SourceError(f"{name}: holds other ids than its manifest says; rebuild with c2b index build")
        return table

    def _of_part(self, part: Part) -> pa.Table:
        name = f"{self._root}/{part.file}"
        try:
            with open_input(self._files, name) as stream:
                file = pq.ParquetFile(stream, page_checksum_verification=True)
                return file.read([c for c in file.schema_arrow.names if c not in ("id", "bytes")])
        except (OSError, pa.ArrowException) as error:
            raise self._unread(name, error) from error

    def _unread(self, name: str, error: Exception) -> SourceError:
        return SourceError(refusal(self._location, error) or f"{name}: images of the index cannot be read: {error}")


class _Outside:
    """Images outside the index, as files below a folder or within such files."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._files: Any
        self._path: str
        self._files, self._path = resolve(root)
        self._readers = Readers(patient=is_remote(root))

    def read(self, rows: pa.Table) -> tuple[list[bytes | None], list[str | None]]:
        """Returns for each row the bytes, or the reason why there are none."""
        locations = list(zip(*(rows[name].to_pylist() for name in (FILE, OFFSET, SIZE)), strict=True))
        folder = Folder(self._files, self._path)
        result = self._readers.map(
            lambda location: self._one(folder, *location), locations, lambda location: folder.at(str(location[0]))
        )
        return [data for data, _ in result], [error for _, error in result]

    def _one(
        self, folder: Folder, file: str | None, offset: int | None, size: int | None
    ) -> tuple[bytes | None, str | None]:
        if file is None:
            return None, "the source names no file of this image"
        try:
            return _bytes(folder, file, offset, size)
        except ImageError as error:
            return None, str(error)
        except FileNotFoundError:
            return None, f"{file}: no such file"
        except (OSError, pa.ArrowException, ValueError) as error:
            return None, f"{file}: {refusal(self._root, error) or f'cannot be read: {error}'}"


def _bytes(folder: Folder, file: str, offset: int | None, size: int | None) -> tuple[bytes | None, str | None]:
    if offset is None or size is None:
        return folder.read(file, MAX_BYTES), None
    if offset < 0 or not 0 <= size <= MAX_BYTES:
        return None, f"{file}: no image of {size} bytes at {offset}"
    with closing(folder.open(file)) as stream:
        stream.seek(offset)
        data = bytes(stream.read(size))
    return (data, None) if len(data) == size else (None, f"{file}: ends before the image does")


def _without(table: pa.Table, *names: str) -> pa.Table:
    return table.drop_columns([name for name in (*names, "id") if name in table.column_names])


def as_ids(ids: Any, count: int, path: str) -> Ids:
    """Checks ids. Raises SourceError for an id that the index does not have."""
    result = np.asarray(ids, dtype=np.int64).reshape(-1)
    out_of_range = result[(result < 0) | (result >= count)]
    if len(out_of_range):
        raise SourceError(f"{path}: no image {out_of_range[0]}; its ids are 0 to {count - 1}")
    return result


# Nearest images by embedding, from a directory that faiss and Parquet share (`plan.Manifest` says what is in it).


CACHE = "C2B_CACHE"
DEVICES = ("auto", "cpu", "gpu")
_CHUNK = 16 * 2**20


class FaissIndex:
    """An index directory, opened for search; implements `roles.ImageIndex`.

    `path` is a local directory or a URI such as s3://bucket/index. Raises SourceError where it is no complete index.
    """

    def __init__(self, path: str, effort: SearchEffort = SearchEffort()) -> None:  # noqa: B008  # frozen
        self._path = path.rstrip("/")
        self._files, self._root = resolve(self._path)
        self.manifest = read_manifest(self._path)
        directory = self._local()
        self._vectors = Vectors(directory, self.manifest, effort)
        self._images = Images(self._path, self.manifest, lambda name: str(directory / name))

    @property
    def encoder(self) -> str:
        return self.manifest.encoder

    @property
    def encoder_revision(self) -> str:
        """The revision of the encoder that made the embeddings; queries must come from the same one."""
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
        """Returns the k nearest images of each unit-norm embedding, float32 (queries, dimension), nearest first.

        Similarities are exact, of the vectors in float16 where the index is not flat; other kinds approximate only
        which images are nearest. Where fewer than k images exist, ids end in −1 and similarities in NaN. SourceError
        for another dimension.
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
        return self._vectors.search(queries, k)

    def embeddings(self, ids: Sequence[int]) -> Floats:
        """Returns the embeddings of rows, float32 (ids, dimension), in the order of `ids`: as they were given where the
        index is flat, else rounded to float16. SourceError for an id that the index does not have."""
        return self._vectors.rows(as_ids(ids, self.count, self._path))

    def metadata(self, ids: Sequence[int]) -> pa.Table:
        """Returns column `key` and the source's columns, a row per id in the order of `ids`; no image is read."""
        return self._images.metadata(as_ids(ids, self.count, self._path))

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        """Returns columns `key`, `bytes` and the source's columns, a row per id in the order of `ids`; repeated ids
        repeat rows.

        Only the row groups that hold one of the ids are read. Where the images lie outside the index, `error` says why
        bytes are null. SourceError for an id that the index does not have.
        """
        return self._images.fetch(as_ids(ids, self.count, self._path))

    def _local(self) -> Path:
        """Returns a local directory with the files that must be local."""
        if isinstance(self._files, fs.LocalFileSystem):
            return Path(self._root)
        names = [shard.file for shard in self.manifest.shards]
        names += [ROWS] if self.manifest.format > 1 else []
        names += [VECTORS] if self.manifest.kind != "flat" else []
        directory = cache() / self.manifest.revision
        try:
            directory.mkdir(parents=True, exist_ok=True)
            with FileLock(directory / ".lock"):  # one process brings, the others wait
                for name in names:
                    if not (directory / name).exists():
                        self._bring(name, directory / name)
        except OSError as error:
            raise StorageError(
                f"{directory}: the index cannot be kept here: {error}; make room, or name another folder in {CACHE}"
            ) from error
        return directory

    def _bring(self, name: str, destination: Path) -> None:
        temporary = destination.with_name(f"{destination.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            source = open_input(self._files, f"{self._root}/{name}")
        except OSError as error:
            raise SourceError(f"{self._path}/{name}: {error}; rebuild with c2b index build") from error
        try:
            with source, open(temporary, "xb") as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
            os.replace(temporary, destination)
        finally:
            temporary.unlink(missing_ok=True)


def read_manifest(path: str) -> Manifest:
    """Reads the manifest. Raises SourceError where `path` is no index."""
    files, root = resolve(path)
    try:
        with open_input(files, f"{root}/{MANIFEST}") as stream:
            text = bytes(stream.read())
    except OSError as error:
        refused = absent_bucket(path) if isinstance(error, FileNotFoundError) else refusal(path, error)
        raise SourceError(
            refused or f"{path}: no image index ({MANIFEST}: {error}); build one with c2b index build"
        ) from error
    return Manifest.from_json(text.decode("utf-8", "replace"), path)


def cache() -> Path:
    """Returns the folder where this machine keeps remote indexes, with one folder for each revision."""
    return Path(os.environ.get(CACHE) or Path.home() / ".cache" / "c2b-ray") / "indexes"


def load(spec: Spec) -> FaissIndex:
    """Opens the index of a `faiss:` spec or of a plain path; options `probes`, `shortlist` and `device`."""
    return FaissIndex(spec.name, _effort(spec))


def describe(spec: Spec) -> Description:
    """Returns the description from the manifest alone; no vector is read."""
    _effort(spec)
    manifest = read_manifest(spec.name.rstrip("/"))
    return Description(
        revision=manifest.revision,
        dimension=manifest.dimension,
        encoder=manifest.encoder,
        encoder_revision=manifest.encoder_revision,
        count=manifest.count,
    )


def _effort(spec: Spec) -> SearchEffort:
    options = spec.options_among(("probes", "shortlist", "device"))
    device = options.get("device", "auto")
    if device not in DEVICES:
        raise SpecError(f"{spec.text}: device={device}; expected one of {', '.join(DEVICES)}")
    numbers = {name: _number(spec, name, options[name]) for name in ("probes", "shortlist") if name in options}
    return SearchEffort(**numbers, device=device)


def _number(spec: Spec, name: str, value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise SpecError(f"{spec.text}: {name}={value}; expected a whole number from 1 on")
    return int(value)
