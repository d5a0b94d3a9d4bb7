"""The Parquet parts of one stage: each is written atomically, by one writer at a time, and each id occurs once.

Which rows exist is told by digests of their ids, of which millions are held outside the heap, or sorted in a file.
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
import uuid
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import fs

from c2b_ray.errors import RunError, SourceError, StorageError
from c2b_ray.storage import THREADS, Stores, files, refusal, resolve, sealed, writers
from c2b_ray.storage.s3 import file_info, patiently, removed
from c2b_ray.storage.writers import only_writer
from c2b_ray.tables import content_id

# Digests of ids.

DIGEST = "S12"
DIGESTED_AT_ONCE = 4096
Digests = NDArray[np.bytes_]


def digests(ids: pa.ChunkedArray | pa.Array) -> Digests:
    """Returns 96 bits of each id: small enough to send to every worker. Ray shares them uncopied, because their width
    is fixed."""
    result = np.empty(len(ids), DIGEST)
    for start in range(0, len(ids), DIGESTED_AT_ONCE):  # as Python objects, ids take ten times the memory
        texts = ids.slice(start, DIGESTED_AT_ONCE).cast(pa.string()).to_pylist()
        block = [hashlib.blake2b(text.encode(), digest_size=12).digest() for text in texts]
        result[start : start + len(block)] = block
    return result


def absent(ids: pa.ChunkedArray | pa.Array, existing: Digests) -> NDArray[np.bool_]:
    """Returns which of the ids are not among the sorted digests."""
    if not len(existing):
        return np.ones(len(ids), bool)
    return _absent(digests(ids), existing)


def among(wanted: Digests, existing: Digests) -> bool:
    """Tells whether all of the digests are among the sorted ones."""
    return not len(wanted) or (len(existing) > 0 and not _absent(wanted, existing).any())


def _absent(wanted: Digests, existing: Digests) -> NDArray[np.bool_]:
    nearest = np.minimum(np.searchsorted(existing, wanted), len(existing) - 1)
    is_absent: NDArray[np.bool_] = existing[nearest] != wanted
    return is_absent


def distinct(ids: Digests) -> Digests:
    """Returns each of the sorted ids once."""
    is_repeat = repeats(ids)
    return ids[~is_repeat] if is_repeat.any() else ids


def repeats(ids: Digests) -> NDArray[np.bool_]:
    """Returns which of the sorted ids equal the one before."""
    is_repeat = np.zeros(len(ids), bool)
    is_repeat[1:] = ids[1:] == ids[:-1]
    return is_repeat


# Memory for data collected from millions of rows, which the process returns to the system afterwards.


FIRST_BYTES = 2**20
HELD_BYTES = 2**20
"""Of `OnDisk`, so many wait in memory for their file."""
_M_ARENA_MAX = -8  # of malloc.h


class RecordBuffer:
    """Collects records of one width outside the heap, a few at a time."""

    def __init__(self, dtype: str) -> None:
        self._dtype = np.dtype(dtype)
        self._memory = mmap.mmap(-1, FIRST_BYTES)
        self._size = 0

    def add(self, records: NDArray[np.bytes_]) -> None:
        data = records.astype(self._dtype, copy=False).tobytes()
        if self._size + len(data) > len(self._memory):
            larger = mmap.mmap(-1, 2 * (self._size + len(data)))  # pages take memory only once they are written
            larger[: self._size] = memoryview(self._memory)[: self._size]
            self._memory = larger
        self._memory[self._size : self._size + len(data)] = data
        self._size += len(data)

    def whole(self) -> NDArray[np.bytes_]:
        """Returns all records in order, uncopied and writable. Nothing may be added afterwards."""
        return np.frombuffer(self._memory, self._dtype, self._size // self._dtype.itemsize)


class OnDisk:
    """Records of one width that come a few at a time, in any order, and are read in order: of however many, a few
    megabytes are in memory. They lie in a file in `folder`, or where the system has such files, that has no name.

    The file has sorted stretches, and of each it is known where each first byte begins; so records must be hashes.
    """

    def __init__(self, dtype: str, folder: str | None = None) -> None:
        self._dtype, self._folder = np.dtype(dtype), folder
        self._file: IO[bytes] | None = None
        self._held: list[NDArray[np.bytes_]] = []
        self._starts_of_stretches: list[NDArray[np.int64]] = []
        self._waiting = self._written = 0
        self.most_bytes = 0
        """The most that was in memory at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, records: NDArray[np.bytes_]) -> None:
        self._held.append(records.astype(self._dtype, copy=False))
        self._waiting += records.nbytes
        if self._waiting >= HELD_BYTES:
            self._write()

    def in_order(self) -> Iterator[NDArray[np.bytes_]]:
        """Yields all records, sorted: 256 times those that begin with one byte, so equal ones come together. Nothing
        may be added afterwards."""
        if self._file is None:
            records = self._taken()
            yield from np.split(records, _starts(records)[1:-1])
            return
        self._write()
        for first in range(256):
            stretches = [self._read(int(starts[first]), int(starts[first + 1])) for starts in self._starts_of_stretches]
            records = np.concatenate(stretches)
            self.most_bytes = max(self.most_bytes, 2 * records.nbytes)  # the stretches are there still
            records.sort()
            yield records

    def _taken(self) -> NDArray[np.bytes_]:
        """What is held, sorted, and no longer held."""
        records = np.concatenate([np.zeros(0, self._dtype), *self._held])
        self._held.clear()
        self._waiting = 0
        self.most_bytes = max(self.most_bytes, 2 * records.nbytes)
        records.sort()
        return records

    def _write(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115 (closed by __exit__)
        records = self._taken()
        self._starts_of_stretches.append(self._written + _starts(records))
        self._file.write(records.tobytes())
        self._written += len(records)

    def _read(self, start: int, end: int) -> NDArray[np.bytes_]:
        assert self._file is not None
        self._file.seek(start * self._dtype.itemsize)
        return np.frombuffer(self._file.read((end - start) * self._dtype.itemsize), self._dtype)


def _starts(records: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """Returns where the records of each first byte begin in the sorted `records`, and where the last ones end."""
    first_bytes = np.array([bytes([first]) for first in range(256)], records.dtype)
    return np.append(np.searchsorted(records, first_bytes), len(records))


def give_back() -> None:
    """Returns freed memory to the system. Call it between steps, because it takes milliseconds."""
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # only GNU's C library has this call; others keep less
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def few_heaps() -> None:
    """Keeps the threads that start from now on to two heaps, unless the environment says otherwise.

    GNU's C library gives each thread a heap of its own, up to eight for each core, and every heap keeps what its thread
    let go: in a driver on Ray, whose core has dozens of threads, 40 MiB over an audit of a million images.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").mallopt(_M_ARENA_MAX, 2)


# The parts of a stage: read, written by one writer at a time, and cleared of what an earlier writer left.


TEMPORARY = ".tmp-"
ERROR = "error"
BINARY = (pa.binary(), pa.large_binary())


@dataclass(frozen=True)
class PartIds:
    """The sorted ids of the existing rows, and the number of rows with an error."""

    ids: Digests
    errors: int


class Count(NamedTuple):
    """How many rows there are, how many of them have an error, and whether any two have the same id."""

    rows: int
    errors: int
    repeats: bool


@dataclass(frozen=True)
class Parts:
    """The parts under `out`. `run`: the name of the writer's folder; empty for a reader.

    Workers that receive it reach stores as the driver does, also for what a role reads.
    """

    out: str
    filesystem: fs.FileSystem
    path: str
    run: str = ""
    stores: Stores = field(default_factory=Stores)

    @property
    def local(self) -> bool:
        return isinstance(self.filesystem, fs.LocalFileSystem)

    def names(self) -> list[str]:
        return [name for name in files.entries(self.out) if name.startswith("part-") and name.endswith(".parquet")]

    def write(self, table: pa.Table, id_column: str) -> None:
        """Writes all of `table` as one part, named by its ids. Raises RunError if another writer has taken over."""
        self.put(f"part-{content_id(*sorted(table[id_column].to_pylist()))}.parquet", table)

    def put(self, name: str, table: pa.Table) -> None:
        """Replaces the part `name` atomically."""
        data = _encoded(table)
        with _refusals(self.out):
            if self.local:
                self._put_local(name, data)
                return
            patiently(self.out, partial(self._put_object, name, data), reached=True)

    def _put_object(self, name: str, data: memoryview) -> None:
        if self.filesystem.get_file_info(f"{self.path}/{self.run}/writer").type == fs.FileType.NotFound:
            raise FileNotFoundError
        files.check_commit(f"{self.out}/{name}")
        files.put(self.filesystem, f"{self.path}/{name}", data)

    def _put_local(self, name: str, data: memoryview) -> None:
        temporary = f"{self.path}/{self.run}/{name}-{uuid.uuid4().hex[:8]}"
        try:
            with open(temporary, "xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            files.check_commit(f"{self.out}/{name}")
            os.replace(temporary, f"{self.path}/{name}")
        except BaseException:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise

    def note(self, kind: str) -> int:
        """Counts an event in the writer's folder; returns how often it has happened, this time included."""
        folder = f"{self.path}/{self.run}"
        with _refusals(self.out):
            path = f"{folder}/{kind}-{uuid.uuid4().hex}"
            patiently(self.out, partial(files.put, self.filesystem, path, b""), reached=True)
            entries = file_info(self.filesystem, fs.FileSelector(folder))
        return sum(info.base_name.startswith(f"{kind}-") for info in entries)

    def read(self, name: str, columns: Collection[str] | None = None) -> pa.Table:
        """Returns a part. Columns that it lacks are left out."""

        def table() -> pa.Table:
            # Not read_table: it would take a run directory named `step=3` for a partition and add its column.
            with self.filesystem.open_input_file(f"{self.path}/{name}") as stream:
                return sealed.read(stream, columns)

        try:
            return patiently(self.out, table)
        except (OSError, pa.ArrowException) as error:
            message = f"{self.out}/{name} cannot be read ({error}); delete it and run again"
            raise StorageError(refusal(self.out, error) or message) from error

    def each(self, columns: Collection[str]) -> Iterator[pa.Table]:
        """Yields the parts by name, reading a few at a time. Columns that a part lacks are left out."""
        names = self.names()
        with ThreadPoolExecutor(THREADS) as pool:
            for start in range(0, len(names), THREADS):
                yield from pool.map(lambda name: self.read(name, columns), names[start : start + THREADS])

    def census(self, id_column: str) -> PartIds:
        buffer, errors = RecordBuffer(DIGEST), 0
        for table in self.each((id_column, ERROR)):
            buffer.add(digests(table[id_column]))
            errors += int(failed(table).sum())
        ids = buffer.whole()
        ids.sort()  # in place, because a copy of millions of ids takes memory
        return PartIds(ids, errors)

    def count(self, id_column: str) -> Count:
        """As `census`, in memory that does not grow with the rows: the ids are sorted in a file."""
        rows = errors = 0
        with _refusals(self.out), OnDisk(DIGEST, f"{self.path}/{self.run}" if self.local else None) as sorter:
            for table in self.each((id_column, ERROR)):
                sorter.add(digests(table[id_column]))
                rows, errors = rows + table.num_rows, errors + int(failed(table).sum())
            return Count(rows, errors, any(repeats(ids).any() for ids in sorter.in_order()))

    def drop_repeats(self, id_column: str) -> Count:
        """Keeps every id once, in the first part that has it; returns the count afterwards.

        No row is repeated in an undisturbed run. A source that names a row twice repeats it. So does Ray when it
        recomputes a lost block with other bounds, whose rows then go to parts with other names.
        """
        if not (count := self.count(id_column)).repeats:
            return count
        of_parts = [digests(table[id_column]) for table in self.each((id_column,))]
        first = np.zeros(count.rows, bool)
        first[np.unique(np.concatenate(of_parts), return_index=True)[1]] = True
        bounds = np.cumsum([len(ids) for ids in of_parts])[:-1]
        for name, is_first in zip(self.names(), np.split(first, bounds), strict=True):
            if is_first.all():
                continue
            if is_first.any():
                self.put(name, self.read(name).filter(pa.array(is_first)))
            else:
                files.check_commit(f"{self.out}/{name}")
                with _refusals(self.out):
                    removed(self.out, partial(self.filesystem.delete_file, f"{self.path}/{name}"))
        return self.count(id_column)


def opened(out: str) -> Parts:
    """Returns the parts under `out`, for reading."""
    return Parts(out, *resolve(out))


@contextmanager
def writing(out: str) -> Iterator[Parts]:
    """Opens the parts under `out` for the only writer.

    Raises RunError if another process is writing: on a local disk one of this machine, on an object store any.
    """
    files.make_directory(out)
    reader = opened(out)
    parts = Parts(out, reader.filesystem, reader.path, f"{TEMPORARY}{uuid.uuid4().hex}")
    with ExitStack() as stack:
        stack.enter_context(_locked(out, parts.path) if parts.local else writers.held(out))
        files.check_commit(out)
        with _refusals(out):
            for name in files.entries(out):
                if name.startswith(TEMPORARY):
                    removed(out, partial(_remove, parts, name))
            folder = f"{parts.path}/{parts.run}"
            patiently(out, partial(parts.filesystem.create_dir, folder), reached=True)
            patiently(out, partial(files.put, parts.filesystem, f"{folder}/writer", b""), reached=True)
        try:
            yield parts
        finally:
            # Not patiently: what stays is removed by the next writer. It is gone if one has taken over.
            with suppress(OSError):
                _remove(parts, parts.run)


def failed(table: pa.Table) -> NDArray[np.bool_]:
    """Returns which rows have an error; none if the table has no such column."""
    if ERROR not in table.column_names:
        return np.zeros(table.num_rows, bool)
    return np.asarray(table[ERROR].is_valid())


def _encoded(table: pa.Table) -> memoryview:
    # Encoded images and embeddings do not compress, and trying takes longer than writing them.
    small = {f.name: "zstd" for f in table.schema if not (pa.types.is_nested(f.type) or f.type in BINARY)}
    return sealed.encoded(table, compression=small or "none", use_dictionary=list(small))


@contextmanager
def _locked(out: str, path: str) -> Iterator[None]:
    with ExitStack() as stack:
        with _refusals(out):
            stack.enter_context(only_writer(path, out, "writing here"))
        yield


@contextmanager
def _refusals(out: str) -> Iterator[None]:
    """Turns a writer's OSErrors into errors that say what to do."""
    try:
        with files.refusals(out):
            yield
    except FileNotFoundError:
        raise RunError(
            f"{out}: another run has taken over this directory, or it is not the same directory on every node of the "
            "cluster; use a shared file system or an object store"
        ) from None
    except OSError as error:
        raise StorageError(f"{out}: cannot write: {error}; what is written is kept; run again to resume") from error


def _remove(parts: Parts, name: str) -> None:
    """Moves a writer's folder away, then deletes it."""
    folder = f"{parts.path}/{name}"
    if parts.local:
        # Renamed first: a late writer could otherwise put a file into the folder while it is being emptied.
        folder = f"{parts.path}/{TEMPORARY}{uuid.uuid4().hex}-done"
        os.rename(f"{parts.path}/{name}", folder)
    parts.filesystem.delete_dir(folder)


def read_stage(out: str, columns: list[str] | None = None) -> pa.Table:
    """Returns all rows of a stage under `out`, in no particular order. Raises SourceError if there is no part."""
    parts = opened(out)
    names = parts.names()
    if not names:
        raise SourceError(f"{out}: holds no part-*.parquet")
    with ThreadPoolExecutor(THREADS) as pool:
        table = pa.concat_tables(pool.map(lambda name: parts.read(name, columns), names))
    return table.select(columns) if columns is not None else table
