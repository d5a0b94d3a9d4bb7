"""Reads what img2dataset wrote as labelled rows: a Parquet table for each shard, with the images in a tar file, or in a
folder, of the same name. Rows of which there is no image are counted.

It knows that layout; where the tables hold the images themselves, they are read like any other table.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from c2b_ray.errors import SourceError
from c2b_ray.filesystems.confined import MAX_BYTES
from c2b_ray.filesystems.patience import file_info, open_input
from c2b_ray.filesystems.pictures import LeftOut, is_image
from c2b_ray.store.text_tables import reading

COLUMNS = {"key", "status", "url"}
IMAGE = "image"
_TABLE = re.compile(r"\d+\.parquet$")
Place = dict[str, Any]


@dataclass
class Found:
    """`table`: with a column `image`, and a row for each image. `size`: bytes of the tables and shards. `image`: the
    bytes of a value of that column; None where it is a path."""

    table: pa.Table
    size: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    image: Callable[[Any], Any] | None = None


def read(location: str, filesystem: fs.FileSystem, path: str, tables: Sequence[str]) -> Found | None:
    """Returns the rows; None where the tables are not img2dataset's, or hold the images themselves."""
    stems = [name.removesuffix(".parquet") for name in tables]
    shards = file_info(filesystem, [f"{path}/{stem}.tar" for stem in stems])
    folders = file_info(filesystem, [f"{path}/{stem}" for stem in stems])
    in_shards = any(info.type == fs.FileType.File for info in shards)
    in_folders = any(info.type == fs.FileType.Directory for info in folders)
    if not all(map(_TABLE.match, tables)) or not (in_shards or in_folders):
        return None
    found, parts = Found(pa.table({})), []
    for stem in stems:
        with (
            reading(f"{location}/{stem}.parquet", "a Parquet file"),
            open_input(filesystem, f"{path}/{stem}.parquet") as stream,
        ):
            table = pq.read_table(stream)
        if not set(table.column_names) >= COLUMNS or IMAGE in table.column_names:
            return None
        places = _in_shard(location, filesystem, path, stem) if in_shards else _in_folder(filesystem, path, stem)
        parts.append(_with_images(table, places, stem, in_shards, found.left_out))
        found.size += int(file_info(filesystem, f"{path}/{stem}.parquet").size)
    found.table = pa.concat_tables(parts, promote_options="permissive")
    if not found.table.num_rows:
        raise SourceError(f"{location}: none of the rows that img2dataset wrote has an image")
    found.image = partial(_bytes, filesystem, path) if in_shards else None
    return found


def _with_images(table: pa.Table, places: dict[str, Any], stem: str, in_shards: bool, left_out: LeftOut) -> pa.Table:
    images: list[Any] = [places.get(str(key)) for key in table["key"].to_pylist()]
    for status, key, image in zip(table["status"].to_pylist(), table["key"].to_pylist(), images, strict=True):
        if image is None:
            why = f"status {status}" if status != "success" else f"it is not in {stem}{'.tar' if in_shards else ''}"
            left_out.add(f"row of img2dataset without an image ({why})", str(key))
    place = pa.struct([("shard", pa.string()), ("offset", pa.int64()), ("bytes_", pa.int64())])
    column = pa.array(images, place if in_shards else pa.string())
    return table.append_column(IMAGE, column).filter(column.is_valid())


def _in_folder(filesystem: fs.FileSystem, path: str, stem: str) -> dict[str, str]:
    infos = file_info(filesystem, fs.FileSelector(f"{path}/{stem}", allow_not_found=True))
    names = sorted(info.base_name for info in infos if is_image(info.base_name))
    return {name.rpartition(".")[0]: f"{stem}/{name}" for name in names}


def _in_shard(location: str, filesystem: fs.FileSystem, path: str, stem: str) -> dict[str, Place]:
    places: dict[str, Place] = {}
    shard = f"{stem}.tar"
    try:
        with open_input(filesystem, f"{path}/{shard}") as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # tarfile keeps every header it has met
                if member.isfile() and is_image(member.name):
                    key = member.name.rpartition(".")[0].removeprefix("./")
                    places[key] = {"shard": shard, "offset": member.offset_data, "bytes_": member.size}
    except FileNotFoundError:
        return places
    except (OSError, tarfile.TarError, ValueError) as error:
        raise SourceError(f"{location}/{shard}: a damaged shard ({error}); download it again") from error
    return places


def _bytes(filesystem: fs.FileSystem, path: str, place: Place) -> bytes:
    with open_input(filesystem, f"{path}/{place['shard']}") as stream:
        stream.seek(place["offset"])
        return bytes(stream.read(min(place["bytes_"], MAX_BYTES + 1)))
