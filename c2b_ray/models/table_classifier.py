"""A table of predictions in place of a classifier, for models that cannot be shared but whose answers can.

    table:PATH.csv, table:PATH.parquet (local, or a URI such as s3://bucket/predictions.parquet)

Three shapes, told apart by their columns (`prediction_columns`):

    file, prediction, probability   long; labels are sorted; a class that a file does not list has probability 0
    file, one column per label      wide, of probabilities; labels in the columns' order
    file, prediction                the predicted label alone, as probability 1

With `?head=sigmoid` each probability is of a label on its own: a file may have several labels, in as many rows of
`file, prediction`, or none, and nothing need sum to 1. One column of probabilities is one label, against all else.

In Parquet, a row may hold a list of the likeliest labels and one of their probabilities, or, with `?labels=PATH`, a
list of all labels' probabilities. Options name columns where names do not: file, prediction, probability, and ignore
for those that are no labels; and head (`models.heads`).

Every label in the table is a label of the classifier, whatever the audit's classes. A label that no file has is
not known from a table that lists answers: `?labels=PATH` (one a line, or a JSON list) names all labels there are, in
the classifier's order. Without it they are sorted, so that a label map's indices would not be the classifier's.

Logits are natural logarithms of probabilities, those of 0 a large negative number. So softmax gives the probabilities
back, divided by their sum where a file lists its likeliest classes only. It knows keys and looks at no pixel.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from c2b_ray.errors import SourceError, SpecError
from c2b_ray.models.catalog import Spec
from c2b_ray.models.heads import Outputs, outputs_of, stated_head
from c2b_ray.models.output_kinds import OutputKind
from c2b_ray.models.prediction_columns import PredictionColumns, choose
from c2b_ray.models.prediction_files import read, rows_in_footer, texts_of, without_lists
from c2b_ray.models.spec_options import options_of, read_labels
from c2b_ray.names import repeated_names, seen
from c2b_ray.roles import Description, Floats, ModelFact, Pixels
from c2b_ray.storage import resolve
from c2b_ray.storage.s3 import file_info
from c2b_ray.tables import content_id

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

    def __init__(
        self,
        files: Sequence[str],
        labels: tuple[str, ...],
        probabilities: Floats,
        path: str,
        facts: tuple[ModelFact, ...] = (),
        outputs: Outputs | None = None,
    ) -> None:
        """`outputs`: of probabilities of each label on its own; None where those of a row are a distribution."""
        outputs, scores = outputs or Outputs(labels), outputs is not None
        self.labels, self.head, self.facts = outputs.labels, outputs.head, (*facts, *outputs.facts)
        if scores:
            self._logits = outputs.logits(OutputKind("probabilities", path, scores=True).as_logits(probabilities))
        else:
            self._logits = np.log(np.maximum(probabilities, FLOOR, dtype=np.float32))
        # Nothing is known of a file without any number; one of zeros was answered, and with none of the labels.
        self._logits[np.isnan(probabilities).all(axis=1)] = np.nan
        self._rows = {file: row for row, file in enumerate(files)}
        self._normal = {_normalised(file): row for file, row in self._rows.items()}
        if len(self._normal) < len(files):
            duplicate = next(f for f, row in self._rows.items() if self._normal[_normalised(f)] != row)
            raise SourceError(f"{path}: {duplicate!r} is listed under another spelling too")
        contents = np.ascontiguousarray(self._logits).tobytes()
        self.revision = content_id("table", list(files), self.labels, contents, *outputs.identity)

    def logits(self, images: Sequence[Pixels], keys: Sequence[str]) -> Floats:
        """Log-probabilities, float32 (keys, labels); a row of NaN for a key that the table does not list.

        A key is looked up unchanged, then as a normalised relative path (`./a//b.jpg` is `a/b.jpg`). `images` are
        ignored.
        """
        logits = np.full((len(keys), len(self.labels)), np.nan, np.float32)
        for row_number, key in enumerate(keys):
            row = self.row_of(key)
            if row is not None:
                logits[row_number] = self._logits[row]
        return logits

    @property
    def files(self) -> Collection[str]:
        """The files that the table lists, as it writes them."""
        return self._rows.keys()

    def row_of(self, key: str) -> int | None:
        """Returns the number of the file `key` among `files`; None where the table does not list it."""
        row = self._rows.get(key)
        return self._normal.get(_normalised(key)) if row is None else row

    def likeliest(self) -> NDArray[np.int64]:
        """Returns the position of each file's likeliest label, −1 where none is, int64 (files,)."""
        maxima = self._logits.max(axis=1)
        single = (self._logits == maxima[:, None]).sum(axis=1) == 1  # NaN equals nothing
        return np.where(single, self._logits.argmax(axis=1), -1)


def load(spec: Spec) -> TableClassifier:
    """The predictions of a `table:` spec; SourceError names the row or column that cannot be used."""
    spec.options_among(options_of("classifier", "table"))
    path = spec.name
    label_names = read_labels(spec.options["labels"]) if "labels" in spec.options else ()
    scores = stated_head(spec) == "sigmoid"
    table = without_lists(path, read(path), label_names, spec.options, scores)
    columns = choose(path, table, spec.options, label_names, scores)
    if table[columns.file].null_count:
        raise SourceError(f"{path}: row {_first(table[columns.file].is_null())}: no {columns.file}")
    files = table[columns.file].cast(pa.string())
    facts = _facts(path, columns)
    if columns.answer is not None:
        return _long(spec, files, table, columns, label_names, facts)
    if label_names and set(label_names) != set(columns.labels):
        raise SpecError(
            f"{spec.text}: the table has a column for each label, and `labels` lists others, such as "
            f"{next(iter(set(label_names) ^ set(columns.labels)))!r}"
        )
    return _wide(spec, files.to_pylist(), table.select(columns.labels), facts)


def _facts(path: str, chosen: PredictionColumns) -> tuple[ModelFact, ...]:
    """Returns which column holds what, for a person."""
    count = len(chosen.labels)
    columns = (
        f"the likeliest of {count} columns of labels" if count > 1 else f"column {chosen.labels[0]!r}" if count else ""
    )
    answers = f"column {chosen.answer!r}" if chosen.answer else columns
    facts = [
        ModelFact("files", f"column {chosen.file!r}", path, option="file"),
        ModelFact("answers", answers, path, assumed=chosen.assumed, option="prediction"),
    ]
    if chosen.answer:
        description = f"column {chosen.probability!r}" if chosen.probability else "1 each: the table has none"
        facts.append(ModelFact("probabilities", description, path, option="probability"))
    if chosen.aside:
        description = ", ".join(f"{name!r} ({reason})" for name, reason in chosen.aside.items())
        facts.append(ModelFact("columns not used", description, path, option="ignore"))
    return tuple(facts)


def describe(spec: Spec) -> Description | None:
    """Returns the description of a small table; None for a large one, because all of it has to be read."""
    try:
        system, name = resolve(spec.name)
        size = file_info(system, name).size
    except OSError:
        size = None
    if size is not None and (size > SMALL or rows_in_footer(spec.name) > SMALL_ROWS):
        return None
    table = load(spec)
    return Description(table.revision, table.labels, head=table.head, facts=table.facts)


def _scores_of(spec: Spec, labels: Sequence[str]) -> Outputs | None:
    """Returns what the table's labels are where each is on its own; None where they exclude each other."""
    if stated_head(spec) != "sigmoid":
        return None
    return outputs_of(replace(spec, options={"head": "sigmoid"}), len(labels), labels)  # named already


def _wide(spec: Spec, files: list[str], columns: pa.Table, facts: tuple[ModelFact, ...]) -> TableClassifier:
    path, outputs = spec.name, _scores_of(spec, columns.column_names)
    values = [columns[name].cast(pa.float32()).to_numpy(zero_copy_only=False) for name in columns.column_names]
    probabilities = np.stack(values, axis=1)
    _check_probabilities(path, probabilities)
    if outputs is None:
        _check_sums(path, files, probabilities)
    row_of_file: dict[str, int] = {}
    for row, file in enumerate(files, 1):
        if row_of_file.setdefault(file, row) != row:
            raise SourceError(f"{path}: row {row}: {file!r} is there already, in row {row_of_file[file]}")
    return TableClassifier(files, tuple(columns.column_names), probabilities, path, facts, outputs)


def _long(
    spec: Spec,
    files: pa.ChunkedArray,
    table: pa.Table,
    selected: PredictionColumns,
    label_names: Sequence[str],
    facts: tuple[ModelFact, ...],
) -> TableClassifier:
    assert selected.answer is not None
    path, scores = spec.name, stated_head(spec) == "sigmoid"
    classes = texts_of(table[selected.answer])
    if classes.null_count:
        raise SourceError(f"{path}: row {_first(classes.is_null())}: no {selected.answer}")
    probability = selected.probability
    probabilities_of_answers = np.ones(len(table), np.float32)
    if probability is not None:
        probabilities_of_answers = table[probability].cast(pa.float32()).to_numpy(zero_copy_only=False)
    _check_probabilities(path, probabilities_of_answers[:, None])
    names = files.combine_chunks().dictionary_encode()
    classes, labels = _as_labels(path, classes, label_names)
    rows = names.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    columns = pc.index_in(classes, value_set=pa.array(labels, pa.string())).to_numpy().astype(np.int64)
    cells = rows * len(labels) + columns
    # One answer per file where no probability comes with it, else one per file and class.
    _check_distinct(path, cells if probability is not None or scores else rows, files, classes)
    probabilities = np.zeros((len(names.dictionary), len(labels)), np.float32)
    probabilities[rows, columns] = probabilities_of_answers
    listed = names.dictionary.to_pylist()
    if not scores:
        _check_sums(path, listed, probabilities)
    return TableClassifier(listed, labels, probabilities, path, facts, _scores_of(spec, labels))


def _as_labels(
    path: str, classes: pa.ChunkedArray, label_names: Sequence[str]
) -> tuple[pa.ChunkedArray, tuple[str, ...]]:
    """Returns the answers in one spelling each, and the labels: those that are known, then all others, sorted. Names
    that look the same are one; those that differ in case may be two, and are refused where a class may be either."""
    if repeated := repeated_names(label_names, seen):
        name, numbers = label_names[repeated[0][0]], " and ".join(str(position + 1) for position in repeated[0])
        raise SourceError(
            f"{path}: `labels` lists {name!r} more than once ({numbers}), so that an answer does not tell which is "
            "meant; give each label a name of its own there and in the table"
        )
    by_frequency = sorted(
        pc.value_counts(classes).to_pylist(),
        key=lambda row: (row["values"] != seen(row["values"]), -row["counts"], row["values"]),
    )
    spelling_of = {seen(name): name for name in label_names}
    of_answer = {row["values"]: spelling_of.setdefault(seen(row["values"]), row["values"]) for row in by_frequency}
    written = classes.combine_chunks().dictionary_encode()
    names = pa.array([of_answer[name] for name in written.dictionary.to_pylist()], pa.string())
    labels = tuple(dict.fromkeys([*label_names, *sorted(of_answer.values())]))
    return pa.chunked_array([names.take(written.indices)]), labels


def _check_distinct(path: str, cells: NDArray[np.int64], files: pa.ChunkedArray, classes: pa.ChunkedArray) -> None:
    _, first_rows = np.unique(cells, return_index=True)
    if len(first_rows) < len(cells):
        row = int(np.setdiff1d(np.arange(len(cells)), first_rows)[0])
        earlier = int(np.flatnonzero(cells == cells[row])[0])
        pair = f"{files[row].as_py()!r}, {classes[row].as_py()!r}"
        raise SourceError(f"{path}: row {row + 1}: {pair} is there already, in row {earlier + 1}")


def _check_probabilities(path: str, values: NDArray[np.float32]) -> None:
    bad = ((values < 0) | (values > 1 + 1e-4)).any(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        out_of_range = [float(v) for v in values[row] if v < 0 or v > 1 + 1e-4]
        raise SourceError(f"{path}: row {row + 1}: {out_of_range[0]:g} is no probability (logits? give their softmax)")


def _check_sums(path: str, files: Sequence[str], probabilities: NDArray[np.float32]) -> None:
    """Checks the sums of probabilities: less than 1 means that only the likeliest are listed; more than 1 is no
    distribution."""
    too_large = np.flatnonzero(np.nansum(probabilities, axis=1, dtype=np.float64) > 1 + SUM_TOLERANCE)
    if len(too_large):
        total = np.nansum(probabilities[too_large[0]], dtype=np.float64)
        raise SourceError(
            f"{path}: the probabilities of {files[too_large[0]]!r} sum to {total:.4g}, more than 1 (scores? give their "
            "softmax)"
        )


def _first(mask: pa.ChunkedArray) -> int:
    """Returns the 1-based number of the first row, not counting the header, where `mask` holds."""
    return int(pc.index(mask, True).as_py()) + 1


def _normalised(key: str) -> str:
    """Returns the key as a path below a folder, whatever the separators, and its accents in one of Unicode's forms."""
    return posixpath.normpath(unicodedata.normalize("NFC", key).replace("\\", "/")).lstrip("/")
