"""Checks images of strangers, alone or in a zip or tar archive, whose members it writes to disk one by one.

Images are checked by their first bytes and headers; no pixel is decoded. The sizes that an archive states are not
trusted: bytes are counted while unpacking, in a separate process with limits (`python -m
c2b_ray.endpoint.policy.archives`).
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

from PIL import ImageFile, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from c2b_ray.config.endpoint import GIB, Policy
from c2b_ray.endpoint.policy.isolation import can_cut_off, launched
from c2b_ray.errors import C2BError, ImageError, SourceError

_FORMATS: tuple[tuple[str, bytes, type[ImageFile.ImageFile]], ...] = (
    ("JPEG", b"\xff\xd8\xff", JpegImagePlugin.JpegImageFile),
    ("PNG", b"\x89PNG\r\n\x1a\n", PngImagePlugin.PngImageFile),
    ("WebP", b"RIFF", WebPImagePlugin.WebPImageFile),
)


@dataclass(frozen=True)
class Picture:
    """The facts in an image's header."""

    format: str
    width: int
    height: int
    frames: int


def format_of(head: bytes) -> str:
    """Returns JPEG, PNG or WebP by the first twelve bytes. Raises ImageError for anything else."""
    for name, magic, _ in _FORMATS:
        if head.startswith(magic) and (name != "WebP" or head[8:12] == b"WEBP"):
            return name
    raise ImageError("not a JPEG, PNG or WebP image by its first bytes")


def check_picture(data: bytes, policy: Policy) -> Picture:
    """Returns the facts in an image's header. Raises ImageError if it is no image, too large, or has too many pixels or
    frames."""
    if len(data) > policy.image_bytes:
        raise ImageError(f"too large: more than {policy.image_bytes} bytes")
    name = format_of(data[:12])
    reader = next(reader for format_name, _, reader in _FORMATS if format_name == name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with reader(BytesIO(data), "") as image:
                picture = Picture(name, *image.size, frames=getattr(image, "n_frames", 1))
    except Exception as error:  # Pillow's readers raise many kinds of errors for malformed files
        raise ImageError(f"damaged: {str(error)[:200] or type(error).__name__}") from error
    if picture.width * picture.height > policy.image_pixels:
        pixels = f"{picture.width} × {picture.height} pixels"
        raise ImageError(f"too large: {pixels}, at most {policy.image_pixels} are decoded")
    if picture.frames > policy.image_frames:
        raise ImageError(f"{picture.frames} frames; at most {policy.image_frames}")
    return picture


def check_picture_file(path: str, policy: Policy) -> Picture:
    """Does `check_picture` for a file, and reads no more of it than an image may have."""
    with open(path, "rb") as file:
        return check_picture(file.read(policy.image_bytes + 1), policy)


# Reads the members of a zip or tar archive of images one by one, checks them, and writes them to disk.


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


def write_images(archived: Iterator[ArchiveFile], folder: str, policy: Policy) -> int:
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
            try:
                check_picture(data, policy)
            except ImageError as error:
                raise SourceError(f"{name!r}: {error}") from error
            images += 1
        path = os.path.join(folder, *steps)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(data)
    if not images:
        raise SourceError("it holds no images")
    return images


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
            if not is_archive(file.read(512)):
                raise SourceError("it is neither a zip nor a tar archive by its first bytes")
            file.seek(0)
            answer = {"images": write_images(members(file, policy), folder, policy)}
    except (C2BError, OSError) as error:
        answer = {"error": str(error)[:1000]}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
