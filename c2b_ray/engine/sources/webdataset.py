"""Reads WebDataset shards as rows: tar files whose members share a name up to the first dot, one sample after the
other.

It does not decode anything, and knows no other kind of source. Ray's own `read_webdataset` is not used: a truncated
shard ends its whole run, and where a header is damaged, or a tar ends early, it drops the rest silently.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from typing import IO, Any

import pyarrow as pa

from c2b_ray.engine.sources.files import Location, tables, unread
from c2b_ray.engine.stage import Rows
from c2b_ray.steps.decode import MAX_BYTES

METADATA = ("json", "txt", "cls")
COLUMNS = [pa.field(name, pa.string()) for name in METADATA]
Sample = dict[str, Any]


def read(location: Location, shards: list[str], images: tuple[str, ...], limit: int | None) -> Rows:
    """Returns the rows of the shards. Keys are `<shard>/<sample>`; members in `METADATA` are columns. A damaged shard
    ends with a row that says so."""
    # A limit counts over the shards in their order, so they are read one after the other.
    blocks = [shards] if limit is not None else [[shard] for shard in shards]
    tables_of_names = [pa.table({"shard": block}) for block in blocks]
    return Rows(tables_of_names, partial(_rows, location=location, images=images, limit=limit))


def members(location: Location, shard: str, images: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Returns for each sample of an uncompressed shard its name, and the offset and size of its image.

    Only headers are read. A damaged shard gives the samples before the damage except the last one: its image may be
    among what is lost.
    """
    members_by_name: dict[str, tuple[tuple[int, str], int, int]] = {}
    name = ""
    try:
        with location.open(shard) as stream, _Archive.open(fileobj=stream, mode="r:", ignore_zeros=True) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # tarfile keeps every header it has met
                name, extension = _split(member.name)
                if member.isfile() and name and f".{extension}".endswith(images):
                    candidate = (_rank(extension), member.offset_data, member.size)
                    members_by_name[name] = min(members_by_name.get(name, candidate), candidate)
    except Exception:  # tarfile answers damage with whatever exception the damage causes
        members_by_name.pop(name, None)
    return [(name, offset, size) for name, (_, offset, size) in members_by_name.items()]


def _rows(shards: pa.Table, location: Location, images: tuple[str, ...], limit: int | None) -> Iterator[pa.Table]:
    samples = (row for shard in shards["shard"].to_pylist() for row in _shard(location, shard, images))
    yield from tables(islice(samples, limit), COLUMNS)


def _shard(location: Location, shard: str, images: tuple[str, ...]) -> Iterator[Sample]:
    used_keys: set[str] = set()
    try:
        with location.open(shard) as stream:
            for name, sample in _samples(stream, images):
                key = next(k for k in _candidates(f"{shard}/{name}") if k not in used_keys)
                used_keys.add(key)
                yield _row(key, sample, images)
                yield from _others(key, sample, images)
    except Exception as error:  # tarfile answers damage with whatever exception the damage causes
        reason = f"{len(used_keys)} samples were read, what follows is lost: {unread(error, location.source)}"
        yield {"key": shard, "error": f"a damaged shard: {reason}"}


def _candidates(key: str) -> Iterator[str]:
    yield key
    yield from (f"{key}#{n}" for n in count(2))


def _samples(stream: IO[bytes], images: tuple[str, ...]) -> Iterator[tuple[str, Sample]]:
    """Yields name and members of each sample. The last sample before damage is left out: more members may have
    followed."""
    current, members = None, {}
    with _Archive.open(fileobj=stream, mode="r|*", ignore_zeros=True) as archive:
        while (member := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]  # tarfile keeps every header it has met
            name, extension = _split(member.name)
            if not member.isfile() or not name:
                continue
            # A member that the sample already has begins another of the same name.
            if current is not None and (name != current or extension in members):
                yield current, members
                members = {}
            current = name
            members[extension] = _content(archive, member, images)
        if current is not None:
            yield current, members


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, images: tuple[str, ...]) -> bytes | int | None:
    """Returns the member's bytes; its size where it is too large; None for members that are not needed."""
    extension = _split(member.name)[1]
    if extension not in METADATA and not f".{extension}".endswith(images):
        return None
    if member.size > MAX_BYTES:
        return member.size
    file = archive.extractfile(member)
    return file.read() if file is not None else None


def _row(key: str, members: Sample, images: tuple[str, ...]) -> Sample:
    row: Sample = {"key": key, "error": None}
    for name in METADATA:
        if isinstance(members.get(name), bytes):
            row[name] = members[name].decode("utf-8", "replace")
    extensions = sorted((e for e in members if f".{e}".endswith(images)), key=_rank)
    if not extensions:
        row["error"] = f"the sample holds no image, only {', '.join(sorted(members)) or 'nothing'}"
    elif isinstance(size := members[extensions[0]], int):
        row["error"] = f"too large: {size} bytes, at most {MAX_BYTES} are read"
    else:
        row["bytes"] = members[extensions[0]]
    return row


def _others(key: str, members: Sample, images: tuple[str, ...]) -> Iterator[Sample]:
    """Yields a row with an error for each picture that might as well have been the image of its sample."""
    first, *other_extensions = sorted((e for e in members if f".{e}".endswith(images)), key=_rank) or [""]
    for extension in other_extensions:
        if extension.count(".") == first.count("."):
            reason = f"a second picture of the sample, whose picture is .{first}: a sample's name ends at its first dot"
            yield {"key": f"{key}.{extension}", "error": f"{reason}; give each picture a name of its own"}


def _rank(extension: str) -> tuple[int, str]:
    """Ranks `0001.jpg`, the image of its sample, before `0001.mask.png`, which is something about it."""
    return extension.count("."), extension


def _split(path: str) -> tuple[str, str]:
    """Splits `a/b.seg.png` into the name of the sample, `a/b`, and the member's extension, `seg.png`."""
    folder, slash, base = path.removeprefix("./").rpartition("/")
    stem, _, extension = base.partition(".")
    return (folder + slash + stem, extension.lower()) if stem else ("", "")


class _Member(tarfile.TarInfo):
    """A header that must be whole. tarfile itself takes a damaged or missing one for the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: _Archive) -> _Member:  # type: ignore[override]
        try:
            member = super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            archive.ended = True  # here, unless another archive is appended
            raise
        except tarfile.EmptyHeaderError as error:  # type: ignore[attr-defined]
            if archive.ended:
                raise
            raise tarfile.ReadError("it ends without an end mark") from error
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} at byte {archive.offset}") from error
        archive.ended = False
        return member


class _Archive(tarfile.TarFile):
    tarinfo = _Member
    ended = False
