"""Reads a dataset that Hugging Face's `save_to_disk` wrote: Arrow files that state.json names, and the selection of
their rows that older releases keep in a file of indices of its own.
"""

from __future__ import annotations

import posixpath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from c2b_ray.errors import SourceError
from c2b_ray.filesystems.documents import parse_json
from c2b_ray.filesystems.patience import file_info, open_input
from c2b_ray.store.text_tables import reading

INDICES = ("_indices_data_files", "_indices_files")
"""The entries of state.json that name the files of a selection."""


def read(location: str, filesystem: fs.FileSystem, path: str) -> tuple[pa.Table, int]:
    """Returns the rows, of a selection those that it names in its order, and the bytes of the files.

    Raises SourceError where a file is missing or cannot be read, or where the selection names rows that are not there.
    """
    with reading(location, "a dataset that `save_to_disk` wrote"):
        with open_input(filesystem, f"{path}/state.json") as stream:
            state = _state(location, bytes(stream.read()))
        parts = [_part(location, filesystem, f"{path}/{name}") for name in _names(location, state, "_data_files")]
        selected = [name for entry in INDICES for name in (_names(location, state, entry) if state.get(entry) else [])]
        chosen = [_part(location, filesystem, f"{path}/{name}") for name in selected]
        if not chosen and file_info(filesystem, f"{path}/indices.arrow").type == fs.FileType.File:
            raise SourceError(
                f"{location}: holds a selection (indices.arrow) that its state.json does not name; save it again"
            )
        if not parts:
            raise SourceError(f"{location}: its state.json names no file of rows; save the dataset again")
        table, size = pa.concat_tables([part for part, _ in parts]), sum(bytes_ for _, bytes_ in (*parts, *chosen))
        return (_selected(location, table, pa.concat_tables([part for part, _ in chosen])) if chosen else table), size


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
