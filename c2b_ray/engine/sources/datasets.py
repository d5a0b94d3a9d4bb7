"""Reads sources of images as rows of a stage: a folder of files, Parquet tables, WebDataset shards.

    key    string  names the image for good: its path within the source, or a name by the kind of source
    bytes  binary  the file as it is; empty for an empty file, null where it could not be read
    error  string  why it could not be read
    ...            the source's other columns (Parquet's columns; json, txt and cls of WebDataset)

It knows which files belong to which kind of source, not what is done with images. Bytes are read where blocks are
expanded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
from pyarrow import fs

from c2b_ray.engine.sources import parquet_tables, webdataset
from c2b_ray.engine.sources import parquet_tables as img2dataset
from c2b_ray.engine.sources.files import Listing, Location, listing, tables
from c2b_ray.engine.stage import Rows
from c2b_ray.errors import SourceError
from c2b_ray.storage import absent_bucket, refusal, resolve
from c2b_ray.storage.folders import IMAGES, OmittedRows, said
from c2b_ray.storage.s3 import file_info

PARQUET = (".parquet", ".pq")
SHARDS = (".tar", ".tar.gz", ".tgz")
EXPECTED = (
    f"expected a folder of images ({', '.join(IMAGES)}), a Parquet file or a folder of them, or a WebDataset .tar or a "
    "folder of them"
)
FILES_AT_ONCE = 32


@dataclass(frozen=True)
class Source:
    """The rows of a source, and what is in it and not among them."""

    rows: Rows
    left_out: OmittedRows = field(default_factory=OmittedRows)


def read(source: str, *, limit: int | None = None) -> Rows:
    """Returns the rows of `source`, a local path or a URI such as `s3://bucket/images`; the first `limit` of them.

    The same source gives the same keys, each once. Raises SourceError where there is no image, or where tables repeat a
    key.
    """
    return opened(source, limit=limit).rows


def opened(source: str, *, limit: int | None = None) -> Source:
    """Like `read`, and also says what is left out."""
    filesystem, path = resolve(source)
    path = path.rstrip("/")
    try:
        kind = file_info(filesystem, path).type
        if kind == fs.FileType.File:
            folder, _, name = path.rpartition("/")
            return _read(Location(source, filesystem, folder), Listing([name]), limit)
        if kind == fs.FileType.Directory:
            location = Location(source, filesystem, path)
            return _read(location, listing(location), limit)
    except OSError as error:
        raise SourceError(refusal(source, error) or f"{source}: cannot be read: {error}") from error
    raise SourceError(absent_bucket(source) or f"{source}: no such file or folder; {EXPECTED}")


def _read(location: Location, files: Listing, limit: int | None) -> Source:
    of_images, of_tables, of_shards = (_ending(files.names, kind) for kind in (IMAGES, PARQUET, SHARDS))
    left_out, used_tables = files.left_out, set[str]()
    if img2dataset.is_img2dataset(location, of_tables, [*of_images, *of_shards]):
        left_out.merge(img2dataset.failed(location, of_tables))
        used_tables, of_tables = set(of_tables), []
    # Tables often lie beside the images that they name, so a table with a column of images goes first.
    if of_tables and (parquet_tables.has_images(location, of_tables) or not (of_images or of_shards)):
        pictures = of_images if parquet_tables.holds_images(location, of_tables) else []
        left_out.add_files(set(files.names) - set(of_images), {*of_tables, *used_tables})
        left_out.add(
            "picture beside the tables, which hold the images themselves", next(iter(pictures), ""), len(pictures)
        )
        return Source(parquet_tables.read(location, of_tables, limit), left_out)
    if of_images and of_shards:
        raise SourceError(
            f"{location.source}: holds {len(of_images)} images and {len(of_shards)} tar files; name the one you mean"
        )
    left_out.add_files(files.names, {*of_images, *of_shards, *used_tables})
    if of_shards:
        return Source(webdataset.read(location, of_shards, IMAGES, limit), left_out)
    if not of_images and not files.refused:
        contents = f"no image ({said(left_out.counts)})" if left_out.counts else "nothing"
        raise SourceError(f"{location.source}: holds {contents}; {EXPECTED}")
    rows = sorted([*((name, None) for name in of_images), *files.refused.items()])[:limit]
    names = pa.table(
        {"key": [name for name, _ in rows], "error": pa.array([reason for _, reason in rows], pa.string())}
    )
    # Few enough blocks that the driver can hold millions of files, small enough that two workers share a thousand.
    size = max(256, len(rows) // 2000)
    return Source(replace(Rows.of(names, size), expand=partial(_fetched, location=location)), left_out)


def _fetched(names: pa.Table, location: Location) -> Iterator[pa.Table]:
    for start in range(0, names.num_rows, FILES_AT_ONCE):
        rows = names.slice(start, FILES_AT_ONCE).to_pylist()
        content = iter(location.fetch_all([row["key"] for row in rows if row["error"] is None]))
        filled = []
        for row in rows:
            data, error = (None, row["error"]) if row["error"] else next(content)
            filled.append({"key": row["key"], "bytes": data, "error": error})
        yield from tables(filled)


def _ending(names: Sequence[str], suffixes: tuple[str, ...]) -> list[str]:
    return [name for name in names if name.lower().endswith(suffixes)]
