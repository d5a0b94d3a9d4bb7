"""The files of a dataset: its shards and the captions of its plan, each written atomically."""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from c2b_ray.audits.dataset.steps.shard import Caption
from c2b_ray.errors import RunError, StorageError
from c2b_ray.storage import Stores, files, refusal, resolve, s3, sealed
from c2b_ray.storage.s3 import patiently
from c2b_ray.storage.tables import RowsFile, WrittenFile
from c2b_ray.tables.dataset import PLANNED

CANDIDATES, DRAWS = "candidates", ".draws"
SHARDS, DROPS, REPEATS, WORK = "shards", "drops", "repeats", "work"
REPLIES = "replies"
ENDING = ".parquet"
_ABOUT = b"c2b_ray"


@dataclass(frozen=True)
class ShardFiles:
    """The files below `location`. `writer`: the name of the writing process; empty for a reader.

    It can be sent to workers, which then reach stores as the driver does.
    """

    location: str
    writer: str = ""
    stores: Stores = field(default_factory=Stores)

    @property
    def local(self) -> bool:
        return not self.location.startswith(s3.SCHEME)

    def everywhere(self) -> ShardFiles:
        """Returns the same files for processes with another working directory."""
        return replace(self, location=resolve(self.location)[1]) if self.local else self

    def at(self, name: str) -> str:
        return f"{self.location.rstrip('/')}/{name}"

    def make_folders(self) -> None:
        if self.local:  # an object store has none
            for folder in (CANDIDATES, SHARDS, DROPS, REPEATS, f"{WORK}/{self.writer}"):
                files.make_directory(self.at(folder))

    def names(self, folder: str) -> list[str]:
        return files.entries(self.at(folder))

    def exists(self, name: str) -> bool:
        return files.exists(self.at(name))

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        with suppress(FileNotFoundError):
            files.remove_file(self.at(name))

    def read(self, name: str, columns: Collection[str] | None = None) -> pa.Table:
        """Returns a Parquet file. Raises SourceError if it is missing or damaged."""
        return files.read_table(self.at(name), None if columns is None else list(columns))

    def pieces(self, name: str) -> Iterator[pa.Table]:
        """Yields the row groups of a Parquet file in order."""
        filesystem, path = resolve(self.at(name))
        with (
            files.reading(self.at(name), "table"),
            patiently(self.location, lambda: filesystem.open_input_file(path), reached=True) as stream,
        ):
            file = patiently(self.location, lambda: pq.ParquetFile(stream, page_checksum_verification=True))
            for group in range(file.num_row_groups):
                yield patiently(self.location, partial(file.read_row_group, group), reached=True)

    def about(self, name: str) -> dict[str, Any]:
        """Returns the note that `put_table` wrote with a file; only the end of the file is read."""
        filesystem, path = resolve(self.at(name))

        def metadata() -> dict[str, Any]:
            with filesystem.open_input_file(path) as stream:
                schema = sealed.SealedParquet(stream).metadata.schema.to_arrow_schema()
            return dict(json.loads((schema.metadata or {})[_ABOUT]))

        with files.reading(self.at(name), "table"):
            return patiently(self.at(name), metadata, reached=True)

    def put_table(self, name: str, table: pa.Table, about: Mapping[str, Any]) -> None:
        """Writes a small table with a note: its `description`."""
        note = {_ABOUT: json.dumps(dict(about)).encode()}
        data = sealed.encoded(table.replace_schema_metadata(note), compression="zstd")
        with self._temporary(name) as temporary:
            with files.refusals(self.at(name)):
                Path(temporary).write_bytes(data)
            self._publish(temporary, name, once=True)

    @contextmanager
    def rows(self, name: str, schema: pa.Schema) -> Iterator[RowsFile]:
        """Opens a file to add rows to. It gets its name when the block ends without an error."""
        with self._temporary(name) as temporary:
            with files.refusals(self.at(name)):
                rows = RowsFile(temporary, schema)
            try:
                with files.refusals(self.at(name)):
                    yield rows
                    rows.close()
            finally:
                rows.abandon()
            self._publish(temporary, name)

    def put_file(self, name: str, fill: Callable[[str], None]) -> None:
        """Writes a file that `fill` creates at a local path."""
        with self._temporary(name) as temporary:
            with files.refusals(self.at(name)):
                fill(temporary)
            self._publish(temporary, name)

    @contextmanager
    def _temporary(self, name: str) -> Iterator[str]:
        """Yields a local path for the file that becomes `name`; it is removed afterwards."""
        if not self.local:
            with _temporary_path() as path:
                yield path
            return
        path = resolve(self.at(f"{WORK}/{self.writer}"))[1] + f"/{Path(name).name}-{uuid.uuid4().hex[:8]}"
        try:
            yield path
        except FileNotFoundError as error:
            raise self._taken_over() from error
        finally:
            Path(path).unlink(missing_ok=True)

    def _publish(self, temporary: str, name: str, once: bool = False) -> None:
        if self.local:
            with files.refusals(self.at(name)):
                with open(temporary, "rb+") as stream:
                    os.fsync(stream.fileno())
                files.check_commit(self.at(name))
                os.replace(temporary, resolve(self.at(name))[1])
            return
        if not self.exists(f"{WORK}/{self.writer}/writer"):
            raise self._taken_over()
        files.check_commit(self.at(name))
        _put_object(self.at(name), temporary, once)

    def _taken_over(self) -> RunError:
        return RunError(
            f"{self.location}: another build has taken over this directory, or it is not the same directory on every "
            "node of the cluster; use a shared file system or an object store",
            run=self.location,
        )

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Notes a worker's task during the block, so that a later build can count the tasks that a death
        interrupted."""
        note = f"{WORK}/{self.writer}/busy-{what}"
        self._note(note)
        yield
        self.remove(note)  # stays after an error: the task must be repeated

    def _note(self, name: str) -> None:
        filesystem, path = resolve(self.at(name))
        try:
            with files.refusals(self.at(name)):
                patiently(self.location, lambda: files.put(filesystem, path, b"-"), reached=True)
        except FileNotFoundError as error:
            raise self._taken_over() from error

    def begin_writing(self) -> None:
        self.make_folders()
        self._note(f"{WORK}/{self.writer}/writer")

    def digest(self, name: str) -> WrittenFile:
        """Returns the bytes and SHA-256 of a file; its rows are not counted."""
        sha256, size = files.sha256(self.at(name))
        return WrittenFile(0, size, sha256)


@contextmanager
def _temporary_path() -> Iterator[str]:
    """Yields the path of a temporary file that disappears with this process, even if it is killed.

    On systems without such paths, the file is removed at the end of the block.
    """
    descriptor, path = tempfile.mkstemp(prefix="c2b-ray-")
    try:
        if os.path.exists(by_number := f"/proc/self/fd/{descriptor}"):
            os.unlink(path)
            yield by_number
        else:
            yield path
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):
            os.unlink(path)


def _put_object(location: str, path: str, once: bool) -> None:
    """Puts an object. `once`: an existing object is kept, because its name determines its content."""
    target = {"Bucket": s3.bucket_of(location), "Key": s3.key_of(location)}
    condition = {"IfNoneMatch": "*"} if once else {}

    def put() -> None:
        with open(path, "rb") as stream:
            s3.client().put_object(**target, Body=stream, **condition)

    try:
        patiently(location, put, reached=True)
    except s3.refusals() as error:
        response = getattr(error, "response", None)
        if once and isinstance(response, dict) and response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 412:
            return
        words = refusal(location, error) or f"{location}: {s3.without_secrets(str(error))}"
        raise StorageError(words, location=location) from error


# A table in numbered parts, in one file of which each part can be read alone.


Ints = NDArray[np.int64]
PARTS_ENDING = ".arrow"
ROWS_AT_ONCE = 4096
"""As many rows are in memory as this, or as one part has."""


def put(location: ShardFiles, name: str, rows: Callable[[Ints], pa.Table], part_of: Ints, count: int) -> None:
    """Writes the file in `count` parts. `part_of` (rows,): the part of each row, in [0, count). `rows` returns the rows
    of these numbers."""
    order = np.argsort(part_of, kind="stable")
    bounds = np.searchsorted(part_of[order], np.arange(count + 1))
    schema = rows(order[:0]).schema

    def fill(path: str) -> None:
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            first = 0
            while first < count:
                last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + ROWS_AT_ONCE, "right")) - 1)
                table = rows(order[bounds[first] : bounds[last]]).combine_chunks()
                for start, stop in itertools.pairwise((bounds[first : last + 1] - bounds[first]).tolist()):
                    part = table.slice(start, stop - start).to_batches()
                    writer.write_batch(part[0] if part else pa.RecordBatch.from_pylist([], schema))
                first = last

    location.put_file(f"{name}{PARTS_ENDING}", fill)


def read(location: ShardFiles, name: str, number: int) -> pa.Table:
    """Returns one part. Raises ArrowInvalid if the file was cut short: its footer is written last."""
    filesystem, path = resolve(location.at(f"{name}{PARTS_ENDING}"))

    def part() -> pa.Table:
        with filesystem.open_input_file(path) as stream, pa.ipc.open_file(stream) as reader:
            return pa.Table.from_batches([reader.get_batch(number)])

    return patiently(location.location, part, reached=True)


# The captions of a dataset's plan, loaded as they are needed: numbers of all, texts of the few that a shard draws.


CAPTIONS = "captions.parquet"
GROUP = 4096
"""Captions that are read in one go."""
_GROUPS_HELD = 4


class PlannedCaptions:
    """The captions of a plan. `firsts`: the position of each caption's first draw. `label_numbers`: by caption."""

    def __init__(self, location: ShardFiles) -> None:
        self._files = location
        numbers = location.read(CAPTIONS, ["first", "label_number"])
        self.firsts: Ints = numbers["first"].to_numpy()
        self.label_numbers: NDArray[np.int32] = numbers["label_number"].to_numpy()
        self._groups: OrderedDict[int, list[Caption]] = OrderedDict()
        self._lock = Lock()

    def positions(self, table: pa.Table) -> Ints:
        """Returns the position of each row's draw, of a table with columns `caption_number` and `draw`."""
        positions: Ints = self.firsts[table["caption_number"].to_numpy()] + table["draw"].to_numpy()
        return positions

    def __len__(self) -> int:
        return len(self.firsts)

    def __getitem__(self, number: int) -> Caption:
        with self._lock:
            group = number // GROUP
            if group not in self._groups:
                self._groups[group] = self._read(group)
                while len(self._groups) > _GROUPS_HELD:
                    self._groups.popitem(last=False)
            self._groups.move_to_end(group)
            return self._groups[group][number % GROUP]

    def _read(self, group: int) -> list[Caption]:
        filesystem, path = resolve(self._files.at(CAPTIONS))

        def read() -> pa.Table:
            with filesystem.open_input_file(path) as stream:
                return pq.ParquetFile(stream, page_checksum_verification=True).read_row_group(group)

        with files.reading(self._files.at(CAPTIONS), "table"):
            table = patiently(self._files.location, read, reached=True)
        return [
            Caption(
                group * GROUP + row,
                entry["label"],
                entry["caption"],
                None if entry["rows"] is None else tuple(entry["rows"]),
            )
            for row, entry in enumerate(table.to_pylist())
        ]


def write_captions(location: ShardFiles, tables: Iterator[pa.Table]) -> None:
    """Writes tables of `tables.dataset.PLANNED`, in the order of their captions; a few are in memory at a time."""

    def fill(path: str) -> None:
        with pq.ParquetWriter(path, PLANNED, compression="zstd", write_page_checksum=True) as writer:
            pending = PLANNED.empty_table()
            for table in tables:
                pending = pa.concat_tables([pending, table])
                while pending.num_rows >= GROUP:
                    writer.write_table(pending.slice(0, GROUP).combine_chunks(), row_group_size=GROUP)
                    pending = pending.slice(GROUP)
            if pending.num_rows:
                writer.write_table(pending.combine_chunks(), row_group_size=GROUP)

    location.put_file(CAPTIONS, fill)
