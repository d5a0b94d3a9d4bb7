"""Reads a folder of images, one folder a class, with metadata.csv or metadata.jsonl where images have attributes.

It says what it leaves out: files that are no images, linked folders, rows of the metadata without a file.
"""

from __future__ import annotations

import os
import posixpath
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.storage.confined import MAX_BYTES, cause_of, same_form
from c2b_ray.storage.folders import OmittedRows, is_hidden, is_image, reason_of, said
from c2b_ray.storage.manifest import parse_json
from c2b_ray.storage.s3 import file_info, open_input
from c2b_ray.storage.tables import read_metadata, reading

METADATA = ("metadata.csv", "metadata.jsonl")
FILE_NAME, LABEL, FILE = "file_name", "label", "image"
SPLITS = {"train", "test", "validation", "valid", "val", "dev"}


def read_image_folder(
    location: str, field: str, filesystem: fs.FileSystem, path: str
) -> tuple[pa.Table, int, OmittedRows]:
    """Returns a row for each image, the size of the metadata in bytes, and what is left out. Raises SourceError where
    there is no image, ConfigError where the folder holds splits, or two files of metadata."""
    left_out = OmittedRows()
    files = _files_below(filesystem, path, left_out)
    names = sorted(name for name in files if is_image(name))
    metadata = [name for name in METADATA if name in files]
    left_out.add_files(files, {*names, *metadata})
    if not names:
        expected = "a table, Parquet files, a dataset that `save_to_disk` wrote, or folders of images, one a class"
        note = f" (left out: {said(left_out.counts)})" if left_out.counts else ""
        raise SourceError(f"{location}: no labelled images there{note}; expected {expected}")
    labels = [name.split("/")[0] if "/" in name else None for name in names]
    classes = {label for label in labels if label is not None}
    if classes and classes <= SPLITS:
        splits = sorted(classes)
        raise ConfigError(field, f"{location} holds splits ({', '.join(splits)}); name one: {location}/{splits[0]}")
    if len(metadata) > 1:
        raise ConfigError(field, f"{location} holds {' and '.join(metadata)}; keep the one that is meant")
    table = pa.table({FILE: pa.array(names, pa.string()), LABEL: pa.array(labels, pa.string())})
    if not metadata:
        return table, 0, left_out
    size = int(file_info(filesystem, f"{path}/{metadata[0]}").size)
    rows = read_metadata(location, filesystem, f"{path}/{metadata[0]}")
    return _joined(location, metadata[0], table, rows, left_out), size, left_out


def _files_below(filesystem: fs.FileSystem, path: str, left_out: OmittedRows) -> set[str]:
    """Returns the paths of regular files relative to the folder, but for hidden ones. It does not follow links to
    folders, which may lead upwards."""
    if not isinstance(filesystem, fs.LocalFileSystem):
        infos = file_info(filesystem, fs.FileSelector(path, recursive=True))
        names_found = {info.path[len(path) + 1 :] for info in infos if info.type == fs.FileType.File}
    else:
        names_found = set()
        for folder, folders, names in os.walk(path):
            names_found |= {os.path.relpath(os.path.join(folder, name), path) for name in names}
            for name in sorted(folders):
                full_path = os.path.join(folder, name)
                if os.path.islink(full_path) and not is_hidden(name):
                    reason = "linked folder, which is not followed (name the folder that it leads to, or copy it)"
                    left_out.add(reason, os.path.relpath(full_path, path))
    files = set()
    for name in sorted(names_found):
        if is_hidden(name):
            left_out.add(reason_of(name), name)
        elif isinstance(filesystem, fs.LocalFileSystem) and not os.path.isfile(os.path.join(path, name)):
            left_out.add("no regular file (a link that leads nowhere, a pipe or a device)", name)
        else:
            files.add(name)
    return files


def _joined(location: str, name: str, images: pa.Table, metadata: pa.Table, left_out: OmittedRows) -> pa.Table:
    """Adds the metadata to each image. The folder's name is the class unless the metadata has one."""
    path = f"{location}/{name}"
    if FILE_NAME not in metadata.column_names:
        raise SourceError(f"{path}: no column {FILE_NAME!r}; it has {', '.join(metadata.column_names)}")
    files = images[FILE].to_pylist()
    names = _named_as_files(path, metadata[FILE_NAME].to_pylist(), files, left_out)
    indices = pc.index_in(images[FILE], pa.array(names, pa.string()))
    if indices.null_count == len(indices):
        cause = cause_of([image_name for image_name in names if image_name], files)
        raise SourceError(
            f"{path}: none of its files is there; {FILE_NAME} is relative to the folder{f'; {cause}' if cause else ''}"
        )
    existing = set(files)
    for image_name in names:
        if image_name is not None and image_name not in existing:
            left_out.add(f"row of {name} whose file is not among the images", image_name)
    without = [file for file, row in zip(files, indices.to_pylist(), strict=True) if row is None]
    left_out.add(f"image without a row in {name} (it has no attributes)", next(iter(without), ""), len(without))
    columns = {FILE: images[FILE], LABEL: images[LABEL]}
    for column in metadata.column_names:
        if column != FILE_NAME:
            value = metadata[column].take(indices)
            columns[column] = pc.coalesce(value, images[LABEL]) if column == LABEL else value
    return pa.table(columns)


def _named_as_files(source: str, names: list[str | None], files: list[str], left_out: OmittedRows) -> list[str | None]:
    """Returns the names of the metadata as the files are called, where they differ in Unicode's form or separators
    alone. Raises SourceError for a file that is there twice."""
    existing, forms = set(files), Counter(map(same_form, files))
    of_form = {same_form(file): file for file in files if forms[same_form(file)] == 1}
    result = [name if name is None or name in existing else of_form.get(same_form(name), name) for name in names]
    if renamed := [name for name, target in zip(names, result, strict=True) if target != name]:
        left_out.notes.append(
            f"{source}: {len(renamed):,} names are written in another form than their files' (Unicode or separators), "
            f"such as {renamed[0]!r}; they are joined"
        )
    counts = Counter(name for name in result if name is not None)
    if repeated := next((name for name, count in counts.items() if count > 1), None):
        raise SourceError(f"{source}: {repeated!r} is there twice; an image has one row")
    return result


# Reads a dataset that Hugging Face's `save_to_disk` wrote: Arrow files that state.json names, and the selection of
# their rows that older releases keep in a file of indices of its own.


INDICES = ("_indices_data_files", "_indices_files")
"""The entries of state.json that name the files of a selection."""


def read_saved_to_disk(location: str, filesystem: fs.FileSystem, path: str) -> tuple[pa.Table, int]:
    """Returns the rows, of a selection those that it names in its order, and the bytes of the files.

    Raises SourceError where a file is missing or cannot be read, or where the selection names rows that are not there.
    """
    with reading(location, "a dataset that `save_to_disk` wrote"):
        with open_input(filesystem, f"{path}/state.json") as stream:
            state = _state(location, bytes(stream.read()))
        parts = [_part(location, filesystem, f"{path}/{name}") for name in _names(location, state, "_data_files")]
        selected = [name for entry in INDICES for name in (_names(location, state, entry) if state.get(entry) else [])]
        index_tables = [_part(location, filesystem, f"{path}/{name}") for name in selected]
        if not index_tables and file_info(filesystem, f"{path}/indices.arrow").type == fs.FileType.File:
            raise SourceError(
                f"{location}: holds a selection (indices.arrow) that its state.json does not name; save it again"
            )
        if not parts:
            raise SourceError(f"{location}: its state.json names no file of rows; save the dataset again")
        table, size = (
            pa.concat_tables([part for part, _ in parts]),
            sum(bytes_ for _, bytes_ in (*parts, *index_tables)),
        )
        return (
            _selected(location, table, pa.concat_tables([part for part, _ in index_tables])) if index_tables else table
        ), size


def _state(location: str, data: bytes) -> dict[str, Any]:
    try:
        state = parse_json(data)
    except ValueError as error:
        raise SourceError(f"{location}: its state.json is not JSON: {error}") from error
    if not isinstance(state, dict):
        raise SourceError(f"{location}: its state.json is no object; save the dataset again")
    return state


def _names(location: str, state: dict[str, Any], entry: str) -> list[str]:
    try:
        return [posixpath.basename(str(file["filename"])) for file in state[entry]]
    except (KeyError, TypeError) as error:
        raise SourceError(f"{location}: its state.json names no files in {entry!r}; save the dataset again") from error


def _part(location: str, filesystem: fs.FileSystem, path: str) -> tuple[pa.Table, int]:
    info = file_info(filesystem, path)
    if info.type != fs.FileType.File:
        raise SourceError(
            f"{location}: {posixpath.basename(path)} is missing, which its state.json names; copy the folder again"
        )
    local = isinstance(filesystem, fs.LocalFileSystem)
    source = pa.memory_map(path) if local and info.size else open_input(filesystem, path)
    return pa.ipc.open_stream(source).read_all(), int(info.size)


def _selected(location: str, table: pa.Table, selection: pa.Table) -> pa.Table:
    if "indices" not in selection.column_names or not pa.types.is_integer(selection.schema.field("indices").type):
        raise SourceError(f"{location}: its selection has no column 'indices' of row numbers; save the dataset again")
    rows = selection["indices"].combine_chunks()
    if len(rows) and (pc.max(rows).as_py() >= len(table) or pc.min(rows).as_py() < 0 or rows.null_count):
        raise SourceError(
            f"{location}: its selection names row {pc.max(rows).as_py()}, and there are {len(table):,} rows; save the "
            "dataset again"
        )
    return pa.Table.from_batches(table.take(rows).to_batches(), table.schema)


# Reads what img2dataset wrote as labelled rows: a Parquet table for each shard, with the images in a tar file, or
# in a folder, of the same name. Rows of which there is no image are counted.


COLUMNS = {"key", "status", "url"}
IMAGE = "image"
_TABLE = re.compile(r"\d+\.parquet$")
Place = dict[str, Any]


@dataclass
class LabelledFolder:
    """`table`: with a column `image`, and a row for each image. `size`: bytes of the tables and shards. `image`: the
    bytes of a value of that column; None where it is a path."""

    table: pa.Table
    size: int = 0
    left_out: OmittedRows = field(default_factory=OmittedRows)
    image: Callable[[Any], Any] | None = None


def read_img2dataset(
    location: str, filesystem: fs.FileSystem, path: str, tables: Sequence[str]
) -> LabelledFolder | None:
    """Returns the rows; None where the tables are not img2dataset's, or hold the images themselves."""
    stems = [name.removesuffix(".parquet") for name in tables]
    shards = file_info(filesystem, [f"{path}/{stem}.tar" for stem in stems])
    folders = file_info(filesystem, [f"{path}/{stem}" for stem in stems])
    in_shards = any(info.type == fs.FileType.File for info in shards)
    in_folders = any(info.type == fs.FileType.Directory for info in folders)
    if not all(map(_TABLE.match, tables)) or not (in_shards or in_folders):
        return None
    folder, parts = LabelledFolder(pa.table({})), []
    for stem in stems:
        with (
            reading(f"{location}/{stem}.parquet", "a Parquet file"),
            open_input(filesystem, f"{path}/{stem}.parquet") as stream,
        ):
            table = pq.read_table(stream)
        if not set(table.column_names) >= COLUMNS or IMAGE in table.column_names:
            return None
        places = _in_shard(location, filesystem, path, stem) if in_shards else _in_folder(filesystem, path, stem)
        parts.append(_with_images(table, places, stem, in_shards, folder.left_out))
        folder.size += int(file_info(filesystem, f"{path}/{stem}.parquet").size)
    folder.table = pa.concat_tables(parts, promote_options="permissive")
    if not folder.table.num_rows:
        raise SourceError(f"{location}: none of the rows that img2dataset wrote has an image")
    folder.image = partial(_bytes, filesystem, path) if in_shards else None
    return folder


def _with_images(
    table: pa.Table, places: dict[str, Any], stem: str, in_shards: bool, left_out: OmittedRows
) -> pa.Table:
    images: list[Any] = [places.get(str(key)) for key in table["key"].to_pylist()]
    for status, key, image in zip(table["status"].to_pylist(), table["key"].to_pylist(), images, strict=True):
        if image is None:
            reason = f"status {status}" if status != "success" else f"it is not in {stem}{'.tar' if in_shards else ''}"
            left_out.add(f"row of img2dataset without an image ({reason})", str(key))
    location_type = pa.struct([("shard", pa.string()), ("offset", pa.int64()), ("bytes_", pa.int64())])
    column = pa.array(images, location_type if in_shards else pa.string())
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


def _bytes(filesystem: fs.FileSystem, path: str, location: Place) -> bytes:
    with open_input(filesystem, f"{path}/{location['shard']}") as stream:
        stream.seek(location["offset"])
        return bytes(stream.read(min(location["bytes_"], MAX_BYTES + 1)))
