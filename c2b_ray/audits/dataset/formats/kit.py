"""Helpers of all export formats: the folder that they write into, names for files, and a row as JSON.

It knows rows of `tables.dataset` and file systems; it knows no format.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import fs

from c2b_ray.steps.decode import media_picture
from c2b_ray.storage import files, resolve
from c2b_ray.storage.s3 import open_input, patiently
from c2b_ray.tables import content_id

WORK = ".c2b-export"
"""The folder, inside an unfinished export, of temporary files: its stage's rows, parts of its metadata."""
_MAGIC = (
    (b"\x89PNG", "png"),
    (b"\xff\xd8\xff", "jpg"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
    (b"II+\0", "tif"),
    (b"MM\0+", "tif"),
    *((b"P%d" % kind, "ppm") for kind in range(1, 7)),
)
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?$", re.IGNORECASE)  # no file may be called so on Windows
_LONGEST = 100  # bytes of a name; file systems allow 255


@dataclass(frozen=True)
class Folder:
    """A directory to write into, local or on an object store."""

    location: str

    def open(self, name: str) -> pa.NativeFile:
        """Opens a new file for writing; directories above it are made."""
        filesystem, path = resolve(f"{self.location}/{name}")
        with files.refusals(self.location):
            if isinstance(filesystem, fs.LocalFileSystem):
                filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            return filesystem.open_output_stream(path)

    def put(self, name: str, data: bytes) -> None:
        def put() -> None:
            with self.open(name) as stream:
                stream.write(data)

        with files.refusals(self.location):
            patiently(self.location, put)

    def lines(self, names: Iterable[str]) -> Iterator[bytes]:
        """Yields the lines of text files, one file after the other."""
        for name in names:
            filesystem, path = resolve(f"{self.location}/{name}")
            with files.reading(self.location), open_input(filesystem, path) as stream:
                rest = b""
                while block := stream.read(2**20):
                    *whole, rest = (rest + block).split(b"\n")
                    yield from whole
                if rest:
                    yield rest


@dataclass(frozen=True)
class About:
    """The exported rows, described for cards and metadata. `labels`: with their numbers of rows, by name."""

    rows: int
    labels: Mapping[str, int]
    config: Mapping[str, Any]
    manifest: Mapping[str, Any]
    classifier: str | None
    bytes: int = 0
    files: Sequence[int] = field(default_factory=tuple)  # the number of each file


class Format(Protocol):
    """A format whose files, or each file's images, can be written separately."""

    def write(self, number: int, tables: Iterable[pa.Table], folder: Folder) -> Written:
        """Writes the rows of one file; written again, it is the same."""
        ...

    def finish(self, folder: Folder, about: About) -> None:
        """Writes the files about the whole export."""
        ...


@dataclass(frozen=True)
class Written:
    rows: int
    bytes: int


def extension(image: bytes) -> str:
    """Returns the extension of an encoded image, by its content; `img` for an unknown format."""
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "webp"
    return media_picture(image) or next((name for magic, name in _MAGIC if image.startswith(magic)), "img")


def record(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row without its image, as JSON values. The fingerprint has 16 hexadecimal digits, because many readers
    take JSON's numbers for floats."""
    return {name: value for name, value in row.items() if name != "image"} | {
        "fingerprint": f"{row['fingerprint']:016x}"
    }


def json_line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False).encode() + b"\n"


def file_name(name: str) -> str:
    """Returns `name` where every file system accepts it; else its safe characters and a hash of the whole."""
    safe = _safe(name)
    return name if safe == name else f"{safe}-{content_id(name)[:8]}"


def folder_names(labels: Iterable[str]) -> dict[str, str]:
    """Returns label → the name of its folder. No two are equal, or differ only in case or in the encoding of
    accents."""
    labels = sorted(labels)
    alike = Counter(_folded(file_name(label)) for label in labels)
    return {
        label: file_name(label) if alike[_folded(file_name(label))] == 1 else f"{_safe(label)}-{content_id(label)[:8]}"
        for label in labels
    }


def _safe(name: str) -> str:
    kept = "".join(c if c.isalnum() or c in " _-.,()'+&" else "_" for c in name)
    kept = kept.strip(" ._") or "label"
    while len(kept.encode()) > _LONGEST:
        kept = kept[:-1]
    kept = kept.strip(" ._")
    return f"label-{kept}" if _RESERVED.match(kept) else kept


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
