"""Copies the storage of an endpoint to a folder and back, with the SHA-256 of each file. It knows no ledger."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pyarrow import fs

from c2b_ray.errors import InputError
from c2b_ray.filesystems import resolve
from c2b_ray.filesystems.patience import file_info
from c2b_ray.store import files

FOLDER, LIST = "storage", "storage.jsonl"
_PART = 2**20


def copy_out(root: str, folder: Path) -> dict[str, Any]:
    """Copies all files below `root` to `folder`/storage; returns their number, their bytes and the SHA-256 of their
    list.

    A file that disappears before it is read, such as a temporary one, is left out.
    """
    filesystem = resolve(root)[0]
    listed, total = [], 0
    for name, path in _files(root):
        try:
            size, sha256 = _copied(filesystem, path, fs.LocalFileSystem(), str(folder / FOLDER / name))
        except FileNotFoundError:
            continue
        listed.append(json.dumps([name, size, sha256]))
        total += size
    data = "".join(f"{line}\n" for line in listed).encode()
    (folder / LIST).write_bytes(data)
    return {"files": len(listed), "bytes": total, "sha256": hashlib.sha256(data).hexdigest()}


def check(folder: Path, record: dict[str, Any], root: str) -> None:
    """Raises InputError if the copy has no storage, a file of it has changed, or `root` holds other files of tenants.

    Files of the copy itself may be there, from a restoration that was interrupted.
    """
    if not record.get("copied"):
        raise InputError(
            f"{folder}: the copy has no storage, which is at {record.get('root')}; leave out --with-storage"
        )
    if hashlib.sha256((folder / LIST).read_bytes()).hexdigest() != record.get("sha256"):
        raise InputError(f"{folder / LIST}: it differs from the file that was written; nothing was restored")
    others = {name for name, _ in _files(root)} - {name for name, _, _ in _listed(folder)}
    if any(name.startswith("tenants/") for name in others):
        raise InputError(f"{root}: other files of tenants are there; restore into an empty storage")
    for name, _, sha256 in _listed(folder):
        path = folder / FOLDER / name
        if not path.is_file() or files.sha256(path)[0] != sha256:
            raise InputError(f"{path}: it differs from the file that was copied; nothing was restored")


def copy_in(folder: Path, root: str) -> None:
    """Copies the files back, after `check`."""
    filesystem, base = resolve(root)
    with files.refusals(root):
        for name, _, _ in _listed(folder):
            _copied(fs.LocalFileSystem(), str(folder / FOLDER / name), filesystem, f"{base.rstrip('/')}/{name}")


def _files(root: str) -> list[tuple[str, str]]:
    """Returns (name below `root`, path) of each file there."""
    filesystem, base = resolve(root)
    with files.answers(root):
        infos = file_info(filesystem, fs.FileSelector(base, recursive=True, allow_not_found=True))
    start = base.rstrip("/") + "/"
    return [(info.path.removeprefix(start), info.path) for info in infos if info.type == fs.FileType.File]


def _listed(folder: Path) -> list[tuple[str, int, str]]:
    listed = [tuple(json.loads(line)) for line in (folder / LIST).read_text(encoding="utf-8").splitlines()]
    for name, _, _ in listed:
        if name.startswith("/") or ".." in name.split("/"):
            raise InputError(f"{folder / LIST}: {name[:200]!r} is not a path below a storage")
    return listed


def _copied(source: fs.FileSystem, path: str, target: fs.FileSystem, to: str) -> tuple[int, str]:
    """Copies a file; returns its bytes and SHA-256."""
    digest, size = hashlib.sha256(), 0
    with source.open_input_stream(path) as stream:
        if isinstance(target, fs.LocalFileSystem):
            target.create_dir(to.rpartition("/")[0])
        with target.open_output_stream(to) as out:
            while part := stream.read(_PART):
                out.write(part)
                digest.update(part)
                size += len(part)
    return size, digest.hexdigest()
