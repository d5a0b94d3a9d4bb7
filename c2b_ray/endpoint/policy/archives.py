"""Reads the members of a zip or tar archive of images one by one, checks them, and writes them to disk.

The sizes that an archive states are not trusted: bytes are counted while unpacking, in a separate process with limits
(`python -m c2b_ray.endpoint.policy.archives`). This module knows archives and paths; `pictures` knows images.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

from c2b_ray.config.endpoint import GIB, Policy
from c2b_ray.endpoint.policy.contents import check_picture
from c2b_ray.endpoint.policy.isolation import can_cut_off, launched
from c2b_ray.endpoint.policy.paths import DATA, RUNS, UPLOADS
from c2b_ray.errors import C2BError, ImageError, SourceError
from c2b_ray.storage import files
from c2b_ray.storage.manifest import parse_json
from c2b_ray.storage.run import MANIFEST
from c2b_ray.tables import content_id

METADATA = ("metadata.csv", "metadata.jsonl")
_LARGEST_METADATA = 64 * 2**20
_DEEPEST, _LONGEST = 10, 400
_CHUNK = 2**20
MINUTES = 30


class ArchiveFile(NamedTuple):
    """A file of an archive. `packed`: its compressed size in bytes; None if the format does not state it."""

    name: str
    packed: int | None
    stream: IO[bytes]


def members(file: IO[bytes], policy: Policy) -> Iterator[ArchiveFile]:
    """Yields the regular files of the archive; read each before the next.

    Raises SourceError for links, devices and encrypted files. Damaged archives raise what Python's readers raise.
    """
    zipped = file.read(4) == b"PK\x03\x04"
    file.seek(0)
    return _of_zip(file, policy) if zipped else _of_tar(file, policy)


def _of_zip(file: IO[bytes], policy: Policy) -> Iterator[ArchiveFile]:
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        _check_count(len(infos), policy)
        for info in infos:
            if info.is_dir():
                continue
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG):
                raise SourceError(f"{info.filename[:200]!r} is a link or a device; expected images in folders")
            if info.flag_bits & 0x1:
                raise SourceError(f"{info.filename[:200]!r} is encrypted")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise SourceError(f"{info.filename[:200]!r} has an unsupported compression; expected deflate")
            with archive.open(info) as stream:
                yield ArchiveFile(info.filename, info.compress_size, stream)


def _of_tar(file: IO[bytes], policy: Policy) -> Iterator[ArchiveFile]:
    with tarfile.open(fileobj=file, mode="r|*") as archive:
        for count, info in enumerate(archive, 1):
            _check_count(count, policy)
            if info.isdir():
                continue
            stream = archive.extractfile(info) if info.isreg() and not info.issparse() else None
            if stream is None:
                raise SourceError(f"{info.name[:200]!r} is a link or a device; expected images in folders")
            yield ArchiveFile(info.name, None, stream)


def _check_count(count: int, policy: Policy) -> None:
    if count > policy.archives.members:
        raise SourceError(f"it has more than {policy.archives.members} members")


def write(archived: Iterator[ArchiveFile], folder: str, policy: Policy) -> int:
    """Checks each image, writes it below the new `folder`, and returns how many. SourceError names a member."""
    os.mkdir(folder, 0o700)
    try:
        return _written(archived, folder, policy)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise SourceError(f"it is damaged: {str(error)[:200]}") from error


def _written(archived: Iterator[ArchiveFile], folder: str, policy: Policy) -> int:
    names_written: set[str] = set()
    total = images = 0
    for member in archived:
        steps = _steps(member.name)
        if not steps:
            continue
        name = "/".join(steps)
        if name.casefold() in names_written:
            raise SourceError(f"{name!r} occurs twice")
        names_written.add(name.casefold())
        is_metadata = name in METADATA
        data = _read(member, _LARGEST_METADATA if is_metadata else policy.image_bytes, policy)
        total += len(data)
        if total > policy.archives.total_bytes:
            raise SourceError(f"it unpacks to more than {policy.archives.total_bytes} bytes")
        if not is_metadata:
            _check(name, data, policy)
            images += 1
        path = os.path.join(folder, *steps)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(data)
    if not images:
        raise SourceError("it holds no images")
    return images


def _check(name: str, data: bytes, policy: Policy) -> None:
    try:
        check_picture(data, policy)
    except ImageError as error:
        raise SourceError(f"{name!r}: {error}") from error


def _steps(name: str) -> tuple[str, ...]:
    """Returns the folders and the name of a member; () for files that operating systems add beside images."""
    steps = PurePosixPath(name).parts
    if name.startswith("/") or ".." in steps or "\\" in name or not name.isprintable() or ":" in name:
        raise SourceError(f"{name[:200]!a} leads out of the archive; expected folder/name.jpg")
    if len(steps) > _DEEPEST or len(name.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise SourceError(f"{name[:200]!r}: at most {_DEEPEST} folders and {_LONGEST} bytes")
    if steps[0] == "__MACOSX" or steps[-1].startswith(".") or steps[-1] == "Thumbs.db":
        return ()
    return steps


def _read(member: ArchiveFile, limit: int, policy: Policy) -> bytes:
    parts, size = [], 0
    while part := member.stream.read(_CHUNK):
        size += len(part)
        if size > limit:
            raise SourceError(f"{member.name[:200]!r} has more than {limit} bytes")
        if member.packed is not None and size > _CHUNK and size > policy.archives.ratio * max(member.packed, 1):
            raise SourceError(f"{member.name[:200]!r} unpacks to more than {policy.archives.ratio:g} times its size")
        parts.append(part)
    return b"".join(parts)


def unpack(path: str, folder: str, policy: Policy) -> int:
    """Unpacks the archive at `path` below the new `folder`, checks each image, and returns how many there are.

    SourceError says why an archive is refused. The folder may then hold part of it; the caller deletes it.
    """
    argv = (sys.executable, "-m", "c2b_ray.endpoint.policy.archives", path, folder, policy.model_dump_json())
    bounds = {"AS": 4 * GIB, "CPU": MINUTES * 60, "CORE": 0, "FSIZE": max(policy.image_bytes, 64 * 2**20)}
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    command = launched(argv, bounds, cut=can_cut_off())
    try:
        result = subprocess.run(  # noqa: S603  (our own program; the paths are of our own making)
            command, env=environment, capture_output=True, timeout=MINUTES * 60, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"the archive was not unpacked within {MINUTES} minutes; it is refused") from error
    if result.returncode != 0:
        raise SourceError(
            "the archive is refused: the process that unpacked it died: memory ran out, or the archive is damaged"
        )
    answer: dict[str, Any] = json.loads(result.stdout)
    if "error" in answer:
        raise SourceError(f"the archive is refused: {answer['error']}")
    return int(answer["images"])


def is_archive(head: bytes) -> bool:
    """Returns whether the first 512 bytes are those of a zip or tar archive, the latter also gzipped."""
    return head.startswith((b"PK\x03\x04", b"\x1f\x8b")) or head[257:262] == b"ustar"


def main(argv: list[str]) -> None:
    """Unpacks, and prints the number of images, or the error, as JSON."""
    path, folder, policy = argv[0], argv[1], Policy.model_validate_json(argv[2])
    answer: dict[str, Any]
    try:
        with open(path, "rb") as file:
            answer = {"images": write(members(_checked(file), policy), folder, policy)}
    except (C2BError, OSError) as error:
        answer = {"error": str(error)[:1000]}
    json.dump(answer, sys.stdout)


def _checked(file: IO[bytes]) -> IO[bytes]:
    if not is_archive(file.read(512)):
        raise SourceError("it is neither a zip nor a tar archive by its first bytes")
    file.seek(0)
    return file


if __name__ == "__main__":
    main(sys.argv[1:])


# Lets runs go on, and be asked, after the endpoint's storage was moved, as by `c2b restore` into another folder.


_NAMING = ("config", "models")
"""The fields of a manifest that name files."""


def with_present_paths(value: Any, tenant_folder: str) -> Any:
    """Returns a JSON value in which paths below the tenant's folder in an earlier storage lead to the present one.

    A path may be a text of its own, or part of a spec such as `onnx:PATH?mean=0.5`. URLs stay as they are.
    """
    if isinstance(value, str):
        return _earlier(tenant_folder).sub(lambda match: _present(match[0], tenant_folder), value)
    if isinstance(value, dict):
        return {name: with_present_paths(item, tenant_folder) for name, item in value.items()}
    return [with_present_paths(item, tenant_folder) for item in value] if isinstance(value, list) else value


def follow_storage(run_path: str, tenant_folder: str) -> None:
    """Rewrites the manifest of a run of this tenant, if there is one and it names an earlier storage."""
    location = f"{run_path.rstrip('/')}/{MANIFEST}"
    if not files.exists(location):
        return
    try:
        manifest = parse_json(files.read_bytes(location))
    except ValueError:
        return  # whoever reads the run says what is wrong with it
    if not isinstance(manifest, dict) or not {"kind", "config"} <= manifest.keys():
        return
    present = {name: with_present_paths(manifest[name], tenant_folder) for name in _NAMING if name in manifest}
    if any(manifest[name] != value for name, value in present.items()):
        present["run_id"] = content_id(manifest["kind"], present["config"])
        files.write_bytes(location, json.dumps(manifest | present, indent=2, ensure_ascii=False).encode())


def _earlier(tenant_folder: str) -> re.Pattern[str]:
    tenant_id = re.escape(tenant_folder.rstrip("/").rpartition("/")[2])
    return re.compile(rf"(?:^|(?<=[:=,]))(?:s3:/)?/(?!/)[^?#]*?/tenants/{tenant_id}/(?=(?:{DATA}|{UPLOADS}|{RUNS})/)")


def _present(folder: str, tenant_folder: str) -> str:
    """Returns the tenant's present folder in place of `folder`, unless both are one, under two names."""
    is_same = os.path.realpath(folder) == os.path.realpath(tenant_folder)
    return folder if is_same else f"{tenant_folder.rstrip('/')}/"
