"""Reads a folder of images, one folder a class, with metadata.csv or metadata.jsonl where images have attributes.

It says what it leaves out: files that are no images, linked folders, rows of the metadata without a file.
"""

from __future__ import annotations

import os
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.filesystems.differing_names import cause_of, same_form
from c2b_ray.filesystems.patience import file_info
from c2b_ray.filesystems.pictures import LeftOut, is_hidden, is_image, reason_of, said
from c2b_ray.store.text_tables import read_metadata

METADATA = ("metadata.csv", "metadata.jsonl")
FILE_NAME, LABEL, FILE = "file_name", "label", "image"
SPLITS = {"train", "test", "validation", "valid", "val", "dev"}


def read(location: str, field: str, filesystem: fs.FileSystem, path: str) -> tuple[pa.Table, int, LeftOut]:
    """Returns a row for each image, the size of the metadata in bytes, and what is left out. Raises SourceError where
    there is no image, ConfigError where the folder holds splits, or two files of metadata."""
    left_out = LeftOut()
    files = _files_below(filesystem, path, left_out)
    names = sorted(name for name in files if is_image(name))
    metadata = [name for name in METADATA if name in files]
    left_out.add_files(files, {*names, *metadata})
    if not names:
        expected = "a table, Parquet files, a dataset that `save_to_disk` wrote, or folders of images, one a class"
        there = f" (left out: {said(left_out.counts)})" if left_out.counts else ""
        raise SourceError(f"{location}: no labelled images there{there}; expected {expected}")
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


def _files_below(filesystem: fs.FileSystem, path: str, left_out: LeftOut) -> set[str]:
    """Returns the paths of regular files relative to the folder, but for hidden ones. It does not follow links to
    folders, which may lead upwards."""
    if not isinstance(filesystem, fs.LocalFileSystem):
        infos = file_info(filesystem, fs.FileSelector(path, recursive=True))
        listed = {info.path[len(path) + 1 :] for info in infos if info.type == fs.FileType.File}
    else:
        listed = set()
        for folder, folders, names in os.walk(path):
            listed |= {os.path.relpath(os.path.join(folder, name), path) for name in names}
            for name in sorted(folders):
                whole = os.path.join(folder, name)
                if os.path.islink(whole) and not is_hidden(name):
                    reason = "linked folder, which is not followed (name the folder that it leads to, or copy it)"
                    left_out.add(reason, os.path.relpath(whole, path))
    files = set()
    for name in sorted(listed):
        if is_hidden(name):
            left_out.add(reason_of(name), name)
        elif isinstance(filesystem, fs.LocalFileSystem) and not os.path.isfile(os.path.join(path, name)):
            left_out.add("no regular file (a link that leads nowhere, a pipe or a device)", name)
        else:
            files.add(name)
    return files


def _joined(location: str, name: str, images: pa.Table, metadata: pa.Table, left_out: LeftOut) -> pa.Table:
    """Adds the metadata to each image. The folder's name is the class unless the metadata has one."""
    where = f"{location}/{name}"
    if FILE_NAME not in metadata.column_names:
        raise SourceError(f"{where}: no column {FILE_NAME!r}; it has {', '.join(metadata.column_names)}")
    files = images[FILE].to_pylist()
    named = _named_as_files(where, metadata[FILE_NAME].to_pylist(), files, left_out)
    at = pc.index_in(images[FILE], pa.array(named, pa.string()))
    if at.null_count == len(at):
        cause = cause_of([one for one in named if one], files)
        raise SourceError(
            f"{where}: none of its files is there; {FILE_NAME} is relative to the folder{f'; {cause}' if cause else ''}"
        )
    there = set(files)
    for one in named:
        if one is not None and one not in there:
            left_out.add(f"row of {name} whose file is not among the images", one)
    without = [file for file, row in zip(files, at.to_pylist(), strict=True) if row is None]
    left_out.add(f"image without a row in {name} (it has no attributes)", next(iter(without), ""), len(without))
    columns = {FILE: images[FILE], LABEL: images[LABEL]}
    for column in metadata.column_names:
        if column != FILE_NAME:
            value = metadata[column].take(at)
            columns[column] = pc.coalesce(value, images[LABEL]) if column == LABEL else value
    return pa.table(columns)


def _named_as_files(where: str, named: list[str | None], files: list[str], left_out: LeftOut) -> list[str | None]:
    """Returns the names of the metadata as the files are called, where they differ in Unicode's form or separators
    alone. Raises SourceError for a file that is there twice."""
    known, forms = set(files), Counter(map(same_form, files))
    of_form = {same_form(file): file for file in files if forms[same_form(file)] == 1}
    result = [name if name is None or name in known else of_form.get(same_form(name), name) for name in named]
    if other := [name for name, meant in zip(named, result, strict=True) if meant != name]:
        left_out.notes.append(
            f"{where}: {len(other):,} names are written in another form than their files' (Unicode or separators), "
            f"such as {other[0]!r}; they are joined"
        )
    counts = Counter(name for name in result if name is not None)
    if again := next((name for name, count in counts.items() if count > 1), None):
        raise SourceError(f"{where}: {again!r} is there twice; an image has one row")
    return result
