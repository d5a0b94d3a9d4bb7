"""The images of a run for other tools: rows of `tables.exported`, and the findings that tags stand for.

It knows no kind of run and no format. An image whose file lies on this machine or in a store stays there, and is named
by its place; one that only the run holds, such as a generated one, is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from c2b_ray.report.export import csv_of, exported
from c2b_ray.report.formats.folder import Folder, extension, file_name
from c2b_ray.storage import is_remote

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
    `tables.exported.EXPORTED_IMAGES`. There an image has a location or, where they are wanted, bytes; one with neither
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
