"""Reads a table of predictions from a file, with lists in its rows written out. It knows formats, and nothing of what
the columns mean but which of them are lists."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from c2b_ray.errors import SourceError
from c2b_ray.names import without_invisible
from c2b_ray.roles import Floats
from c2b_ray.storage import absent_bucket, refusal, resolve
from c2b_ray.storage.s3 import open_input

# What the name of a column in a table of predictions says that it holds: one list of words, for messages and
# choice.


Kind = Literal["prediction", "truth", "label", "probability", "no label", "other"]


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


FILES = _set(
    "file files key path filename filenames filepath imagefile imagefilename imagepath imagename image img imgfile "
    "imgpath imgname relpath relativepath fullpath photo picture"
)
"""Names of the column of files, without case, spaces and underscores."""

PREDICTED = _set(
    "pred preds predicted prediction predictions predict predlabel predclass ypred yhat hat output outputs answer "
    "answers answered guess guessed inferred inference top1 top5 argmax response responses reply assigned detected "
    "detection classified classification estimate estimated hypothesis"
)
TRUE = _set(
    "true truth ytrue gt groundtruth ground gold golden actual actuals target targets targetclass annotation "
    "annotations annotated annotator expected reference real manual oracle truelabel trueclass"
)
CLASS = _set("label labels class classes classname labelname category categories cls tag y")
PROBABLE = _set(
    "prob probs probability probabilities proba probas confidence confidences conf score scores softmax certainty "
    "likelihood"
)
OUTCOMES = _set("correct iscorrect right wrong match matches hit error is")
"""With these a column tells whether an answer was right, and not what it was."""

NO_LABELS = _set(
    "split fold subset partition set phase dataset id ids imageid sampleid rowid uid uuid row rank index idx number no "
    "num n count width height size area bytes filesize depth channels aspect loss entropy margin latency time "
    "seconds ms duration runtime timestamp date datetime year month day correct iscorrect right wrong match hit url "
    "link caption text description note notes comment source model classifier version epoch step seed md5 sha1 sha256 "
    "hash phash weight age lat lon latitude longitude x1 y1 x2 y2 xmin ymin xmax ymax bbox box accuracy acc "
    "uncertainty brightness blur contrast sharpness temperature"
)
"""Names that a label hardly has, without case, spaces and underscores."""

PANDAS = re.compile(r"^$|^unnamed:?[ _]?\d+(_level_\d+)?$|^__index_level_\d+__$", re.IGNORECASE)
"""Names of the row numbers that pandas writes where nobody asks for them."""


def form_of(name: str) -> str:
    """Returns the name in lower case without spaces, underscores, hyphens and dots."""
    return "".join(_words(name))


def kind_of(name: str) -> Kind:
    """Returns what a column of texts or whole numbers is by its name. Columns that tell whether an answer was right are
    no labels, nor are probabilities of the true class."""
    words = set(_words(name)) | {form_of(name)}
    if words & OUTCOMES:
        return "no label" if not words & CLASS else "truth"
    if words & PROBABLE:
        return "no label" if words & TRUE else "probability"
    if words & PREDICTED or {"top", "1"} <= words:
        return "prediction"
    if words & TRUE:
        return "truth"
    if words & CLASS:
        return "label"
    return "no label" if form_of(name) in NO_LABELS or PANDAS.match(name.strip()) else "other"


def is_file(name: str) -> bool:
    return form_of(name) in FILES


def is_suspect(name: str) -> bool:
    """Returns whether a column of numbers from 0 to 1 has a name that a label hardly has: one of `NO_LABELS`, or of
    words for predictions, truths and probabilities alone. One with a number, such as `label_0`, may be a label's."""
    if form_of(name) in NO_LABELS | FILES or PANDAS.match(name.strip()):
        return True
    known_words = (PREDICTED | TRUE | CLASS | PROBABLE | OUTCOMES | {"max", "model", "classifier", "image", "top"}) - {
        "y"
    }
    return not re.search(r"\d$", name.strip()) and set(_words(name)) <= known_words


def _words(name: str) -> list[str]:
    text = unicodedata.normalize("NFC", without_invisible(name))
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)  # predictedLabel
    text = re.sub(r"(?<=[^\W\d])(?=\d+$)", " ", text) if not re.search(r"(?i)top\d$|md5$|sha\d+$", text) else text
    return [word for word in re.split(r"[\W_]+", text.lower()) if word]


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
        cause = absent_bucket(path) if isinstance(error, FileNotFoundError) else refusal(path, error)
        raise SourceError(cause or f"{path}: the table of predictions cannot be read: {error}") from error
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


def without_lists(
    path: str, table: pa.Table, labels: Sequence[str], options: Mapping[str, str], scores: bool = False
) -> pa.Table:
    """Returns the table with a row for each entry of its lists: those of labels, with those of their probabilities. A
    list of probabilities alone becomes a column for each of `labels`. Images and other columns of bytes and structs are
    left out. `scores`: whether a row may have several labels, or none, without probabilities: each
    becomes a column of 0 and 1. Raises SourceError where it is not clear what the lists hold."""
    ignored = {options.get("ignore", ""), *(name.strip() for name in options.get("ignore", "").split(","))}
    lists = [n for n in table.column_names if _is_list(table.schema.field(n).type) and n not in ignored]
    other_columns = [n for n in table.column_names if n not in lists and not _no_value(table.schema.field(n).type)]
    if not lists:
        return table.select(other_columns)
    of_numbers = [n for n in lists if pa.types.is_floating(table.schema.field(n).type.value_type)]
    of_labels = [n for n in lists if n not in of_numbers]
    if scores and len(of_labels) == 1 and not of_numbers:
        return _marked(table, other_columns, of_labels[0], labels)
    if len(of_labels) == 1 and len(of_numbers) <= 1:
        return _written_out(path, table.select([*other_columns, *lists]), of_labels[0], *of_numbers)
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
    return _spread(path, table, other_columns, of_numbers[0], labels)


def _marked(table: pa.Table, others: Sequence[str], name: str, labels: Sequence[str]) -> pa.Table:
    """Returns the table with a column of 0 and 1 for each label in place of the lists of labels."""
    rows = table[name].to_pylist()
    every = dict.fromkeys([*labels, *sorted({str(label) for row in rows for label in row or ()})])
    columns = {
        label: pa.array([None if row is None else float(label in map(str, row)) for row in rows]) for label in every
    }
    return pa.table({**{other: table[other] for other in others}, **columns})


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
    names = [n for n in table.column_names if n not in lists and kind_of(n) not in ("prediction", "probability")]
    written = {name: table[name].take(rows) for name in names}
    written[LABEL] = pc.list_flatten(columns[of_labels])
    if of_numbers is not None:
        written[PROBABILITY] = pc.list_flatten(columns[of_numbers])
    return pa.table(written)


def _refuse_contradiction(path: str, table: pa.Table, of_labels: str, of_numbers: str | None) -> None:
    """Raises where another column says that the answer is another than the likeliest of the list."""
    predicted_columns = [
        n for n in table.column_names if n not in (of_labels, of_numbers) and kind_of(n) == "prediction"
    ]
    lists = zip(table[of_labels].to_pylist(), table[of_numbers or of_labels].to_pylist(), strict=True)
    likeliest = [
        labels[max(range(len(values)), key=values.__getitem__)] if labels else None for labels, values in lists
    ]
    for name in predicted_columns:
        for row, value in enumerate(table[name].to_pylist()):
            if value is not None and likeliest[row] is not None and str(value) != str(likeliest[row]):
                raise SourceError(
                    f"{path}: row {row + 1}: {name!r} is {value!r}, and the likeliest of {of_labels!r} is "
                    f"{likeliest[row]!r}; leave one out with ?ignore=COLUMN"
                )


def _spread(path: str, table: pa.Table, other_columns: Sequence[str], name: str, labels: Sequence[str]) -> pa.Table:
    column = table[name].combine_chunks()
    counts = pc.list_value_length(column)
    wrong = pc.fill_null(pc.not_equal(counts, len(labels)), True)
    if pc.any(wrong).as_py():
        row = pc.index(wrong, True).as_py()
        raise SourceError(f"{path}: row {row + 1}: {name!r} has {counts[row]} numbers, for {len(labels)} labels")
    flat = pc.list_flatten(column).to_numpy(zero_copy_only=False).reshape(len(column), len(labels))
    columns = {
        column_name: table[column_name]
        for column_name in other_columns
        if is_file(column_name) or column_name not in labels
    }
    columns = {n: values for n, values in columns.items() if kind_of(n) not in ("prediction", "label", "probability")}
    return pa.table({**columns, **{label: pa.array(flat[:, i]) for i, label in enumerate(labels)}})


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _no_value(kind: pa.DataType) -> bool:
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(binary or pa.types.is_binary_view(kind) or (pa.types.is_nested(kind) and not _is_list(kind)))


# What is in a column of a table of predictions: numbers, probabilities, texts. It knows no names.


def numbers_of(column: pa.ChunkedArray) -> Floats | None:
    """Returns a column's numbers as float64, NaN where there is none; None where it holds anything else."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_boolean(kind) or pa.types.is_temporal(kind) or pa.types.is_nested(kind):
        return None
    if not pa.types.is_null(kind) and column.null_count == len(column) and is_text(column):
        return None
    try:
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    except pa.ArrowException:
        return None


def texts_of(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns labels as texts. Whole numbers that pandas has made fractions (7.0) are whole numbers (7) again."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    column = column.cast(kind)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column).cast(pa.int64())
    return column.cast(pa.string())


def is_text(column: pa.ChunkedArray) -> bool:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    return bool(text or pa.types.is_integer(kind))


def is_number(value: object) -> bool:
    try:
        return bool(np.isfinite(float(str(value))))
    except ValueError:
        return False


def in_unit(values: Floats) -> bool:
    numbers = values[~np.isnan(values)]
    return bool(((numbers >= 0) & (numbers <= 1 + 1e-4)).all())


def whole(values: Floats) -> bool:
    numbers = values[~np.isnan(values)]
    return bool((np.isinf(numbers) | (numbers == np.floor(numbers))).all())


def a_fraction(values: Floats) -> float:
    return float(values[~np.isnan(values) & (values != np.floor(values))][0])


def off(sums: Floats) -> float:
    return float(np.abs(sums - 1).max(initial=0.0))
