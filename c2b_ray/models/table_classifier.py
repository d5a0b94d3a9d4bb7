"""A table of predictions in place of a classifier, for models that cannot be shared but whose answers can.

    table:PATH.csv, table:PATH.parquet (local, or a URI such as s3://bucket/predictions.parquet)

Three shapes, told apart by their columns (`file` may also be called key, path, filename or file_name):

    file, class, probability     long; labels are sorted; a class that a file does not list has probability 0
    file, one column per label   wide, of probabilities; labels in the columns' order
    file, label                  the predicted label alone, as probability 1

Every label in the table is a label of the classifier, whatever the audit's classes. A label that no file has is
not known from a table that lists answers: `?labels=PATH` (one a line, or a JSON list) names all labels there are, in
the classifier's order. Without it they are sorted, so that a label map's indices would not be the classifier's.

Logits are natural logarithms of probabilities, those of 0 a large negative number. So softmax gives the probabilities
back, divided by their sum where a file lists its likeliest classes only. It knows keys and looks at no pixel.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from c2b_ray.errors import SourceError, SpecError
from c2b_ray.filesystems import absent_bucket, refusal, resolve
from c2b_ray.filesystems.patience import file_info, open_input
from c2b_ray.models.catalog import Spec
from c2b_ray.models.spec_options import read_labels
from c2b_ray.roles import Description, Floats, Pixels
from c2b_ray.schemas import content_id

FILE = ("file", "key", "path", "filename", "file_name")
CLASS = ("class", "label", "prediction", "predicted", "predicted_class", "predicted_label")
PROBABILITY = ("probability", "prob", "predicted_probability")

FLOOR = float(np.finfo(np.float32).tiny)
"""Replaces probability 0: its logarithm, −87, is finite, and softmax maps it back to 0."""

SMALL = 16 * 2**20
"""The largest table in bytes that is read for its description; a larger one is read where it is used."""

SMALL_ROWS = 20_000
"""Like `SMALL`, in rows of Parquet, which can hold a million answers in few bytes."""

SUM_TOLERANCE = 0.01
"""The tolerance for sums of probabilities that were rounded to two or three digits."""


class TableClassifier:
    """Predictions by key; implements `roles.Classifier`. `probabilities` is float32 (files, labels)."""

    def __init__(self, files: Sequence[str], labels: tuple[str, ...], probabilities: Floats, path: str) -> None:
        self.labels = labels
        self._logits = np.log(np.maximum(probabilities, FLOOR, dtype=np.float32))
        # Nothing is known of a file without any number; one of zeros was answered, and with none of the labels.
        self._logits[np.isnan(probabilities).all(axis=1)] = np.nan
        self._rows = {file: row for row, file in enumerate(files)}
        self._normal = {_normalised(file): row for file, row in self._rows.items()}
        if len(self._normal) < len(files):
            twice = next(f for f, row in self._rows.items() if self._normal[_normalised(f)] != row)
            raise SourceError(f"{path}: {twice!r} is listed under another spelling too")
        self.revision = content_id("table", list(files), labels, np.ascontiguousarray(self._logits).tobytes())

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Log-probabilities, float32 (keys, labels); a row of NaN for a key that the table does not list.

        A key is looked up unchanged, then as a normalised relative path (`./a//b.jpg` is `a/b.jpg`). `images` are
        ignored.
        """
        logits = np.full((len(keys), len(self.labels)), np.nan, np.float32)
        for row_number, key in enumerate(keys):
            row = self._rows.get(key)
            row = self._normal.get(_normalised(key)) if row is None else row
            if row is not None:
                logits[row_number] = self._logits[row]
        return logits


def load(spec: Spec) -> TableClassifier:
    """The predictions of a `table:` spec; SourceError names the row or column that cannot be used."""
    spec.options_among(("labels",))
    path = spec.name
    known = read_labels(spec.options["labels"]) if "labels" in spec.options else ()
    table = _table(path)
    file = _column(table, FILE)
    if file is None or table.num_columns < 2 or len(table) == 0:
        raise SourceError(f"{path}: expected rows with a column 'file' and predictions; it has {table.column_names}")
    if table[file].null_count:
        raise SourceError(f"{path}: row {_first(table[file].is_null())}: no {file}")
    files = table[file].cast(pa.string())
    label = _column(table, CLASS)
    if label is None or pa.types.is_floating(table[label].type):
        if known:
            raise SpecError(f"{spec.text}: the table has a column for each label, so `labels` has nothing to add")
        return _wide(path, files.to_pylist(), table.drop_columns([file]))
    return _long(path, files, table, label, known)


def describe(spec: Spec) -> Description | None:
    """Returns the description of a small table; None for a large one, because all of it has to be read."""
    try:
        system, name = resolve(spec.name)
        size = file_info(system, name).size
    except OSError:
        size = None
    if size is not None and (size > SMALL or _rows_in_footer(spec.name) > SMALL_ROWS):
        return None
    table = load(spec)
    return Description(table.revision, table.labels)


def _rows_in_footer(path: str) -> int:
    """Returns the number of rows of a Parquet file; 0 for any other, and for one that cannot be read."""
    if not path.lower().endswith(".parquet"):
        return 0
    try:
        system, name = resolve(path)
        with open_input(system, name) as stream:
            return int(pyarrow.parquet.read_metadata(stream).num_rows)
    except (OSError, pa.ArrowException):
        return 0  # `load` says why


def _table(path: str) -> pa.Table:
    try:
        system, name = resolve(path)
        with open_input(system, name) as stream:
            if name.lower().endswith(".parquet"):
                return pyarrow.parquet.read_table(stream)
            if name.lower().endswith(".csv"):
                return _csv(stream)
    except (OSError, pa.ArrowException) as error:
        absent = absent_bucket(path) if isinstance(error, FileNotFoundError) else refusal(path, error)
        raise SourceError(absent or f"{path}: the table of predictions cannot be read: {error}") from error
    raise SourceError(f"{path}: expected a .csv or .parquet file")


def _csv(stream: Any) -> pa.Table:
    # Names stay text: Arrow would make numbers of classes called 7 and 007, and dates of some files.
    text = dict.fromkeys((*FILE, *CLASS), pa.string())
    convert = pyarrow.csv.ConvertOptions(column_types=text, strings_can_be_null=True, null_values=[""])
    return pyarrow.csv.read_csv(stream, convert_options=convert)


def _wide(path: str, files: list[str], columns: pa.Table) -> TableClassifier:
    for name in columns.column_names:
        kind = columns[name].type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise SourceError(f"{path}: column {name!r} is {kind}, expected probabilities")
    values = [columns[name].cast(pa.float32()).to_numpy(zero_copy_only=False) for name in columns.column_names]
    probabilities = np.stack(values, axis=1)
    _check_probabilities(path, probabilities)
    _check_sums(path, files, probabilities)
    seen: dict[str, int] = {}
    for row, file in enumerate(files, 1):
        if seen.setdefault(file, row) != row:
            raise SourceError(f"{path}: row {row}: {file!r} is there already, in row {seen[file]}")
    return TableClassifier(files, tuple(columns.column_names), probabilities, path)


def _long(path: str, files: pa.ChunkedArray, table: pa.Table, label: str, known: Sequence[str]) -> TableClassifier:
    classes = table[label].cast(pa.string())
    if classes.null_count:
        raise SourceError(f"{path}: row {_first(classes.is_null())}: no {label}")
    probability = _column(table, PROBABILITY)
    probabilities_of_answers = np.ones(len(table), np.float32)
    if probability is not None:
        try:
            probabilities_of_answers = table[probability].cast(pa.float32()).to_numpy(zero_copy_only=False)
        except pa.ArrowException as error:
            raise SourceError(f"{path}: column {probability!r}: {error}") from error
    _check_probabilities(path, probabilities_of_answers[:, None])
    names = files.combine_chunks().dictionary_encode()
    labels = tuple(dict.fromkeys([*known, *sorted(pc.unique(classes).to_pylist())]))
    rows = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    columns = pc.index_in(classes, value_set=pa.array(labels, pa.string())).to_numpy().astype(np.int64)
    cells = rows * len(labels) + columns
    # One answer per file where no probability comes with it, else one per file and class.
    _check_distinct(path, cells if probability is not None else rows, files, classes)
    probabilities = np.zeros((len(names.dictionary), len(labels)), np.float32)
    probabilities[rows, columns] = probabilities_of_answers
    _check_sums(path, names.dictionary.to_pylist(), probabilities)
    return TableClassifier(names.dictionary.to_pylist(), labels, probabilities, path)


def _check_distinct(path: str, cells: NDArray[np.int64], files: pa.ChunkedArray, classes: pa.ChunkedArray) -> None:
    _, firsts = np.unique(cells, return_index=True)
    if len(firsts) < len(cells):
        row = int(np.setdiff1d(np.arange(len(cells)), firsts)[0])
        earlier = int(np.flatnonzero(cells == cells[row])[0])
        what = f"{files[row].as_py()!r}, {classes[row].as_py()!r}"
        raise SourceError(f"{path}: row {row + 1}: {what} is there already, in row {earlier + 1}")


def _check_probabilities(path: str, values: NDArray[np.float32]) -> None:
    bad = ((values < 0) | (values > 1 + 1e-4)).any(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        outside = [float(v) for v in values[row] if v < 0 or v > 1 + 1e-4]
        raise SourceError(f"{path}: row {row + 1}: {outside[0]:g} is no probability (logits? give their softmax)")


def _check_sums(path: str, files: Sequence[str], probabilities: NDArray[np.float32]) -> None:
    """Checks the sums of probabilities: less than 1 means that only the likeliest are listed; more than 1 is no
    distribution."""
    over = np.flatnonzero(np.nansum(probabilities, axis=1, dtype=np.float64) > 1 + SUM_TOLERANCE)
    if len(over):
        whole = np.nansum(probabilities[over[0]], dtype=np.float64)
        raise SourceError(
            f"{path}: the probabilities of {files[over[0]]!r} sum to {whole:.4g}, more than 1 (scores? give their "
            "softmax)"
        )


def _column(table: pa.Table, names: Sequence[str]) -> str | None:
    return next((name for name in names if table.column_names.count(name) == 1), None)


def _first(mask: pa.ChunkedArray) -> int:
    """Returns the 1-based number of the first row, not counting the header, where `mask` holds."""
    return int(pc.index(mask, True).as_py()) + 1


def _normalised(key: str) -> str:
    return posixpath.normpath(key.replace("\\", "/")).lstrip("/")
