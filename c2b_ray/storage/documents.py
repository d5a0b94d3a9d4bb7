"""Reads YAML, JSON and CSV files strictly: duplicate keys and malformed documents are errors.

It knows no fields. Errors are InputErrors that name the file, and the line where there is one.
"""

from __future__ import annotations

import csv
import io
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from c2b_ray.errors import ConfigError, SourceError

LARGEST = 64 * 2**20
"""The most bytes of a document; a label map of a million classes has half as many."""

FileOrFields = str | Path | dict[str, Any]
"""The path of a YAML file, or its fields by name."""


class StrictLoader(yaml.SafeLoader):
    """YAML's safe loader, which also refuses a mapping with duplicate keys instead of keeping the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            # Compare keys as written: `1` and `"1"` differ in Python, but not for a person who reads the file.
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> Any:
    """Returns the content of a YAML file. Raises SourceError if there is no such file, ConfigError if it is not
    YAML."""
    text = _text(path, "YAML")
    try:
        return yaml.load(text, StrictLoader)  # noqa: S506 — a safe loader
    except RecursionError as error:
        raise _no_document(path, "YAML", "it is nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-02-31
        raise _no_document(path, "YAML", " ".join(str(error).split())) from error


def read_json(path: str | Path) -> Any:
    """Returns the content of a JSON file. Raises SourceError if there is no such file, ConfigError if it is not
    JSON."""
    try:
        return parse_json(_text(path, "JSON"))
    except ValueError as error:
        raise _no_document(path, "JSON", str(error)) from error


def parse_json(text: str | bytes) -> Any:
    """Does what `json.loads` does, and also raises ValueError for duplicate keys and deep nesting."""
    try:
        return json.loads(text, object_pairs_hook=_each_once)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} is given twice")
        result[key] = value
    return result


def _text(path: str | Path, kind: str) -> str:
    """Reads a text file. Raises SourceError if it is missing, ConfigError if it is a directory, a device or not
    text."""
    try:
        # Checked before opening: a pipe would block, and /dev/zero has no end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _no_document(path, kind, "it is a directory or a device; name a file")
        with open(path, "rb") as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise _no_document(path, kind, f"it is larger than {LARGEST} bytes")
        return data.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise SourceError(f"{path}: no such file", location=str(path)) from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}", location=str(path)) from error
    except UnicodeDecodeError as error:
        raise _no_document(path, kind, f"it is not text in UTF-8 ({error.reason} at byte {error.start})") from error
    except ValueError as error:  # NUL in the name
        raise SourceError(f"{str(path)!r} is not a path: {error}", location=str(path)) from error


def read_table(path: str | Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Returns the rows of a CSV file with these columns in its header; cells lose the spaces around them.

    Raises SourceError if there is no such file. ConfigError names a line with too many or too few cells.
    """
    reader = csv.reader(io.StringIO(_text(path, "CSV"), newline=""), strict=True)
    header: list[str] | None = None
    rows: list[dict[str, str]] = []
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if not any(cells):
                continue
            if header is None:
                header = cells
                if missing := [name for name in columns if name not in header]:
                    raise _no_document(path, "CSV", f"its header has no column {missing[0]!r}: {', '.join(header)}")
            elif len(cells) != len(header):
                why = f"line {reader.line_num} has {len(cells)} cells, the header {len(header)}"
                raise _no_document(path, "CSV", why)
            else:
                rows.append(dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise _no_document(path, "CSV", f"line {reader.line_num}: {error}") from error
    if header is None:
        raise _no_document(path, "CSV", "it is empty")
    return rows


def read_text(path: str | Path, kind: str) -> str:
    """Returns a text file without its byte order mark. `kind` and errors are those of `read_lines`."""
    return _text(path, kind)


def read_lines(path: str | Path, kind: str) -> list[str]:
    """Returns the lines of a text file. `kind`: the expected format, for errors. Raises the errors of `read_yaml`."""
    return _text(path, kind).splitlines()


def _no_document(path: str | Path, kind: str, why: str) -> ConfigError:
    return ConfigError("", f"not a {kind} file: {why}", location=str(path))
