"""Lists and reads a source's files, and defines the shape of the rows that every source yields.

It knows file systems, local and remote alike, and not what is in the files. A file that cannot be read is a row that
says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import fs

from c2b_ray.errors import ImageError, SourceError
from c2b_ray.storage import THREADS, Stores, concerns_the_store, refusal, resolve
from c2b_ray.storage.confined import MAX_BYTES, Folder
from c2b_ray.storage.folders import OmittedRows, is_hidden, reason_of
from c2b_ray.storage.s3 import file_info, open_input

ROW = pa.schema([("key", pa.string()), ("bytes", pa.binary()), ("error", pa.string())])
ROWS_AT_ONCE = 64
BYTES_AT_ONCE = 32 * 2**20

Content = tuple[bytes | None, str | None]
"""The bytes of a file, or why there are none."""


@dataclass(frozen=True)
class Location:
    """A folder: `source` as the user wrote it, `path` within the file system. Workers open it as the driver does."""

    source: str
    filesystem: fs.FileSystem
    path: str
    stores: Stores = field(default_factory=Stores)

    def open(self, name: str) -> Any:
        """Opens a file of the folder for seeking and reading."""
        return open_input(self.filesystem, f"{self.path}/{name}")

    def fetch(self, name: str, follow_links: bool = True) -> Content:
        """Returns a file's bytes, or why there are none.

        `follow_links`: links in a folder belong to its owner; those that a table names may belong to anybody.
        """
        return self._fetched(name, Folder(self.filesystem, self.path, follow_links))

    def _fetched(self, name: str, folder: Folder) -> Content:
        try:
            return folder.read(name, MAX_BYTES), None
        except ImageError as error:
            return None, str(error)
        except (OSError, pa.ArrowException, ValueError) as error:
            return None, unread(error, self.source)

    def fetch_all(self, names: Sequence[str], follow_links: bool = True) -> list[Content]:
        """Fetches many files in parallel: an object store answers slowly, but many requests at once."""
        folder = Folder(self.filesystem, self.path, follow_links)
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(partial(self._fetched, folder=folder), names))


@dataclass
class Listing:
    """The files below a folder by their relative paths, sorted. `refused`: paths that cannot be read, and why.
    `left_out`: what is not listed, such as hidden files."""

    names: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    left_out: OmittedRows = field(default_factory=OmittedRows)


def listing(location: Location) -> Listing:
    """Lists every file below `location` once, whatever links there are. Files and folders that begin with a dot are
    left out."""
    result = _walked(location) if isinstance(location.filesystem, fs.LocalFileSystem) else _selected(location)
    result.names.sort()
    return result


def sizes(source: str) -> pa.Table:
    """Returns `name` and `size` (bytes) of every file of a source, a folder or one file, without reading any."""
    filesystem, path = resolve(source)
    try:
        info = file_info(filesystem, path.rstrip("/"))
        folder, _, name = info.path.rpartition("/")
        if info.type == fs.FileType.Directory:
            folder = info.path
            names = listing(Location(source, filesystem, folder)).names
        else:
            names = [name]
        infos = file_info(filesystem, [f"{folder}/{name}" for name in names])
    except OSError as error:
        raise SourceError(refusal(source, error) or f"{source}: cannot be listed: {error}") from error
    return pa.table({"name": names, "size": pa.array([info.size for info in infos], pa.int64())})


def unread(error: BaseException, source: str) -> str:
    """Returns a row's error in words that do not depend on the machine. Raises SourceError where the whole store cannot
    be reached."""
    if concerns_the_store(error):
        raise SourceError(refusal(source, error)) from error
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, PermissionError):
        return "no permission to read"
    return f"cannot be read: {str(error) or type(error).__name__}"


def tables(rows: Iterable[Mapping[str, Any]], extra: Sequence[pa.Field] = ()) -> Iterator[pa.Table]:
    """Yields rows of `ROW` and `extra` string columns, in tables that are small in rows and in bytes."""
    schema = pa.schema([*ROW, *extra])
    pending: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row.get("bytes") or b"")
        if len(pending) == ROWS_AT_ONCE or size > BYTES_AT_ONCE:
            yield pa.Table.from_pylist(pending, schema)
            pending, size = [], 0
    if pending:
        yield pa.Table.from_pylist(pending, schema)


def _walked(location: Location) -> Listing:
    # Not pyarrow's recursive selector, which follows links to folders for ever: two links to a parent filled 20 GB.
    result = Listing()
    folders, visited = [""], set()
    while folders:
        folder = folders.pop()
        try:
            status = os.stat(f"{location.path}/{folder}")
            if (status.st_dev, status.st_ino) in visited:
                result.left_out.add("linked folder that is listed already", folder)
                continue
            visited.add((status.st_dev, status.st_ino))
            entries = sorted(os.scandir(f"{location.path}/{folder}"), key=lambda entry: entry.name)
        except OSError as error:
            result.refused[_printable(folder)] = f"the folder cannot be listed: {error.strerror}"
            continue
        # Real folders before links to them, so that a file is named by where it is.
        folders += [folder + e.name + "/" for e in entries if _visible(e.name) and e.is_dir() and e.is_symlink()][::-1]
        folders += [folder + e.name + "/" for e in entries if _visible(e.name) and e.is_dir(follow_symlinks=False)][
            ::-1
        ]
        for entry in entries:
            _list(result, entry, folder + entry.name)
    return result


def _list(result: Listing, entry: os.DirEntry[str], name: str) -> None:
    if not _visible(entry.name):
        result.left_out.add(reason_of(name), _printable(name))
    elif not (entry.is_file() or _is_broken_link(entry)):
        if not entry.is_dir():  # such as a pipe, which would never end
            result.left_out.add("no regular file (a pipe, socket or device)", _printable(name))
    elif _printable(name) == name:
        result.names.append(name)
    else:
        result.refused[_printable(name)] = "the file's name is not UTF-8; rename it"


def _selected(location: Location) -> Listing:
    selector = fs.FileSelector(location.path, recursive=True)
    infos = file_info(location.filesystem, selector)
    names = [info.path[len(location.path) :].lstrip("/") for info in infos if info.type == fs.FileType.File]
    result = Listing([name for name in names if not is_hidden(name)])
    result.left_out.add_files(name for name in names if is_hidden(name))
    return result


def _visible(name: str) -> bool:
    return not is_hidden(name)


def _is_broken_link(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and not os.path.exists(entry.path)


def _printable(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")
