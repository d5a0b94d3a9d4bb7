"""Reads a table of predictions from a file, with lists in its rows written out. It knows formats, and nothing of what
the columns mean but which of them are lists."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from c2b_ray.errors import SourceError
from c2b_ray.filesystems import absent_bucket, refusal, resolve
from c2b_ray.filesystems.patience import open_input
from c2b_ray.models.prediction_names import is_file, kind_of

LABEL, PROBABILITY = "predicted_label", "probability"
"""The columns of a label and its probability that were lists in the table."""


def read(path: str) -> pa.Table:
    """Returns the table. Labels and files are texts: Arrow would make numbers of classes called 7 and 007, and dates of
    some files. Raises SourceError where it cannot be read."""
    try:
        system, name = resolve(path)
        with open_input(system, name) as stream:
            if name.lower().endswith(".parquet"):
                return pyarrow.parquet.read_table(stream)
            if name.lower().endswith(".csv"):
                return _csv(bytes(stream.read()))
    except UnicodeDecodeError as error:
        raise SourceError(
            f"{path}: the table of predictions is not UTF-8 ({error.reason}); save it as UTF-8"
        ) from error
    except (OSError, pa.ArrowException, csv.Error) as error:
        absent = absent_bucket(path) if isinstance(error, FileNotFoundError) else refusal(path, error)
        raise SourceError(absent or f"{path}: the table of predictions cannot be read: {error}") from error
    raise SourceError(f"{path}: expected a .csv or .parquet file")


def rows_in_footer(path: str) -> int:
    """Returns the number of rows of a Parquet file; 0 for any other, and for one that cannot be read."""
    if not path.lower().endswith(".parquet"):
        return 0
    try:
        system, name = resolve(path)
        with open_input(system, name) as stream:
            return int(pyarrow.parquet.read_metadata(stream).num_rows)
    except (OSError, pa.ArrowException):
        return 0  # `read` says why


def _csv(data: bytes) -> pa.Table:
    first = next(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")), [])
    text = {name: pa.string() for name in first if is_file(name) or kind_of(name) in ("prediction", "truth", "label")}
    convert = pyarrow.csv.ConvertOptions(column_types=text, strings_can_be_null=True, null_values=[""])
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(io.BytesIO(data), parse_options=parse, convert_options=convert)


def without_lists(path: str, table: pa.Table, labels: Sequence[str], options: Mapping[str, str]) -> pa.Table:
    """Returns the table with a row for each entry of its lists: those of labels, with those of their probabilities. A
    list of probabilities alone becomes a column for each of `labels`. Images and other columns of bytes and structs are
    left out. Raises SourceError where it is not clear what the lists hold."""
    ignored = {options.get("ignore", ""), *(name.strip() for name in options.get("ignore", "").split(","))}
    lists = [n for n in table.column_names if _is_list(table.schema.field(n).type) and n not in ignored]
    others = [n for n in table.column_names if n not in lists and not _no_value(table.schema.field(n).type)]
    if not lists:
        return table.select(others)
    of_numbers = [n for n in lists if pa.types.is_floating(table.schema.field(n).type.value_type)]
    of_labels = [n for n in lists if n not in of_numbers]
    if len(of_labels) == 1 and len(of_numbers) <= 1:
        return _written_out(path, table.select([*others, *lists]), of_labels[0], *of_numbers)
    if of_labels or len(of_numbers) > 1:
        raise SourceError(
            f"{path}: columns {', '.join(map(repr, lists))} are lists, and it is not clear which holds labels and "
            "which their probabilities; keep one of each, or leave some out with ?ignore=COLUMN"
        )
    if not labels:
        raise SourceError(
            f"{path}: column {of_numbers[0]!r} is a list of numbers in each row; name the labels in its order with "
            f"?labels=PATH (one a line), or leave it out with ?ignore={of_numbers[0]}"
        )
    return _spread(path, table, others, of_numbers[0], labels)


def _written_out(path: str, table: pa.Table, of_labels: str, of_numbers: str | None = None) -> pa.Table:
    lists = [name for name in (of_labels, of_numbers) if name is not None]
    columns: dict[str, Any] = {name: table[name].combine_chunks() for name in lists}
    counts = {name: pc.fill_null(pc.list_value_length(column), 0) for name, column in columns.items()}
    if of_numbers is not None and not counts[of_numbers].equals(counts[of_labels]):
        unequal = pc.index(pc.not_equal(counts[of_numbers], counts[of_labels]), True).as_py()
        raise SourceError(
            f"{path}: row {unequal + 1}: {of_labels!r} has {counts[of_labels][unequal]} entries, {of_numbers!r} has "
            f"{counts[of_numbers][unequal]}"
        )
    if of_numbers is None and pc.any(pc.greater(counts[of_labels], 1)).as_py():
        raise SourceError(
            f"{path}: column {of_labels!r} lists several labels in a row, and no column lists their probabilities, so "
            "that none is the answer; write the likeliest alone, or a list of probabilities beside it"
        )
    _refuse_contradiction(path, table, of_labels, of_numbers)
    rows = pc.list_parent_indices(columns[of_labels])
    kept = [n for n in table.column_names if n not in lists and kind_of(n) not in ("prediction", "probability")]
    written = {name: table[name].take(rows) for name in kept}
    written[LABEL] = pc.list_flatten(columns[of_labels])
    if of_numbers is not None:
        written[PROBABILITY] = pc.list_flatten(columns[of_numbers])
    return pa.table(written)


def _refuse_contradiction(path: str, table: pa.Table, of_labels: str, of_numbers: str | None) -> None:
    """Raises where another column says that the answer is another than the likeliest of the list."""
    said = [n for n in table.column_names if n not in (of_labels, of_numbers) and kind_of(n) == "prediction"]
    listed = zip(table[of_labels].to_pylist(), table[of_numbers or of_labels].to_pylist(), strict=True)
    likeliest = [
        labels[max(range(len(values)), key=values.__getitem__)] if labels else None for labels, values in listed
    ]
    for name in said:
        for row, value in enumerate(table[name].to_pylist()):
            if value is not None and likeliest[row] is not None and str(value) != str(likeliest[row]):
                raise SourceError(
                    f"{path}: row {row + 1}: {name!r} is {value!r}, and the likeliest of {of_labels!r} is "
                    f"{likeliest[row]!r}; leave one out with ?ignore=COLUMN"
                )


def _spread(path: str, table: pa.Table, others: Sequence[str], name: str, labels: Sequence[str]) -> pa.Table:
    column = table[name].combine_chunks()
    counts = pc.list_value_length(column)
    wrong = pc.fill_null(pc.not_equal(counts, len(labels)), True)
    if pc.any(wrong).as_py():
        row = pc.index(wrong, True).as_py()
        raise SourceError(f"{path}: row {row + 1}: {name!r} has {counts[row]} numbers, for {len(labels)} labels")
    flat = pc.list_flatten(column).to_numpy(zero_copy_only=False).reshape(len(column), len(labels))
    kept = {other: table[other] for other in others if is_file(other) or other not in labels}
    kept = {n: values for n, values in kept.items() if kind_of(n) not in ("prediction", "label", "probability")}
    return pa.table({**kept, **{label: pa.array(flat[:, i]) for i, label in enumerate(labels)}})


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _no_value(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(binary or pa.types.is_binary_view(kind) or (pa.types.is_nested(kind) and not _is_list(kind)))
