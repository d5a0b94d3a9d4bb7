"""Temporary files of a process: its scratch folder, and local copies of a tenant's files on a store.

    <TMPDIR>/<prefix><random>       locked for as long as its owner lives
    <TMPDIR>/c2b-job-files-<uid>/<tenant>/<hash of the path>/<name>    the copy; the same path in each slice of a job
    <TMPDIR>/c2b-job-files-<uid>/<tenant>/<hash of the path>.lock      locked by each process that uses the copy

Models that read files read the copies. A copy that stayed would outlive the tenant's data on the store, and be used
where the original has changed, so it is removed once no process uses it. What a process that was killed has left is
removed by another: copies by its runner (`sweep_copies`), a scratch folder by the next owner of one. TMPDIR of the
copies is that of the runner, which tells its jobs by `FOLDER`; they have their own. A job's process confines itself to
its tenant's folder. This module knows paths, and no config.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from pyarrow import fs

from c2b_ray.endpoint.policy.names import DATA, UPLOADS
from c2b_ray.errors import ConfigError
from c2b_ray.storage import files, resolve
from c2b_ray.storage.s3 import file_info, patiently

FOLDER = "C2B_JOB_FILES"
"""The variable that names the folder of copies to a job's process."""
_DIGITS = 32
_held: dict[Path, int] = {}
"""The descriptors of this process's locks by the copy's folder."""


def fetch_copy(path: str) -> str:
    """Returns the path of a local copy of a file or folder on a store, which stays until `remove_copies`."""
    folder = copies_folder() / _hash_of_path(path)
    target = folder / path.rstrip("/").rpartition("/")[2]
    _hold(folder)
    filesystem, path_in_store = resolve(path)
    with files.reading(path), files.refusals(path):
        if file_info(filesystem, path_in_store).type == fs.FileType.Directory:
            if not target.exists():
                _download_whole(path, target)
            return str(target)
        folder.mkdir(mode=0o700, exist_ok=True)
        temporary = f"{target}.{os.getpid()}"
        copy = partial(fs.copy_files, path_in_store, temporary, filesystem, fs.LocalFileSystem())
        patiently(path, copy, reached=True)
        os.replace(temporary, target)
    return str(target)


def fetch_copies_of(text: str, tenant_root: str) -> None:
    """Fetches the copies that the manifest `text` of an earlier run names, so that its models can be loaded again.

    A copy's folder tells which file of the tenant it was: an upload by its name, any other by the hash of its path.
    """
    name_of_digest = dict(re.findall(rf"{re.escape(str(copies_folder()))}/([0-9a-f]{{{_DIGITS}}})/([^/\"?&\\]+)", text))
    for digest, name in name_of_digest.items():
        original = next(
            (candidate for candidate in _candidates(tenant_root, name) if _hash_of_path(candidate) == digest), None
        )
        if original is not None:  # otherwise the model's loader says what is missing
            fetch_copy(original)


def remove_copies() -> None:
    """Removes this process's copies that no other uses, and those of processes of its tenant that were killed."""
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()
    _remove_unused("*.lock")


def sweep_copies() -> None:
    """Removes the copies of all tenants that no process uses."""
    _remove_unused("*/*.lock")


def use_folder_of_tenant(tenant_id: str) -> None:
    """Makes this process keep its copies in the tenant's folder, which it creates."""
    os.environ[FOLDER] = str(copies_folder() / tenant_id)
    copies_folder()


def _remove_unused(locks: str) -> None:
    for lock in copies_path().glob(locks):
        with suppress(OSError), lock.open("rb") as file:  # OSError: another process uses it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)


def _download_whole(path: str, target: Path) -> None:
    """Downloads a folder beside `target` first, so that no process uses half of it."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    files.download(path, temporary)
    try:
        temporary.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(temporary)  # another process was faster


def _candidates(tenant_root: str, name: str) -> Iterator[str]:
    root = tenant_root.rstrip("/")
    yield f"{root}/{UPLOADS}/{name}"
    filesystem, path_in_store = resolve(f"{root}/{DATA}")
    selector = fs.FileSelector(path_in_store, recursive=True, allow_not_found=True)
    for info in file_info(filesystem, selector):
        if info.base_name == name:
            yield f"{root}/{DATA}{info.path.removeprefix(path_in_store.rstrip('/'))}"


def _hold(folder: Path) -> None:
    """Locks the copy against removal until this process ends; removes first what is left of killed processes."""
    if folder in _held:
        return
    lock = folder.with_suffix(".lock")
    descriptor = os.open(lock, os.O_RDONLY | os.O_CREAT, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    _held[folder] = descriptor


def _hash_of_path(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:_DIGITS]


def copies_path() -> Path:
    return Path(os.environ.get(FOLDER) or f"{tempfile.gettempdir()}/c2b-job-files-{os.getuid()}")


def copies_folder() -> Path:
    """Returns the folder of all copies, the same in each slice of a job, because a run's id depends on its files'
    paths."""
    path = copies_path()
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.getuid() or path.is_symlink():
        raise ConfigError("", f"{path} belongs to another user; remove it, or set TMPDIR")
    return path


class ScratchFolder:
    """A new, empty folder below TMPDIR, until `close`. Removes first the folders with this `prefix` of this user whose
    owners are dead."""

    def __init__(self, prefix: str) -> None:
        _sweep_scratch(prefix)
        while True:
            self.path = tempfile.mkdtemp(prefix=prefix)
            try:
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue  # another process took it, before it was locked, for a dead one's
            with suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.isdir(self.path):
                    return
            os.close(self._lock)  # another process is just taking it

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _sweep_scratch(prefix: str) -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):  # it is gone, or its owner lives (BlockingIOError)
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(opened).st_uid == os.getuid():
                    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(opened)
