"""Reads labels in several formats: rows, unconverted columns, and the image of each row.

    t.csv, t.tsv             text; only an empty field is null
    t.jsonl                  an object a line; also .ndjson, and the .manifest of a labelling job
    t.txt                    an image's path and its class in each line, without a header; also .lst
    t.parquet                and folders of Parquet files, as Hugging Face datasets are published
    DIR with *.arrow         as Hugging Face's `save_to_disk` writes
    DIR/class/*.jpg          an image folder, with metadata.csv or metadata.jsonl if images have attributes

It knows formats, neither the meaning of columns nor which ones are used.
"""

from __future__ import annotations

import os
import posixpath
import re
import tarfile
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from pyarrow import fs

from c2b_ray.errors import ConfigError, SourceError
from c2b_ray.storage import resolve
from c2b_ray.storage.confined import MAX_BYTES, cause_of, same_form
from c2b_ray.storage.folders import OmittedRows, counts_in_words, is_hidden, is_image, masks_among, reason_of
from c2b_ray.storage.manifest import parse_json
from c2b_ray.storage.s3 import file_info, open_input
from c2b_ray.storage.tables import read_csv, read_image_list, read_json_lines, read_metadata, reading

# Reads a folder of images, one folder a class, with metadata.csv or metadata.jsonl where images have attributes.


METADATA = ("metadata.csv", "metadata.jsonl")
FILE_NAME, LABEL, FILE = "file_name", "label", "image"
FOLDER_COLUMN = re.compile(r"folder \d+")
"""The name of a column of folders: `folder 1` is the outermost."""
_MASKS = "mask of a picture beside it, by its name (a picture of its own needs another name)"
SPLITS = {"train", "test", "validation", "valid", "val", "dev"}


def read_image_folder(
    location: str, field: str, filesystem: fs.FileSystem, path: str
) -> tuple[pa.Table, int, OmittedRows]:
    """Returns a row for each image, the size of the metadata in bytes, and what is left out.

    Where all images lie two folders deep or deeper, and equally deep, each level is a column too: the classes may be
    the inner ones, as in `sketch/aircraft/1.jpg`. Raises SourceError where there is no image, ConfigError where the
    folder holds splits, or two files of metadata.
    """
    left_out = OmittedRows()
    files = _files_below(filesystem, path, left_out)
    names = sorted(name for name in files if is_image(name))
    metadata = [name for name in METADATA if name in files]
    left_out.add_files(files, {*names, *metadata})
    if not names:
        expected = "a table, Parquet files, a dataset that `save_to_disk` wrote, or folders of images, one a class"
        note = f" (left out: {counts_in_words(left_out.counts)})" if left_out.counts else ""
        raise SourceError(f"{location}: no labelled images there{note}; expected {expected}")
    if len(metadata) > 1:
        raise ConfigError(field, f"{location} holds {' and '.join(metadata)}; keep the one that is meant")
    rows = read_metadata(location, filesystem, f"{path}/{metadata[0]}") if metadata else None
    stated = rows[FILE_NAME].to_pylist() if rows is not None and FILE_NAME in rows.column_names else []
    masks = {*masks_among(names)} - {*stated}
    left_out.add(_MASKS, min(masks, default=""), len(masks))
    names = [name for name in names if name not in masks]
    labels = [name.split("/")[0] if "/" in name else None for name in names]
    classes = {label for label in labels if label is not None}
    if classes and classes <= SPLITS:
        splits = sorted(classes)
        tables = sorted(name for name in files if "/" not in name and name.lower().endswith((".csv", ".tsv")))
        or_table = f"; or a table of their images: {location}/{tables[0]}" if tables else ""
        raise ConfigError(
            field, f"{location} holds splits ({', '.join(splits)}); name one: {location}/{splits[0]}{or_table}"
        )
    table = pa.table({FILE: pa.array(names, pa.string()), LABEL: pa.array(labels, pa.string())})
    if rows is None:
        return _with_folders(table, names), 0, left_out
    size = int(file_info(filesystem, f"{path}/{metadata[0]}").size)
    return _joined(location, metadata[0], table, rows, left_out), size, left_out


def _with_folders(images: pa.Table, names: Sequence[str]) -> pa.Table:
    depths = {name.count("/") for name in names}
    (depth,) = depths if len(depths) == 1 else (1,)
    for level in range(depth if depth > 1 else 0):
        folders = pa.array([name.split("/")[level] for name in names], pa.string())
        images = images.append_column(f"folder {level + 1}", folders)
    return images


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


class FilesByName:
    """The pictures below a folder, for names that lack their ending or have another one, or lack folders on the way: a
    table may name `ISIC_0024306` where `part_1/ISIC_0024306.jpg` is meant, or a path of the machine that it was written
    on. A name that is a whole number may lack the zeros before it, which columns of numbers do not keep."""

    def __init__(self, filesystem: fs.FileSystem, folder: str) -> None:
        files = _files_below(filesystem, folder.rstrip("/"), OmittedRows())
        self._stems = {path: posixpath.splitext(path)[0] for path in sorted(files) if is_image(path)}
        self._deepest = max((stem.count("/") + 1 for stem in self._stems.values()), default=0)
        self._of_last: dict[int, dict[str, list[str]]] = {}
        self._of_stem, self._of_number = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        for path, stem in self._stems.items():
            self._of_stem[stem].append(path)
            if _is_whole(base := posixpath.basename(stem)):
                self._of_number[_without_zeros(base)].append(path)

    def _ending_in(self, stem: str, parts: int) -> list[str]:
        """Returns the paths whose last `parts` names are `stem`. By a table for each number of names that is asked for:
        a data set may call each of its images view1.jpg."""
        if parts not in self._of_last:
            of_last: dict[str, list[str]] = {}
            for path, whole in self._stems.items():
                if whole.count("/") + 1 >= parts:
                    of_last.setdefault("/".join(whole.split("/")[-parts:]), []).append(path)
            self._of_last[parts] = of_last
        return self._of_last[parts].get(stem, [])

    def paths_of(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the path of each name that one picture has and that is the only name of this picture: paths of
        another machine may differ in folders that this one lacks."""
        paths = {name: path for name in dict.fromkeys(names) if (path := self.path_of(name)) is not None}
        names_of = Counter(paths.values())
        return {name: path for name, path in paths.items() if names_of[path] == 1}

    def path_of(self, name: str) -> str | None:
        """Returns the path of the one picture that is called so, whatever its ending; None where none is, or several
        are."""
        name = same_form(name)
        if _is_whole(name):  # 1.jpg and 001.jpg are both the number 1
            numbered = self._of_number.get(_without_zeros(name), [])
            return numbered[0] if len(numbered) == 1 else None
        stem = posixpath.splitext(name)[0] if is_image(name) else name
        parts = stem.split("/")
        called_so = self._ending_in(stem, len(parts)) if len(parts) <= self._deepest else []
        for first in range(max(1, len(parts) - self._deepest), len(parts)):
            called_so = [*called_so, *self._of_stem.get("/".join(parts[first:]), ())]
        exactly = [path for path in called_so if path == name or path.endswith(f"/{name}")]
        return (exactly or called_so)[0] if len(exactly or called_so) == 1 else None


def _is_whole(name: str) -> bool:
    return name.isascii() and name.isdecimal()


def _without_zeros(name: str) -> str:
    """Returns a whole number without the zeros before it, and any other name as it is."""
    return (name.lstrip("0") or "0") if _is_whole(name) else name


def _joined(location: str, name: str, images: pa.Table, metadata: pa.Table, left_out: OmittedRows) -> pa.Table:
    """Adds the metadata to each image. The folder's name is the class unless the metadata has one."""
    path = f"{location}/{name}"
    if FILE_NAME not in metadata.column_names:
        raise SourceError(
            f"{path}: no column {FILE_NAME!r}; it has {', '.join(metadata.column_names)}. Rename the column of images, "
            "or name the table instead of its folder"
        )
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


ROWS_AT_ONCE = 16_384
PACKED = b"c2b_ray.packed"
"""The metadata of a Parquet table into which images were packed that lay beside another table (`client.local_files`):
the bytes of that table, which the revision includes, so that both are one table of one revision."""
_SPLIT_FILE = re.compile(r"(.+)-\d{5}-of-\d{5}\.parquet$")


class Rows(Protocol):
    """Rows of any format. `folder`: the folder that image paths are relative to. `size`: bytes of the files, which the
    revision includes. `count`: the number of rows. `left_out`: what else is in the file or folder."""

    schema: pa.Schema
    folder: str
    size: int
    count: int
    left_out: OmittedRows

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Returns columns unconverted. A name may be that of a struct's field, as in Parquet."""
        ...

    def each(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Like `columns`, but yields some rows at a time."""
        ...

    def images(self, column: str, rows: Sequence[int]) -> list[Any]: ...


class InMemory:
    """A table that is read as a whole."""

    def __init__(
        self,
        table: pa.Table,
        folder: str,
        size: int,
        left_out: OmittedRows | None = None,
        read: Callable[[Any], Any] | None = None,
    ) -> None:
        """`read`: turns a value of the column of images into another one, such as a place in a file into its bytes."""
        self._table, self.schema, self.folder, self.size = table, table.schema, folder, size
        self.count = int(table.num_rows)
        self.left_out, self._read = left_out or OmittedRows(), read

    def columns(self, names: Sequence[str]) -> pa.Table:
        return _named(self._table, names)

    def each(self, names: Sequence[str]) -> Iterator[pa.Table]:
        for start in range(0, self.count, ROWS_AT_ONCE):
            yield _named(self._table.slice(start, ROWS_AT_ONCE), names)

    def images(self, column: str, rows: Sequence[int]) -> list[Any]:
        values = [self._table[column][row].as_py() for row in rows]
        return values if self._read is None else [self._read(value) for value in values]


class InParquet:
    """Parquet files with one schema. Callers ask for images in order, so only one row group of images is held. Threads
    of a stage may share it, and read one at a time: a file's reader serves no two at once."""

    def __init__(
        self, files: Sequence[pq.ParquetFile], folder: str, size: int, left_out: OmittedRows | None = None
    ) -> None:
        self._files, self.schema, self.folder, self.size = files, files[0].schema_arrow, folder, size
        self.left_out = left_out or OmittedRows()
        self._groups = [(file, group) for file in files for group in range(file.metadata.num_row_groups)]
        sizes = (file.metadata.row_group(group).num_rows for file, group in self._groups)
        self._ends = list(accumulate(sizes, initial=0))
        self.count = self._ends[-1]
        self._held: tuple[int, pa.ChunkedArray] | None = None
        self._reading = Lock()

    def columns(self, names: Sequence[str]) -> pa.Table:
        with self._reading:
            return _named(pa.concat_tables([file.read(columns=list(names)) for file in self._files]), names)

    def each(self, names: Sequence[str]) -> Iterator[pa.Table]:
        for file in self._files:
            batches = file.iter_batches(ROWS_AT_ONCE, columns=list(names), use_threads=False)
            while (batch := self._next(batches)) is not None:
                yield _named(pa.Table.from_batches([batch]), names)

    def _next(self, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        with self._reading:
            return next(batches, None)

    def images(self, column: str, rows: Sequence[int]) -> list[Any]:
        with self._reading:  # of all rows: between two, another thread would have other row groups read
            return [self._image(column, row) for row in rows]

    def _image(self, column: str, row: int) -> Any:
        number = bisect_right(self._ends, row) - 1
        if self._held is None or self._held[0] != number:
            file, group = self._groups[number]
            self._held = (number, file.read_row_group(group, columns=[column])[column])
        return self._held[1][row - self._ends[number]].as_py()


JSON_LINES = (".jsonl", ".ndjson", ".manifest")
LISTS = (".txt", ".lst")
TABLES = (".csv", ".tsv", *JSON_LINES, *LISTS, ".parquet", ".pq")
"""The endings of files of labelled images."""


def open_rows(location: str, field: str) -> Rows:
    """Opens the rows of a file or folder. Raises SourceError if it cannot be read; ConfigError if it is ambiguous."""
    filesystem, path = resolve(location)
    path = path.rstrip("/")
    with reading(location, "a table"):
        info = file_info(filesystem, path)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(path)
        if info.type == fs.FileType.Directory:
            return _folder(location, field, filesystem, path)
    folder = posixpath.dirname(path)
    ending = posixpath.splitext(path)[1].lower()
    if ending in (".csv", ".tsv"):
        return InMemory(read_csv(location, filesystem, path, "\t" if ending == ".tsv" else ","), folder, info.size)
    if ending in JSON_LINES:
        return InMemory(read_json_lines(filesystem, path), folder, info.size)
    if ending in LISTS:
        return InMemory(read_image_list(location, filesystem, path), folder, info.size)
    with reading(location, "a Parquet file"):
        file = pq.ParquetFile(open_input(filesystem, path))
        packed = _packed_size(file)
        return InParquet([file], folder, info.size if packed is None else packed)


def _packed_size(file: pq.ParquetFile) -> int | None:
    """Returns the bytes of the table that a packed one was made from, 0 of a folder without one; None of any other
    table."""
    stated = (file.schema_arrow.metadata or {}).get(PACKED, b"")
    return int(stated) if stated.isdigit() and len(stated) <= 18 else None


def _named(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Returns the columns with these names; a name may be that of a struct's field."""
    result = {}
    for name in names:
        column, _, part = name.partition(".") if name not in table.column_names else (name, "", "")
        result[name] = pc.struct_field(table[column], part) if part else table[column]
    return pa.table(result)


def _folder(location: str, field: str, filesystem: fs.FileSystem, path: str) -> Rows:
    infos = [info for info in file_info(filesystem, fs.FileSelector(path)) if not info.base_name.startswith(".")]
    names = {info.base_name: info for info in infos}
    if "dataset_dict.json" in names:
        splits = sorted(n for n, info in names.items() if info.type == fs.FileType.Directory)
        if not splits:
            raise SourceError(f"{location}: has a dataset_dict.json and none of its splits; copy the dataset again")
        raise ConfigError(field, f"{location} holds several splits; name one, such as {location}/{splits[0]}")
    if "state.json" in names:
        table, size = read_saved_to_disk(location, filesystem, path)
        return InMemory(table, path, size)
    if parquet := _parquet_files(filesystem, path, infos):
        _refuse_splits(location, field, [info.path for info in parquet])
        if (loaded := read_img2dataset(location, filesystem, path, [info.base_name for info in parquet])) is not None:
            return InMemory(loaded.table, path, loaded.size, loaded.left_out, loaded.image)
        with reading(location, "a folder of Parquet files"):
            files = [pq.ParquetFile(open_input(filesystem, info.path)) for info in parquet]
            if any(file.schema_arrow.names != files[0].schema_arrow.names for file in files):
                raise SourceError(f"{location}: its Parquet files have different columns")
            left_out = _left_out_files(filesystem, path, {info.path for info in parquet})
            return InParquet(files, path, sum(info.size for info in parquet), left_out)
    table, size, left_out = read_image_folder(location, field, filesystem, path)
    return InMemory(table, path, size, left_out)


def _left_out_files(filesystem: fs.FileSystem, path: str, tables: set[str]) -> OmittedRows:
    """Returns the tables of other kinds, and in other folders, that lie beside those that are read."""
    left_out = OmittedRows()
    if isinstance(filesystem, fs.LocalFileSystem):  # os.walk: Arrow's own selector follows links without end
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    else:
        paths = [info.path for info in file_info(filesystem, fs.FileSelector(path)) if info.type == fs.FileType.File]
    for name in sorted(full_path[len(path) :].lstrip("/") for full_path in paths if full_path not in tables):
        if not is_hidden(name) and name.endswith((".parquet", ".arrow", ".csv", ".tsv", ".jsonl")):
            left_out.add("table beside or below the Parquet files that are read", name)
    return left_out


def _parquet_files(filesystem: fs.FileSystem, path: str, infos: Sequence[fs.FileInfo]) -> list[fs.FileInfo]:
    """Returns the Parquet files of the folder, or of its subfolder `data`."""
    for candidates in (infos, file_info(filesystem, fs.FileSelector(f"{path}/data", allow_not_found=True))):
        if parquet := [info for info in candidates if info.base_name.endswith(".parquet")]:
            return sorted(parquet, key=lambda info: str(info.path))
    return []


def _refuse_splits(location: str, field: str, paths: Sequence[str]) -> None:
    names = [posixpath.basename(path) for path in paths]
    splits = {match[1] for name in names if (match := _SPLIT_FILE.match(name))}
    splits |= {stem for name in names if (stem := name.removesuffix(".parquet")) in SPLITS}
    if len(splits) > 1:
        split_names = ", ".join(sorted(splits))
        raise ConfigError(
            field, f"{location} holds several splits ({split_names}); name a file, or a folder of one split"
        )
