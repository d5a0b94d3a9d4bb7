"""The folder that an export writes, whole or not at all, and the images of a run that it holds."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import fs

from c2b_ray.errors import InputError, RunError
from c2b_ray.report.export import csv_of, exported
from c2b_ray.steps.decode import media_picture
from c2b_ray.storage import files, is_remote, resolve, writers
from c2b_ray.storage.labelled import LabelledTable, table_opener
from c2b_ray.storage.s3 import open_input, patiently
from c2b_ray.storage.writers import only_writer
from c2b_ray.tables import content_id

WORK = ".c2b-export"
"""The folder, inside an unfinished export, of temporary files: its stage's rows, parts of its metadata."""
MARK, IDENTITY = ".c2b-export.json", "identity.json"
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
                partial = b""
                while block := stream.read(2**20):
                    *complete, partial = (partial + block).split(b"\n")
                    yield from complete
                if partial:
                    yield partial


def extension(image: bytes) -> str:
    """Returns the extension of an encoded image, by its content; `img` for an unknown format."""
    if image[:4] == b"RIFF" and image[8:12] == b"WEBP":
        return "webp"
    return media_picture(image) or next((name for magic, name in _MAGIC if image.startswith(magic)), "img")


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
    count_of_folded = Counter(_folded(file_name(label)) for label in labels)
    return {
        label: file_name(label)
        if count_of_folded[_folded(file_name(label))] == 1
        else f"{_safe(label)}-{content_id(label)[:8]}"
        for label in labels
    }


def _safe(name: str) -> str:
    safe = "".join(c if c.isalnum() or c in " _-.,()'+&" else "_" for c in name)
    safe = safe.strip(" ._") or "label"
    while len(safe.encode()) > _LONGEST:
        safe = safe[:-1]
    safe = safe.strip(" ._")
    return f"label-{safe}" if _RESERVED.match(safe) else safe


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


@contextmanager
def destination(out: str, identity: dict[str, Any]) -> Iterator[Folder]:
    """Yields the folder in which an export is written; it becomes `out` once the body has ended well.

    Files of a killed export with the same identity are kept. Raises RunError where `out` holds anything else, or where
    another process exports there.
    """
    out = str(out).rstrip("/")
    remote = is_remote(out)
    folder = Folder(out if remote else f"{out}.unfinished")
    if not remote and files.entries(out):
        raise RunError(f"{out}: holds files already; name an empty directory or a new one", run=out)
    identity_line = json_line(identity)
    _check(folder, out, identity_line)
    work = f"{folder.location}/{WORK}"
    files.make_directory(work)
    with writers.held(work) if remote else only_writer(resolve(work)[1], out, "exporting to it"):
        _check(folder, out, identity_line)
        files.write_bytes(f"{work}/{IDENTITY}", identity_line)
        yield folder
        folder.put(MARK, identity_line)
    files.remove_directory(work)
    if not remote:
        _, path = resolve(out)
        with files.refusals(out):
            os.replace(resolve(folder.location)[1], path)


def _check(folder: Folder, out: str, identity_line: bytes) -> None:
    """Raises RunError where the folder holds anything but an unfinished export with that mark."""
    existing = files.entries(folder.location)
    if not existing or (
        existing == [WORK] and all(name[0] == "." for name in files.entries(f"{folder.location}/{WORK}"))
    ):
        return
    identity = f"{folder.location}/{WORK}/{IDENTITY}"
    if not files.exists(identity):
        identity = f"{folder.location}/{MARK}"  # killed between its last file and its new name
        if is_remote(folder.location) or not files.exists(identity):
            raise RunError(f"{folder.location}: holds files already; name an empty directory or a new one", run=out)
    if files.read_bytes(identity) != identity_line:
        raise RunError(
            f"{folder.location}: holds an unfinished export of another dataset, format or classifier; remove it, or "
            "name another directory",
            run=out,
        )


# The images of a run for other tools: rows of `tables.path`, and the findings that tags stand for.


Row = Mapping[str, Any]
COPIES = "images"
"""The folder, inside an export, of images that lie nowhere as files."""


@dataclass(frozen=True)
class Finding:
    """What a run found of images. `tag`: on each image that is part of it. `sentence`: what was found. `classifier`:
    whose failures it is about, by the name in the predictions; "" where it is about no failures."""

    tag: str
    sentence: str
    classifier: str = ""


@dataclass(frozen=True)
class RunImages:
    """`tables`: called anew for each pass, with whether bytes are wanted; yields parts of a table of
    `tables.path.EXPORTED_IMAGES`. There an image has a location or, where they are wanted, bytes; one with neither
    is gone. `read`: the bytes of images that have a location, by image id. `title`: of the run, for people. `about`:
    its id, settings and models, without paths. `root`: the folder above all locations; "" where there are none.
    """

    tables: Callable[[bool], Iterable[pa.Table]]
    findings: Sequence[Finding]
    title: str
    about: Mapping[str, Any]
    read: Callable[[Sequence[str]], Mapping[str, bytes]] = field(default=lambda ids: {})
    root: str = ""

    def rows(self, with_bytes: bool = False) -> Iterator[Row]:
        """Yields the images that are there. `with_bytes`: also those of images that have a location."""
        for table in self.tables(True):
            rows = table.to_pylist()
            located_ids = [row["image_id"] for row in rows if row["location"] is not None]
            bytes_of_id = self.read(located_ids) if with_bytes and located_ids else {}
            for row in rows:
                row["bytes"] = row["bytes"] or bytes_of_id.get(row["image_id"])
                if row["bytes"] is not None or (row["location"] is not None and not with_bytes):
                    yield row


@dataclass
class Counted:
    """What an export has written so far."""

    images: int = 0
    copied: int = 0


def placed(row: Row, folder: Folder, counts: Counted) -> tuple[str, bool]:
    """Returns the path of an image, and whether it is one inside the export, whose bytes are copied there."""
    counts.images += 1
    if row["location"] is not None:
        return row["location"], False
    name = f"{COPIES}/{file_name(row['image_id'])}.{extension(row['bytes'])}"
    folder.put(name, row["bytes"])
    counts.copied += 1
    return name, True


def below(path: str, root: str) -> str:
    """Returns a path relative to the folder `root`; a URI, and a path that lies elsewhere, as it is."""
    start = f"{root.rstrip('/')}/"
    return path.removeprefix(start) if root and not is_remote(path) else path


COLUMNS = ("image_id", "key", "truth", "text", "classifier", "label", "confidence", "failed", "cells", "tags")


def images_csv(images: RunImages) -> bytes:
    """Returns CSV with a row per image and prediction, and one for an image without a prediction: COLUMNS."""
    rows = []
    no_answer = {"classifier": None, "label": None, "confidence": None, "failed": None}
    for table in images.tables(False):
        for row in table.drop_columns(["bytes", "location"]).to_pylist():
            row_facts = {name: row[name] for name in ("image_id", "key", "truth", "text", "cells", "tags")}
            rows += [row_facts | answer for answer in row["predictions"] or [no_answer]]
    text, texts = pa.string(), pa.list_(pa.string())
    kinds = {"confidence": pa.float32(), "failed": pa.bool_(), "cells": texts, "tags": texts}
    return csv_of(exported(pa.Table.from_pylist(rows, pa.schema([(name, kinds.get(name, text)) for name in COLUMNS]))))


# Where the images of a run lie as files, if they do: below the folder of its labelled table.


CHUNK = 256
"""Images whose bytes are in memory at once."""


@dataclass
class Place:
    """The source of a run's images. `opened`: None where they lie in no files of their own, or these are gone."""

    opened: LabelledTable | None

    def locations(self, rows: Sequence[int]) -> list[str | None]:
        """Returns the path or URI of the image of each row of the source; None where there is none."""
        return [None] * len(rows) if self.opened is None else self.opened.locations(rows)

    @property
    def root(self) -> str:
        """The folder above the files; "" where there is none, or they lie in a store."""
        if self.opened is None or is_remote(folder := self.opened.root or self.opened.location):
            return ""
        path = os.path.realpath(folder)
        return path if os.path.isdir(path) else os.path.dirname(path)


def place_of(images: Any) -> Place:
    """Returns the place of the images of a config's section `images`, given as its fields."""
    if not isinstance(images, Mapping) or images.get("table") is None:
        return Place(None)
    return Place(_or_none(table_opener(images)))


def _or_none(load: Callable[[], LabelledTable]) -> LabelledTable | None:
    try:
        return load()
    except (InputError, OSError):  # moved, or of another form, since the run read it
        return None
