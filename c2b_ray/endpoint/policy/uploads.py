"""Uploads: a stream becomes a checked file of the tenant, named by the hash of its content, or leaves nothing.

    <root>/uploads/.incoming/<random>          while it arrives; removed if it is refused
    <root>/uploads/.incoming/<sha256>/00003    a part of a file that is sent in parts and has this hash as a whole
    <root>/uploads/<sha256>.onnx               after the checks (`names.upload_path`)

The same bytes twice are stored once. The receiver removes an interrupted upload; if the receiver died, `sweep_uploads`
does. Of an upload in parts, what arrived before a connection broke is kept, and only the rest is sent again. Its parts
are equally long, but for the last one, and neither checked nor named by any config: once all are there,
`UploadReceiver` receives the file from them, as it would from a connection. This module knows streams and files; the
caller handles the ledger's rows and a tenant's quota.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import hashlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Literal, get_args

from pyarrow import fs

from c2b_ray.config.endpoint import Policy
from c2b_ray.endpoint.policy.archives import check_picture_file, unpack
from c2b_ray.endpoint.policy.copies import ScratchFolder
from c2b_ray.endpoint.policy.names import UPLOADS, upload_path
from c2b_ray.endpoint.policy.weights import check_weights
from c2b_ray.errors import InputError, SourceError, StorageError, WeightsError
from c2b_ray.storage import files, resolve
from c2b_ray.storage.s3 import file_info, patiently

Kind = Literal["onnx", "safetensors", "image", "images", "table", "csv", "text"]
KINDS: tuple[Kind, ...] = get_args(Kind)
INCOMING = ".incoming"


class TooLargeError(InputError):
    """The body exceeds the most bytes that are accepted; it was not read to its end."""


@dataclass(frozen=True)
class StoredUpload:
    """A stored upload. `bytes`: its size on the store. `new`: whether it was not there before. `meta`: facts read from
    it."""

    sha256: str
    kind: Kind
    bytes: int
    path: str
    new: bool
    meta: dict[str, Any] = field(default_factory=dict)


class UploadReceiver:
    """Receives one upload. Use it as a context manager, which removes unfinished files at the end.

    `root`: the tenant's root, local or s3://. `most`: the most bytes to accept, such as the rest of the tenant's quota.
    """

    def __init__(self, root: str, policy: Policy, most: int | None = None) -> None:
        self._root, self._policy = root.rstrip("/"), policy
        self._most = policy.upload_bytes if most is None else min(most, policy.upload_bytes)
        self._digest, self._size = hashlib.sha256(), 0
        folder = f"{self._root}/{UPLOADS}/{INCOMING}"
        with _storage(folder):
            self._scratch = ScratchFolder("c2b-upload-") if "://" in root else None
            if self._scratch is not None:
                folder = self._scratch.path
            os.makedirs(folder, 0o700, exist_ok=True)
            self._path = f"{folder}/{uuid.uuid4().hex}"
            self._file = open(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")  # noqa: SIM115

    def __enter__(self) -> UploadReceiver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def write(self, part: bytes) -> None:
        """Writes a part. Raises TooLargeError as soon as there are too many bytes, StorageError if the disk is full."""
        self._size += len(part)
        if self._size > self._most:
            raise TooLargeError(f"the body is larger than the {self._most} bytes that are accepted")
        self._digest.update(part)
        with _storage(self._path):
            self._file.write(part)

    @property
    def sha256(self) -> str:
        """The hash of what was received so far."""
        return self._digest.hexdigest()

    def finish(self, kind: Kind, sha256: str | None = None) -> StoredUpload:
        """Checks the upload and moves it to its final path. Raises WeightsError, ImageError or SourceError if it is not
        of its `kind`.

        `sha256`: the hash that the client expects; raises SourceError if something else arrived.
        """
        digest = self._digest.hexdigest()
        if sha256 is not None and sha256.lower() != digest:
            raise SourceError(f"the body has the sha256 {digest}, not {sha256[:64]!r}; it was damaged in transit")
        with _storage(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
        target = upload_path(self._root, digest, kind)
        if files.exists(_completion_marker(target, kind)):
            return StoredUpload(digest, kind, _bytes(target, self._size), target, False)
        result_path = f"{self._path}.unpacked" if kind == "images" else self._path
        meta = _seen(self._path, kind, self._policy, result_path)
        size = _bytes(result_path, self._size)
        if size > self._most:
            raise TooLargeError(f"it unpacks to {size} bytes, more than the {self._most} that are accepted")
        return StoredUpload(digest, kind, size, target, _kept(result_path, target), meta)

    def abort(self) -> None:
        """Removes unfinished files. It has no effect after `finish` or a second time."""
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        shutil.rmtree(f"{self._path}.unpacked", ignore_errors=True)
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None


def remove_upload(root: str, sha256: str, kind: str) -> None:
    """Deletes the file or folder of an upload, if there is one. `kind`: one of `KINDS`."""
    path = upload_path(root, sha256, kind)
    marker = _completion_marker(path, kind)
    if not files.exists(marker):
        return
    if kind == "images":
        if marker != path:
            files.remove_file(marker)
        files.remove_directory(path)
    else:
        files.remove_file(path)


def sweep_uploads(root: str, older_than_seconds: float = 86_400.0) -> int:
    """Removes what interrupted uploads left below a root; returns how many. On a store only parts are left."""
    folder, removed = f"{root.rstrip('/')}/{UPLOADS}/{INCOMING}", 0
    if "://" in root:
        return _sweep_store(folder, older_than_seconds)
    with contextlib.suppress(FileNotFoundError):
        for entry in list(os.scandir(folder)):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > older_than_seconds:
                    shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
                    removed += 1
    return removed


def _sweep_store(folder: str, older_than_seconds: float) -> int:
    """Removes the parts of each upload of which no part is newer; returns of how many uploads."""
    filesystem, path = resolve(folder)
    with files.answers(folder):
        infos = file_info(filesystem, fs.FileSelector(path, allow_not_found=True, recursive=True))
    newest: dict[str, float] = {}
    for info in infos:
        if info.type == fs.FileType.File:
            name = info.path[len(path.rstrip("/")) + 1 :].partition("/")[0]
            newest[name] = max(newest.get(name, 0.0), (info.mtime_ns or 0) / 1e9)
    old = [name for name, at in newest.items() if time.time() - at > older_than_seconds]
    for name in old:
        files.remove_directory(f"{folder}/{name}")
    return len(old)


def _completion_marker(path: str, kind: str) -> str:
    """Returns the path that exists if and only if the whole upload is there. For a folder on a store that is an object
    written last."""
    return f"{path}.whole" if kind == "images" and "://" in path else path


def _seen(path: str, kind: Kind, policy: Policy, unpacked_path: str) -> dict[str, Any]:
    """Returns facts about a file of this kind, for its row. An archive is unpacked to `unpacked_path`."""
    if kind == "images":
        return {"images": unpack(path, unpacked_path, policy)}
    if kind == "image":
        picture = check_picture_file(path, policy)
        return {"format": picture.format, "width": picture.width, "height": picture.height}
    if kind == "table":
        _check_parquet(path)
        return {}
    if kind in ("csv", "text"):
        _check_text(path)
        return {}
    summary = check_weights(path, policy.weights)
    if summary.kind != kind:
        raise WeightsError(f"the file is {summary.kind}, not {kind}")
    return {"tensors": summary.tensors, "nodes": summary.nodes, "opset": summary.opset}


def _check_parquet(path: str) -> None:
    """Checks the first and last bytes only; the job's process reads the rest."""
    with open(path, "rb") as file:
        head, size = file.read(4), os.path.getsize(path)
        file.seek(max(size - 4, 0))
        if size < 12 or head != b"PAR1" or file.read(4) != b"PAR1":
            raise SourceError(
                "the first and last bytes are not those of a Parquet table; other formats are not accepted"
            )


def _check_text(path: str) -> None:
    """Checks that a file is text in UTF-8; the job's process reads the rest."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open(path, "rb") as file:
        while part := file.read(2**20):
            try:
                text = decoder.decode(part, final=len(part) < 2**20)
            except UnicodeDecodeError as error:
                raise SourceError(f"it is not text in UTF-8: {error.reason}; save it as UTF-8") from error
            if "\0" in text:
                raise SourceError("it holds NUL characters; expected text in UTF-8")


def _kept(path: str, target: str) -> bool:
    """Moves a file or folder to its final path; returns whether nothing was there."""
    if "://" in target:
        filesystem, path_in_store = resolve(target)
        with files.refusals(target):
            if os.path.isdir(path):
                patiently(target, partial(filesystem.create_dir, path_in_store, recursive=True), reached=True)
            patiently(
                target, partial(fs.copy_files, path, path_in_store, fs.LocalFileSystem(), filesystem), reached=True
            )
        if os.path.isdir(path):
            files.write_bytes(_completion_marker(target, "images"), b"")
        return True
    with _storage(target):
        try:
            os.rename(path, target)
        except OSError as error:  # another request uploaded the same folder of images
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
        descriptor = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return True


def _bytes(path: str, file_size: int) -> int:
    """Returns the bytes of a stored upload: `file_size` for a file, the sum over its files for a folder."""
    if "://" in path or not os.path.isdir(path):
        return file_size
    names = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(os.lstat(name).st_size for name in names)


@contextlib.contextmanager
def _storage(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else (error.strerror or str(error))
        raise StorageError(f"the upload cannot be stored: {reason}; nothing of it was kept", location=path) from error


# An upload in parts: what arrived before a connection broke is kept, and only the rest is sent again.


PART_BYTES = 16 * 2**20
MOST_UNFINISHED_FILES = 16
"""The most files of one tenant of which parts wait for the others."""
_PART = re.compile(r"[0-9]{5}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def add_part(root: str, sha256: str, number: int, data: bytes) -> None:
    """Stores a part. The same part again replaces it. `root`: the tenant's root, local or s3://."""
    files.write_under(f"{_parts_folder(root, sha256)}/{number:05d}", data)


def stored_parts(root: str, sha256: str) -> dict[int, int]:
    """Returns number → bytes of the parts of a file that are stored, in their order."""
    sizes = files.sizes(_parts_folder(root, sha256))
    return {int(name): size for name, size in sizes.items() if _PART.fullmatch(name)}


def read_parts(root: str, sha256: str) -> Iterator[bytes]:
    """Yields the stored parts of a file, in their order."""
    for number in stored_parts(root, sha256):
        yield files.read_bytes(f"{_parts_folder(root, sha256)}/{number:05d}")


def remove_parts(root: str, sha256: str) -> None:
    """Removes the parts of a file, if there are any."""
    if files.contents(_parts_folder(root, sha256)):
        files.remove_directory(_parts_folder(root, sha256))


def unfinished_parts(root: str) -> dict[str, int]:
    """Returns SHA-256 → bytes stored, of each file of which there are parts."""
    names = [name for name in files.contents(f"{root.rstrip('/')}/{UPLOADS}/{INCOMING}") if _SHA256.fullmatch(name)]
    return {name: sum(stored_parts(root, name).values()) for name in names}


def _parts_folder(root: str, sha256: str) -> str:
    return f"{root.rstrip('/')}/{UPLOADS}/{INCOMING}/{sha256}"
