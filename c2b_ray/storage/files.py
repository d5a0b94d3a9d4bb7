"""Reads and writes whole files through pyarrow's file systems, on local disks and object stores alike.

It knows paths and bytes, not their meaning. A local file is written under a temporary name in its folder and renamed,
so that a reader sees the old file or the new one; an object store's put is atomic by itself.
"""

from __future__ import annotations

import errno
import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyarrow import fs

from c2b_ray.errors import SourceError, StorageError, resuming
from c2b_ray.storage import absent_bucket, refusal, resolve, sealed
from c2b_ray.storage.s3 import open_input, patiently, removed

# Checks, before a file of a run is committed, whether this process may still commit.


CommitCheck = Callable[[str], None]
"""A check of a location that is about to be written or removed; raises if this process may not."""

_commit_check: CommitCheck | None = None


def check_commit(location: str | Path) -> None:
    """Calls the check, if there is one, and raises what it raises."""
    if _commit_check is not None:
        _commit_check(str(location))


@contextmanager
def commits_checked(check: CommitCheck) -> Iterator[None]:
    """Makes every commit of this process call `check` first, during the block."""
    global _commit_check
    previous, _commit_check = _commit_check, check
    try:
        yield
    finally:
        _commit_check = previous


_READ = 2**20

T = TypeVar("T")

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
}
_REFUSALS = {
    **_FULL,
    errno.EACCES: "no permission to write there; choose another directory or change its rights",
    errno.EPERM: "no permission to write there; choose another directory or change its rights",
    errno.EFBIG: "it would be larger than a file may be; raise the limit (ulimit -f), or choose another file system",
    errno.EROFS: "the file system is read-only; choose another directory",
    errno.EISDIR: "a directory is there; name a file",
    errno.ENOTDIR: "a part of the path is a file; choose another directory",
    errno.EEXIST: "a file, or a link to nothing, is where a directory is needed; choose another place or remove it",
    errno.ENAMETOOLONG: "a name in the path is too long for the file system; choose a shorter one",
}


@contextmanager
def answers(location: str | Path) -> Iterator[None]:
    """Turns an object store's refusal into a StorageError that names the path and what to do."""
    try:
        yield
    except OSError as error:
        if words := refusal(location, error):
            raise StorageError(words, location=str(location)) from error
        raise


@contextmanager
def refusals(location: str | Path) -> Iterator[None]:
    """Does what `answers` does, and also for errors of writing to a local disk."""
    try:
        with answers(location):
            yield
    except OSError as error:
        code = error.errno
        if code is None:  # pyarrow puts the errno into the message only
            code = next((c for c in _REFUSALS if f"[errno {c}]" in str(error)), None)
        if code not in _REFUSALS:
            raise
        remedy = resuming("free some space") if code in _FULL else None
        raise StorageError(f"{location}: {_REFUSALS[code]}", location=str(location), remedy=remedy) from error


@contextmanager
def reading(location: str | Path, kind: str = "file") -> Iterator[None]:
    """Does what `answers` does, and raises SourceError for what is missing, or is a directory."""
    try:
        with answers(location):
            yield
    except (FileNotFoundError, NotADirectoryError) as error:  # the latter below what is a file
        words = absent_bucket(location) or f"{location}: no such {kind}"
        raise SourceError(words, location=str(location)) from error
    except OSError as error:
        if "is a directory" not in str(error):  # pyarrow says it in words alone
            raise
        raise SourceError(f"{location}: is a directory, no {kind}", location=str(location)) from error


def make_directory(location: str | Path) -> None:
    filesystem, path = resolve(location)
    try:
        with refusals(location):
            patiently(location, lambda: filesystem.create_dir(path, recursive=True))
    except FileNotFoundError as error:  # of /proc, and of a working directory that was removed
        raise StorageError(f"{location}: no directory can be made there; choose another place") from error


def exists(location: str | Path) -> bool:
    filesystem, path = resolve(location)
    with answers(location):
        return bool(patiently(location, lambda: filesystem.get_file_info(path)).type != fs.FileType.NotFound)


def is_directory(location: str | Path) -> bool:
    filesystem, path = resolve(location)
    with answers(location):
        return bool(patiently(location, lambda: filesystem.get_file_info(path)).type == fs.FileType.Directory)


def entries(location: str | Path) -> list[str]:
    """Returns the sorted names directly inside a directory; [] if it does not exist."""
    filesystem, path = resolve(location)
    selector = fs.FileSelector(path, allow_not_found=True)
    with answers(location):
        return sorted(info.base_name for info in patiently(location, lambda: filesystem.get_file_info(selector)))


def contents(location: str | Path) -> dict[str, bool]:
    """Returns name → whether it is a directory, of all that is directly inside a directory, sorted by name; {} if it
    does not exist."""
    filesystem, path = resolve(location)
    selector = fs.FileSelector(path, allow_not_found=True)
    with answers(location):
        infos = patiently(location, lambda: filesystem.get_file_info(selector))
    return {info.base_name: info.type == fs.FileType.Directory for info in sorted(infos, key=lambda i: i.base_name)}


def size(location: str | Path) -> int:
    """Returns the bytes of a file. Raises SourceError if there is none."""
    filesystem, path = resolve(location)
    with reading(location):
        info = patiently(location, lambda: filesystem.get_file_info(path))
        if info.type != fs.FileType.File:
            raise FileNotFoundError
    return int(info.size)


def sizes(location: str | Path, prefix: str = "") -> dict[str, int]:
    """Returns name → bytes of the files directly inside a directory that begin with `prefix`, sorted by name."""
    filesystem, path = resolve(location)
    selector = fs.FileSelector(path, allow_not_found=True)
    with answers(location):
        infos = patiently(location, lambda: filesystem.get_file_info(selector))
    size_of_name = {info.base_name: int(info.size) for info in infos if info.type == fs.FileType.File}
    return {name: size_of_name[name] for name in sorted(size_of_name) if name.startswith(prefix)}


def remove_file(location: str | Path) -> None:
    filesystem, path = resolve(location)
    check_commit(location)
    with refusals(location):
        removed(location, lambda: filesystem.delete_file(path))


def write_bytes(location: str | Path, data: bytes) -> None:
    filesystem, path = resolve(location)
    if not isinstance(filesystem, fs.LocalFileSystem):
        check_commit(location)
        with refusals(location):
            patiently(location, lambda: put(filesystem, path, data))
        return
    temporary = f"{path}.tmp-{uuid.uuid4().hex[:8]}"
    with refusals(location):
        try:
            with open(temporary, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            check_commit(location)  # as late as possible: the answer soon becomes stale
            os.replace(temporary, path)
        # Not in `refusals`: for stages it means that another writer has taken over (`storage.parts`).
        except FileNotFoundError as error:
            raise StorageError(f"{location}: the directory is missing, or has been removed; create it first") from error
        finally:
            Path(temporary).unlink(missing_ok=True)


def put(filesystem: fs.FileSystem, path: str, data: bytes | memoryview) -> None:
    """Writes one object of a store, which is atomic."""
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)


def write_under(location: str | Path, data: bytes) -> None:
    """Does what `write_bytes` does, and creates missing directories above."""
    folder, slash, _ = str(location).rpartition("/")
    if slash and folder:
        make_directory(folder)
    write_bytes(location, data)


def read_bytes(location: str | Path) -> bytes:
    filesystem, path = resolve(location)
    with reading(location), open_input(filesystem, path) as stream:
        return bytes(stream.read())


def sha256(location: str | Path) -> tuple[str, int]:
    """Returns the SHA-256 and the bytes of a file, without holding it in memory."""
    filesystem, path = resolve(location)

    def read() -> tuple[str, int]:
        total, bytes_read = hashlib.sha256(), 0
        with filesystem.open_input_stream(path) as stream:
            while block := stream.read(_READ):
                total.update(block)
                bytes_read += len(block)
        return total.hexdigest(), bytes_read

    with reading(location):
        return patiently(location, read, reached=True)


def remove_directory(location: str | Path) -> None:
    filesystem, path = resolve(location)
    check_commit(location)
    with refusals(location):
        removed(location, lambda: filesystem.delete_dir(path))


def download(location: str | Path, folder: Path) -> None:
    """Copies the files directly inside `location` into the new local `folder`."""
    filesystem, path = resolve(location)
    names = entries(location)
    with reading(location), refusals(folder):
        folder.mkdir(parents=True)
        infos = patiently(location, lambda: filesystem.get_file_info([f"{path}/{name}" for name in names]))
        for info in infos:
            if info.type == fs.FileType.File:
                target = str(folder / info.base_name)
                copy = partial(fs.copy_files, info.path, target, filesystem, fs.LocalFileSystem())
                patiently(location, copy, reached=True)


def upload(folder: Path, location: str, last: str) -> None:
    """Copies everything below the local `folder` to `location`, the file `last` after all others.

    Raises StorageError if other files are at `location`; files of an earlier, interrupted upload are replaced.
    """
    filesystem, path = resolve(location)
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    expected = {name.partition("/")[0] for name in names}
    if foreign := [name for name in entries(location) if name not in expected]:
        raise StorageError(f"{location}: there are other files already ({foreign[0]} …); choose an empty folder")
    with refusals(location):
        for name in sorted(names, key=lambda name: name == last):
            copy = partial(fs.copy_files, str(folder / name), f"{path}/{name}", fs.LocalFileSystem(), filesystem)
            patiently(location, copy)


def encoded_table(table: pa.Table) -> bytes:
    """Returns the bytes that `write_table` writes, which are the same for equal tables."""
    return bytes(sealed.encoded(table, compression="zstd"))


def write_table(location: str | Path, table: pa.Table) -> None:
    write_bytes(location, encoded_table(table))


def read_table(location: str | Path, columns: list[str] | None = None) -> pa.Table:
    """Returns a Parquet file, or all `part-*.parquet` of a directory, as one table."""
    parts = [parquet(path, lambda file: file.read(columns)) for path in table_files(location)]
    return pa.concat_tables(parts, promote_options="default")  # a run of two releases: older parts lack columns


def table_files(location: str | Path) -> list[str]:
    """Returns the files of a table."""
    filesystem, path = resolve(location)
    with reading(location, "table"):
        info = patiently(location, lambda: filesystem.get_file_info(path))
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError
    if info.type == fs.FileType.File:
        return [str(location)]
    names = [name for name in entries(location) if name.startswith("part-") and name.endswith(".parquet")]
    if not names:
        raise SourceError(f"{location}: holds no part-*.parquet")
    return [f"{str(location).rstrip('/')}/{name}" for name in names]


def parquet(location: str, read: Callable[[sealed.SealedParquet], T]) -> T:
    """Returns what `read` returns for a Parquet file. Raises SourceError if it is missing or damaged."""
    filesystem, path = resolve(location)

    def result() -> T:
        with filesystem.open_input_file(path) as stream:
            return read(sealed.SealedParquet(stream))

    try:
        with reading(location, "table"):
            return patiently(location, result)
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())  # Thrift's errors have several lines
        raise SourceError(
            f"{location}: not a Parquet file that can be read ({reason}); where it is damaged or cut short, copy it "
            "again, or delete it and run again the command that made it: it rewrites the scores and parts of a run",
            location=str(location),
        ) from error
