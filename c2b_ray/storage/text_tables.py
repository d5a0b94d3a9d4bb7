"""Reads CSV files and JSON lines as text, without a guess at types: `007` is not 7, and `NA` may be a country.

It knows files and columns, not what they mean.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.csv
from pyarrow import fs

from c2b_ray.errors import SourceError
from c2b_ray.storage import absent_bucket, refusal
from c2b_ray.storage.documents import parse_json
from c2b_ray.storage.s3 import open_input


@contextmanager
def reading(location: str, what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise SourceError(absent_bucket(location) or f"{location}: no such table") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
        raise SourceError(refusal(location, error) or f"{location} is not {what}: {error}") from error


def read_csv(location: str, filesystem: fs.FileSystem, path: str, delimiter: str) -> pa.Table:
    """Reads all columns as text: `007` is not 7, and `NA` may be a country."""
    with reading(location, "CSV"):
        with open_input(filesystem, path) as stream:
            data = bytes(stream.read())
        text = io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline="")  # decodes only the first line
        header = next(csv.reader(text, delimiter=delimiter), [])
        refuse_repeats(location, header)
        refuse_other_delimiters(location, header, delimiter)
        return pyarrow.csv.read_csv(
            io.BytesIO(data),
            parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )


def refuse_repeats(location: str, names: Sequence[str]) -> None:
    again = next((name for name in names if names.count(name) > 1), None)
    if again is not None:
        raise SourceError(f"{location}: two columns are called {again!r}; rename one")


def refuse_other_delimiters(location: str, header: Sequence[str], delimiter: str) -> None:
    other = next((mark for mark in ";\t|," if mark != delimiter and len(header) == 1 and mark in header[0]), None)
    if other is not None:
        raise SourceError(
            f"{location}: its fields are separated by {other!r}, not by {delimiter!r}; save it with commas as .csv, or "
            "with tabs as .tsv"
        )


def read_metadata(location: str, filesystem: fs.FileSystem, path: str) -> pa.Table:
    if path.endswith(".csv"):
        return read_csv(location, filesystem, path, ",")
    with reading(path, "JSON lines"), open_input(filesystem, path) as stream:
        lines = bytes(stream.read()).decode("utf-8").split("\n")  # a text in JSON may hold other line separators
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json(line) if line.strip() else None
        except ValueError as error:
            raise SourceError(f"{path}: line {number} is not JSON: {error}") from error
        if row is not None and not isinstance(row, dict):
            raise SourceError(f"{path}: line {number}: expected an object of column → value")
        rows += [row] if row is not None else []
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: pa.array([_text(row.get(name)) for row in rows], pa.string()) for name in names})


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value) if isinstance(value, bool | int | float) else None
