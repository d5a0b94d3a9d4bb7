"""Labelled images: an image, a target class and attributes in each row of a table or folder (`labelled_rows`).

An image may have several labels, or none, in a column: as the table has it, a list in each row, names with a separator
between them, or one column of 0 and 1 for each label; as the rest of the product reads it, one text a row, the labels
sorted, with `JOINT` between them, an empty text where there is none, and null where it is not known. The field of such
a column says that it is one (`SEVERAL`).

It returns the labels as text, all at once, and the images' bytes by row, only from below the table's folder. It does
not know the meaning of labels.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from io import RawIOBase
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from c2b_ray.errors import ConfigError, ImageError, SourceError, nearest
from c2b_ray.storage import concerns_the_store, is_remote, refusal, resolve
from c2b_ray.storage.confined import MAX_BYTES, Folder, in_other_forms, is_local, path_below
from c2b_ray.storage.folders import OmittedRows, Readers
from c2b_ray.storage.labelled_rows import FOLDER_COLUMN, LABEL, PACKED, FilesByName, open_rows
from c2b_ray.storage.manifest import parse_json
from c2b_ray.storage.parts import give_back
from c2b_ray.storage.s3 import file_info
from c2b_ray.tables import IdPieces, content_id, texts

# Columns in which an image may have several labels, or none.


JOINT = "; "
SEVERAL = {b"labels": b"several"}
"""The metadata of the field of such a column."""


def are_marks(column: pa.ChunkedArray) -> bool:
    """Tells whether a column holds 0 and 1, and blanks or −1 where it is not known which."""
    try:
        values = numbers_of(column.unique())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    known = {*values[~np.isnan(values)].tolist()} - {UNCERTAIN}
    return bool(known) and known <= {0, 1}


def has_several(field: pa.Field) -> bool:
    """Tells whether a row of the column may have several labels."""
    return bool(field.metadata) and SEVERAL.items() <= field.metadata.items()


def labels_in(text: str | None) -> list[str]:
    """Returns the labels of a row's text."""
    return [] if not text else text.split(JOINT)


def joined_lists(column: pa.Array, names: Sequence[str] | None, where: str, first: int = 0) -> pa.Array:
    """Returns the texts of lists of labels, or of numbers of `names`. `first`: the row that the column begins at.

    Null where a number has no name, such as −1: what else such an image shows is not known. Raises SourceError, about
    `where`, for a label that holds the joint.
    """
    texts = []
    for number, row in enumerate(column.to_pylist(), first + 1):
        labels = None if row is None else _names(row, names)
        texts.append(None if labels is None else _joined(labels, where, number))
    return pa.array(texts, pa.string())


def joined_texts(column: pa.Array, separator: str, where: str, first: int = 0) -> pa.Array:
    """Returns the texts of labels with a separator between them. A row without text has none of the labels."""
    texts = column.cast(pa.string()).to_pylist()
    rows = enumerate(((text or "").split(separator) for text in texts), first + 1)
    return pa.array([_joined(row, where, number) for number, row in rows], pa.string())


def joined_marks(columns: Sequence[pa.Array], names: Sequence[str], where: str, first: int = 0) -> pa.Array:
    """Returns the texts of columns of 0 and 1, one for each label. Blanks and −1 are not known: a row is null where no
    column is.

    Raises SourceError, with its row and column, for another value, and for one that is not known where others of its
    row are: an image without a label is one that does not show it.
    """
    marks, knowns = [], []
    for name, column in zip(names, columns, strict=True):
        try:
            numbers = numbers_of(column)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SourceError(
                f"{where}: column {name!r} is {column.type}, expected 0 and 1: one for images that show it"
            ) from error
        known = (numbers == 0) | (numbers == 1)
        for row in np.flatnonzero(~(known | np.isnan(numbers) | (numbers == UNCERTAIN))):
            raise SourceError(f"{where}: row {first + row + 1}: {name!r} is {column[row].as_py()!r}, expected 0 or 1")
        marks.append(numbers == 1)
        knowns.append(known)
    shown, all_known = np.stack(marks, axis=1), np.stack(knowns, axis=1)
    any_known = np.asarray(all_known.any(axis=1))
    for row in np.flatnonzero(any_known & ~all_known.all(axis=1)):
        at = int(np.argmin(all_known[row]))
        value = str(columns[at][row].as_py() or "").strip()
        zero = "" if value else "Write 0 if a blank means that an image does not show it. "
        raise SourceError(
            f"{where}: row {first + row + 1}: {names[at]!r} is {value or 'blank'}, so it is not known, and other "
            f"labels of this row are. {zero}Audit one label at a time: `--class-column {names[at]!r}`, or `classes: "
            f"[{names[at]}]` and `columns: {{target_class: [{names[at]}]}}` in an audit file, leaves out the rows "
            "where that label is not known"
        )
    rows = [[name for name, one in zip(names, row, strict=True) if one] for row in shown.tolist()]
    return pa.array(
        [
            _joined(row, where, number) if is_known else None
            for number, (row, is_known) in enumerate(zip(rows, any_known.tolist(), strict=True), first + 1)
        ],
        pa.string(),
    )


def _refuse_signs(column: pa.ChunkedArray, name: str, where: str) -> None:
    """Raises SourceError where a column holds −1 and never 0: CelebA's −1 says that an image does not show the label,
    and would be taken for what is not known."""
    try:
        values = numbers_of(column.unique())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # told with the row that holds the value
        return
    if UNCERTAIN in values and 0 not in values:
        raise SourceError(
            f"{where}: column {name!r} holds -1 and never 0. Write 0 where -1 says that an image does not show it, as "
            "in CelebA; leave the field blank where it is not known, as in CheXpert"
        )


UNCERTAIN = -1
"""What CheXpert and others write where a label is not certain."""


def numbers_of(column: pa.Array) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns the numbers of a column, NaN where it is blank; 0 and 1 of False and True."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = pc.utf8_lower(pc.utf8_trim_whitespace(column))
        for text, number in (("", None), ("false", "0"), ("true", "1")):
            column = pc.if_else(pc.equal(column, text), pa.scalar(number, column.type), column)
    return np.asarray(column.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False))


def _names(row: Iterable[object], names: Sequence[str] | None) -> list[str] | None:
    labels = [one for one in row if one is not None]
    if names is None:
        return [str(one) for one in labels]
    if any(isinstance(one, int) and not 0 <= one < len(names) for one in labels):
        return None
    return [names[one] if isinstance(one, int) else str(one) for one in labels]


def _joined(labels: Iterable[str], where: str, row: int) -> str:
    distinct = sorted({label.strip() for label in labels} - {""})
    for label in distinct:
        if JOINT.strip() in label:
            raise SourceError(
                f"{where}: row {row}: the label {label!r} holds {JOINT.strip()!r}, which separates labels here"
            )
    return JOINT.join(distinct)


IMAGE, TARGET, KEY = "image", "target_class", "key"
FOLDER = "folder"
"""Clusters by the folder that an image lies in."""
KEYS_AT_ONCE = 16_384
SAMPLE = 50
"""Images of a table whose files are looked for, to tell where they lie."""


class LabelledTable:
    """The table or folder at `location`. Raises SourceError if it cannot be read or is empty; ConfigError for a missing
    column.

    `field`: the config's field that names the table, for errors. `columns`: the table's names for `image`,
    `target_class` and `key`, if they differ. Image folders and Hugging Face datasets may name the class `label`.
    `root`: the folder below which images lie, if that is not the table's; paths are relative to it, or absolute.
    Where none of the first images is where the table says, all are looked up by their names (`FilesByName`).

    An image may have several classes, or none: where the column of classes holds lists, where
    `separator` says what separates them there, and where `columns` names several columns for `target_class`. `several`:
    whether the caller takes such tables; otherwise lists are refused.
    """

    def __init__(
        self,
        location: str,
        field: str = "images.table",
        columns: Mapping[str, str | list[str]] | None = None,
        root: str | None = None,
        separator: str | None = None,
        several: bool = False,
    ) -> None:
        self.location = location
        self.root = root
        self.separator, self._may_have_several = separator, several
        self.field = field
        self._renamed = dict(columns or {})
        self._rows = open_rows(location, field)
        self._of_columns = {
            role: [self._as_written(one) for one in name] if isinstance(name, list) else self._as_written(name)
            for role, name in self._renamed.items()
        }
        self._names = {name: self._column(name) for name in (IMAGE, TARGET, KEY)}
        if len(self) == 0:
            raise SourceError(f"{location} has no rows")

    def __reduce__(self) -> tuple[type[LabelledTable], tuple[Any, ...]]:
        return LabelledTable, (
            self.location,
            self.field,
            self._renamed,
            self.root,
            self.separator,
            self._may_have_several,
        )

    def __len__(self) -> int:
        return self._rows.count

    def _as_written(self, name: str) -> str:
        """Returns the table's column of a name, which may have spaces around it in the file alone."""
        names = self._rows.schema.names
        return name if name in names else next((one for one in names if one.strip() == name), name)

    def _column(self, name: str) -> str:
        """Returns the table's name of a column; an empty text for a missing `key`."""
        names = self._rows.schema.names
        renamed = self._of_columns.get(name)
        if isinstance(renamed, list):
            for one in renamed:
                if one not in names:
                    raise ConfigError(
                        self._columns, f"{name}: {self.location} has no column {one!r}; {nearest(one, names)}"
                    )
            return ""
        if renamed is not None:
            if renamed not in names:
                raise ConfigError(
                    self._columns, f"{name}: {self.location} has no column {renamed!r}; {nearest(renamed, names)}"
                )
            return renamed
        if name in names or name == KEY:
            return name if name in names else ""
        if name == IMAGE and {"jpg", "key", "status", "url"} <= set(names):  # as img2dataset writes it
            return "jpg"
        if name == TARGET and LABEL in names and (class_names(self._rows.schema, LABEL) or self._is_folder):
            return LABEL
        # Only beside `table` has a file the field `columns`.
        otherwise = ", or `columns` to say what they are called" if self.field.endswith(".table") else ": rename them"
        raise ConfigError(
            self.field,
            f"{self.location} has no column {name!r} ({nearest(name, names)}); expected `image` (a path relative to "
            f"the table, or bytes), `target_class` and a column per attribute{otherwise}",
        )

    @property
    def _columns(self) -> str:
        """The config's field that renames columns, beside the one that names the table."""
        return f"{self.field.rpartition('.')[0]}.columns".lstrip(".")

    @property
    def numbered_classes(self) -> list[str] | None:
        """The classes in the order of the numbers that stand for them in the file; None where names stand for
        themselves."""
        return class_names(self._rows.schema, self._names[TARGET])

    @property
    def _is_folder(self) -> bool:
        return self._rows.folder == resolve(self.location)[1].rstrip("/")

    @cached_property
    def labels(self) -> pa.Table:
        """`target_class` and the other columns as text, a row per image; nulls, empty texts and NaN are null.

        The columns are dictionaries: a column of a million rows takes one to four megabytes.
        """
        schema, target = self._rows.schema, self._names[TARGET] or TARGET
        if self.has_several and not self._may_have_several:
            raise ConfigError(
                self.field,
                f"{self.location} may have several classes in a row ({target!r}), and this needs one class for each "
                "image; only `c2b audit` takes several, of a classifier that may give several labels",
            )
        used = {self._names[IMAGE], self._names[KEY], target, *self._marks, *self._other_folders}
        names = [name for name in schema.names if name not in used and _is_label(schema.field(name).type)]
        if clash := next((name for name in names if name == TARGET), None):
            raise ConfigError(self._columns, f"target_class: {target!r}, but there is a column {clash!r} too")
        columns = {name: _Coded(class_names(schema, name)) for name in names}
        columns = {target: _Coded(class_names(schema, target), self.has_several), **columns}
        for name in self._marks:
            _refuse_signs(self._rows.columns([name])[name], name, self.location)
        row = 0
        for table in self._rows.each([*(self._marks or [target]), *names]):
            columns[target].add(self._several(table, row) if self.has_several else table[target])
            for name in names:
                columns[name].add(table[name])
            row += table.num_rows
        labels = pa.table({TARGET if name == target else name: column.whole() for name, column in columns.items()})
        if self.has_several:
            position = labels.schema.get_field_index(TARGET)
            labels = labels.set_column(position, labels.schema.field(position).with_metadata(SEVERAL), labels[TARGET])
        give_back()  # the memory of the columns as read
        return labels

    @property
    def _other_folders(self) -> list[str]:
        """An image folder's columns of folders that are no labels: all of them where the outermost are the classes, as
        they are unless `columns` says otherwise; else `label`, which is `folder 1` under another name."""
        folders = [name for name in self._rows.schema.names if FOLDER_COLUMN.fullmatch(name)]
        if not self._is_folder or not folders:
            return []
        return [LABEL] if self._names[TARGET] in folders else folders

    @property
    def has_several(self) -> bool:
        """Whether an image may have several classes, or none."""
        return bool(self._marks) or self.separator is not None or self._lists

    @property
    def _marks(self) -> list[str]:
        """The columns of 0 and 1, one for each class; none where one column holds the classes."""
        named = self._of_columns.get(TARGET)
        return named if isinstance(named, list) else []

    @property
    def _lists(self) -> bool:
        kind = None if self._marks else self._rows.schema.field(self._names[TARGET]).type
        return kind is not None and (pa.types.is_list(kind) or pa.types.is_large_list(kind))

    def _several(self, table: pa.Table, first: int) -> pa.ChunkedArray:
        """Returns the classes of each row of a part of the table, of which it may have several."""
        if self._marks:
            columns = [table[name].combine_chunks() for name in self._marks]
            return pa.chunked_array([joined_marks(columns, self._marks, self.location, first)], pa.string())
        target, column = self._names[TARGET], table[self._names[TARGET]].combine_chunks()
        if self._lists:
            names = class_names(self._rows.schema, target)
            return pa.chunked_array([joined_lists(column, names, self.location, first)], pa.string())
        return pa.chunked_array([joined_texts(column, str(self.separator), self.location, first)], pa.string())

    def clusters(self, name: str, field: str = "images.cluster") -> pa.ChunkedArray | pa.Array:
        """Returns the cluster of each image as text, null where there is none: a column of labels, or, where none is
        called `folder`, the folder of each image.

        Raises ConfigError, about `field`, for a column that is not there, and for folders of images that have no path.
        """
        if name in self.labels.column_names and name != TARGET:
            return self.labels[name].cast(pa.string())
        image = self._path_column
        if name == FOLDER and image:
            paths = (chunk for table in self._rows.each([image]) for chunk in table[image].chunks)
            return pa.chunked_array([_folders(chunk) for chunk in paths], pa.string())
        columns = [column for column in self.labels.column_names if column != TARGET]
        if name == FOLDER:
            raise ConfigError(field, f"{self.location} has no paths of images; name the column that has the clusters")
        raise ConfigError(field, f"{self.location} has no column {name!r}; {nearest(name, [*columns, FOLDER])}")

    @property
    def column_names(self) -> Mapping[str, str]:
        """`image`, `target_class` and `key` → the table's name for it; an empty text for a missing `key`."""
        return self._names

    @cached_property
    def _by_name(self) -> Mapping[str, str] | None:
        """Name → path of each image that is found by it; None where one of the first is where the table says, or none
        is found so."""
        sample = list(islice(self.paths(), SAMPLE))
        folder = self._root.rstrip("/")
        if any(self._is_there(posixpath.join(folder, name)) for name in sample[: SAMPLE if self._is_local else 1]):
            return None
        return (FilesByName(self._filesystem, folder).paths_of(self.paths()) or None) if sample else None

    @property
    def _is_local(self) -> bool:
        return is_local(self._filesystem)

    def _is_there(self, path: str) -> bool:
        if self._is_local:
            return os.path.lexists(path)
        return bool(file_info(self._filesystem, path).type != fs.FileType.NotFound)

    @property
    def is_looked_up(self) -> bool:
        """Whether images are found by their names, because none is where the table says."""
        return self._by_name is not None

    @property
    def has_paths(self) -> bool:
        """Whether the table has a path of each image, also of those whose bytes it contains."""
        return bool(self._path_column)

    @property
    def _path_column(self) -> str:
        """The column of the images' paths, also of images that the table contains; an empty text where it has none."""
        image = self._names[IMAGE]
        kind = self._rows.schema.field(image).type
        if pa.types.is_struct(kind):
            return f"{image}.path" if "path" in [part.name for part in kind] else ""
        return image if _names_files(kind) else ""

    @cached_property
    def left_out(self) -> OmittedRows:
        """What is in the file or folder and not among the rows, by reason; and which names are joined to files that are
        called alike in another of Unicode's forms."""
        omitted, image = self._rows.left_out, self._names[IMAGE]
        if is_local(resolve(self.location)[0]) and pa.types.is_string(self._rows.schema.field(image).type):
            names = (name for table in self._rows.each([image]) for name in table[image].to_pylist() if name)
            omitted.notes += in_other_forms(self._root, filter(None, map(self._inside, names)))
        if self._by_name is not None:
            name, path = next(iter(self._by_name.items()))
            omitted.notes.append(
                f"no image is where the table says: they are looked up by name, such as {name} as {path}"
            )
        return omitted

    @property
    def not_labels(self) -> dict[str, str]:
        """Columns that hold no labels → what they hold, such as lists or bytes."""
        schema, used = self._rows.schema, {*self._names.values()}
        return {f.name: f"it holds {f.type}" for f in schema if f.name not in used and not _is_label(f.type)}

    @cached_property
    def keys(self) -> pa.Array:
        """The name of each image: its key, its path, or its row if the table contains the bytes. Large strings."""
        return pa.chunked_array(self._some_keys(), pa.large_string()).combine_chunks()

    def _some_keys(self) -> Iterator[pa.Array]:
        column = self._names[KEY] or self._path_column
        if not column:
            for start in range(0, len(self), KEYS_AT_ONCE):
                yield _row_names(start, min(KEYS_AT_ONCE, len(self) - start))
            return
        first = 0
        for chunk in (chunk for table in self._rows.each([column]) for chunk in table[column].chunks):
            for start in range(0, len(chunk), KEYS_AT_ONCE):
                keys = chunk.slice(start, KEYS_AT_ONCE).cast(pa.large_string())
                has_key = pc.fill_null(pc.not_equal(keys, ""), False)
                yield keys if pc.all(has_key).as_py() else pc.if_else(has_key, keys, _row_names(first, len(keys)))
                first += len(keys)

    @cached_property
    def revision(self) -> str:
        keys = texts(lambda: (keys.to_pylist() for keys in self._some_keys()))
        revision = content_id(IdPieces(self._write_labels), keys, self._rows.size)
        give_back()
        return revision

    def _write_labels(self, consume: Callable[[Any], object]) -> None:
        # One record batch of texts: the revision of every table is computed from these bytes.
        texts = pa.table(
            {name: self.labels[name].cast(pa.string()).combine_chunks() for name in self.labels.schema.names}
        )
        sink = pa.PythonFile(_Sink(consume), mode="w")
        with pa.ipc.new_stream(sink, texts.schema) as writer:
            writer.write_table(texts)

    def fetch(self, ids: Sequence[int]) -> pa.Table:
        """Returns the columns `key`, `bytes`, `error` of the rows `ids`, in their order."""
        keys, data, errors = self.read(ids)
        return pa.table({"key": keys, "bytes": pa.array(data, pa.binary()), "error": pa.array(errors, pa.string())})

    def read(self, ids: Sequence[int]) -> tuple[pa.Array, list[bytes | None], list[str | None]]:
        """Returns the columns of `fetch` without copying bytes. Raises SourceError where the disk or store does not
        answer."""
        values = self._rows.images(self._names[IMAGE], ids)
        folder = Folder(self._filesystem, self._root)
        images = self._readers.map(lambda value: self._image(value, folder), values, partial(_place, folder))
        keys = self.keys.take(pa.array(ids, pa.int64())).cast(pa.string())
        return keys, [data for data, _ in images], [error for _, error in images]

    @cached_property
    def _filesystem(self) -> fs.FileSystem:
        """The one that holds the images."""
        return resolve(self.root or self.location)[0]

    @cached_property
    def _root(self) -> str:
        """The folder that images are read below."""
        return self._rows.folder if self.root is None else resolve(self.root)[1].rstrip("/") or "/"

    def paths(self) -> Iterator[str]:
        """Yields the path of each image that the table names by one, as it is written; none of a table of bytes."""
        image = self._names[IMAGE]
        kind, column = self._rows.schema.field(image).type, image
        if pa.types.is_struct(kind):  # a Hugging Face image: its bytes, or where they are
            if PACKED in (self._rows.schema.metadata or {}):  # a row without bytes is one that could not be read
                return
            first = self._rows.images(image, [0])[0]
            if not isinstance(first, dict) or "path" not in first or first.get("bytes") is not None:
                return
            column = f"{image}.path"
        elif not _names_files(kind):
            return
        for table in self._rows.each([column]):
            yield from filter(None, table[column].cast(pa.large_string()).to_pylist())

    def locations(self, ids: Sequence[int]) -> list[str | None]:
        """Returns the path or URI of each row's image, where that is a file of its own; None where the table holds the
        bytes, or no such file is there."""
        image = self._names[IMAGE]
        kind = self._rows.schema.field(image).type
        if not _names_files(kind):
            return [None] * len(ids)
        values = self._rows.images(image, ids)
        return [None if value is None or value == "" else self._file(str(value)) for value in values]

    def _file(self, name: str) -> str | None:
        relative, root = self._inside(name), self.root or self.location
        if relative is None:
            return None
        if is_remote(root):
            return f"{root.partition('://')[0]}://{self._root.strip('/')}/{relative}"
        path = Folder(resolve(root)[0], self._root).at(relative)
        return path if os.path.exists(path) else None  # it may be called so in another of Unicode's forms

    def leading_out(self) -> list[str]:
        """Returns the paths of images that are refused, each once: absolute ones, and those that lead out of the
        table's folder by `..`; with a root, those that do not end below it. None where images are looked up."""
        if self._by_name is not None:
            return []
        return list(dict.fromkeys(name for name in self.paths() if self._inside(name) is None))

    def root_of(self, names: Sequence[str]) -> str:
        """Returns the deepest folder above all images of these paths; "" where they share none but the top."""
        folder = self._rows.folder
        folders = {posixpath.dirname(posixpath.normpath(posixpath.join(folder, name))) for name in names}
        common = posixpath.commonpath(folders) if folders else ""
        return "" if common == "/" else common

    def _inside(self, name: str) -> str | None:
        """Returns a path relative to the root; None where it leads out of it, or where nothing is called so."""
        if self._by_name is not None:
            return self._by_name.get(name)
        if self.root is None and name.startswith("/"):
            return None
        return path_below(self._root, self._rows.folder, name)

    @cached_property
    def _readers(self) -> Readers:
        return Readers(patient=is_remote(self.location))

    def _image(self, value: Any, folder: Folder) -> tuple[bytes | None, str | None]:
        if isinstance(value, dict):  # the form of images in Hugging Face datasets
            value = value.get("bytes") or value.get("path")
        if isinstance(value, bytes):
            return (value, None) if len(value) <= MAX_BYTES else (None, f"too large: more than {MAX_BYTES} bytes")
        value = str(value) if isinstance(value, int) else value
        if not isinstance(value, str) or not value:
            return None, "the table names no image in this row"
        name = self._inside(value)
        if name is None and self._by_name is not None:
            return (
                None,
                f"{value}: no file below {self._root} is called so, or several are, or another row names it otherwise",
            )
        if name is None:
            root = "the folder" if self.root is None else self.root
            return None, f"{value}: leads out of {root}; expected the path of a file below it"
        try:
            return folder.read(name, MAX_BYTES), None
        except ImageError as error:
            return None, str(error)
        except FileNotFoundError:
            return None, "no such file beside the table" if self.root is None else f"no such file below {self.root}"
        except OSError as error:
            if concerns_the_store(error):
                raise SourceError(refusal(self.location, error)) from error
            return None, f"cannot be read: {error.strerror or error}"


def refuse_paths_outside(table: LabelledTable, field: str = "images.root") -> None:
    """Raises ConfigError where most images of a table lie outside the folder that they are read below: each of them
    would be an error of its row, after the run."""
    outside = table.leading_out()
    if 2 * len(outside) < len(table):
        return
    root = table.root_of(outside)
    line = f"write `root: {root}` under `images`" if root else "give the folder above them as `root` under `images`"
    below = table.root or "the table's folder"
    raise ConfigError(
        field,
        f"{len(outside):,} of {len(table):,} images do not lie below {below}, such as {outside[0]!r}; if they are "
        f"yours, {line}",
    )


def class_names(schema: pa.Schema, column: str) -> list[str] | None:
    """Returns the names of a column's class numbers from Hugging Face's metadata; None without."""
    try:
        metadata = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"))
        feature = metadata["info"]["features"][column]
        feature = feature[0] if isinstance(feature, list) else feature.get("feature", feature)  # lists of class numbers
        names = feature["names"] if feature["_type"] == "ClassLabel" else None
    except (ValueError, KeyError, TypeError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


class _Coded:
    """Collects a column of labels in chunks, as distinct texts and small numbers."""

    def __init__(self, names: list[str] | None, joined: bool = False) -> None:
        """`joined`: whether a row may have several labels, so that an empty text is no missing value."""
        self._names, self._joined = names, joined
        self._chunks: list[pa.Array] = []

    def add(self, column: pa.ChunkedArray) -> None:
        texts = (chunk if self._joined else _as_text(chunk, self._names) for chunk in column.chunks)
        self._chunks += [text.dictionary_encode() for text in texts]

    def whole(self) -> pa.Array:
        kind = pa.dictionary(pa.int32(), pa.string())
        column = pa.chunked_array(self._chunks, kind).unify_dictionaries().combine_chunks()
        kinds = (pa.int8(), pa.int16(), pa.int32())
        smallest = next(kind for kind in kinds if len(column.dictionary) < 2 ** (kind.bit_width - 1))
        return pa.DictionaryArray.from_arrays(column.indices.cast(smallest), column.dictionary)


def _place(folder: Folder, value: Any) -> str:
    """Returns where a value of the column of images lies, for messages."""
    name = value.get("path") if isinstance(value, dict) else value
    return folder.at(str(name)) if isinstance(name, str | int) else folder.at("")


def _row_names(first: int, count: int) -> pa.Array:
    rows = pa.array(np.arange(first, first + count)).cast(pa.large_string())
    return pc.binary_replace_slice(rows, 0, 0, "row ")


class _Sink(RawIOBase):
    """A file that passes each written piece to `consume`."""

    def __init__(self, to: Callable[[Any], object]) -> None:
        self._to = to

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._to(data)
        return len(data)


def _folders(paths: pa.Array) -> pa.Array:
    """Returns the folder of each path; null for an image without one."""
    folders = pc.replace_substring_regex(paths.cast(pa.string()), pattern="/?[^/]*$", replacement="")
    return pc.if_else(pc.equal(folders, ""), pa.scalar(None, pa.string()), folders)


def _names_files(kind: pa.DataType) -> bool:
    """Tells whether a column may name files: as texts, or as whole numbers."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind))


def _is_label(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _as_text(column: pa.Array, names: list[str] | None) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if names is not None and pa.types.is_integer(column.type):
        in_range = pc.and_(pc.greater_equal(column, 0), pc.less(column, len(names)))  # −1 is not a label
        column = pc.take(pa.array(names, pa.string()), pc.if_else(in_range, column, pa.scalar(None, column.type)))
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    column = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def table_opener(images: Mapping[str, Any]) -> partial[LabelledTable]:
    """Returns what opens the labelled table of the section `images` of a config, given as its fields. It can be sent to
    other processes."""
    columns = {name: column for name, column in (images.get("columns") or {}).items() if column is not None}
    more = {name: images[name] for name in ("root", "separator") if images.get(name) is not None}
    return partial(LabelledTable, str(images["table"]), columns=columns, several=True, **more)
