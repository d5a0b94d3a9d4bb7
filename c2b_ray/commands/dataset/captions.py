"""The captions of a dataset, from the source that its config names: numbered, each once, each with its label.

They are written before anything is drawn, so that a language model or captioner is called once for a dataset, however
often the build resumes.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations, product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from c2b_ray.config.dataset import Labelled
from c2b_ray.config.failures import ANY_LABEL
from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.filesystems import resolve
from c2b_ray.filesystems.patience import open_input
from c2b_ray.names import mentions, normalise
from c2b_ray.steps.dataset.captions import AT_ONCE
from c2b_ray.steps.discovery.conditions import Condition
from c2b_ray.steps.labels import TARGET, Texts, chosen, column_of, compared, one_form, spellings
from c2b_ray.steps.words import some
from c2b_ray.store import files
from c2b_ray.store.labelled import LabelledTable
from c2b_ray.store.text_tables import refuse_other_delimiters, refuse_repeats

Pairs = Iterable[tuple[str, str]]


def of_file(location: str) -> Iterator[tuple[str, str]]:
    """Yields (label, caption) of a CSV or Parquet file. Raises ConfigError, which names the row whose caption lacks its
    label."""
    row = 0
    for table in _tables_of_file(location):
        refuse_repeats(location, table.column_names)
        for name in ("label", "caption"):
            if name not in table.column_names:
                known = nearest(name, table.column_names)
                raise ConfigError("captions.file", f"{location} has no column {name!r}; {known}")
        texts = (table[name].cast(pa.string()).to_pylist() for name in ("label", "caption"))
        for label, caption in zip(*texts, strict=True):
            row += 1
            if not label or not caption or not label.strip() or not caption.strip():
                raise ConfigError("captions.file", f"{location}, row {row}: label or caption is empty")
            label, caption = unicodedata.normalize("NFC", label.strip()), " ".join(caption.split())
            if not mentions(caption, label):
                raise ConfigError(
                    "captions.file",
                    f"{location}, row {row}: the caption {caption[:200]!r} does not name its label {label!r}: a "
                    "picture of it would show something else",
                )
            yield label, caption


def _tables_of_file(location: str) -> Iterator[pa.Table]:
    filesystem, path = resolve(location)
    try:
        with files.reading(location, "file of captions"), open_input(filesystem, path) as stream:
            if location.lower().endswith(".parquet"):
                for batch in pq.ParquetFile(stream).iter_batches(AT_ONCE):
                    yield pa.Table.from_batches([batch])
                return
            as_text = pyarrow.csv.ConvertOptions(column_types={"label": pa.string(), "caption": pa.string()})
            parsed = pyarrow.csv.ParseOptions(newlines_in_values=True)
            for batch in pyarrow.csv.open_csv(stream, parse_options=parsed, convert_options=as_text):
                refuse_other_delimiters(location, batch.schema.names, ",")
                yield pa.Table.from_batches([batch])
    except pa.ArrowException as error:
        why = " ".join(str(error).split())
        hint = "; save it as UTF-8" if "invalid UTF8" in why else ""
        raise SourceError(
            f"{location}: is no CSV or Parquet file of captions: {why}{hint}", location=location
        ) from error


def hypotheses_of(run: str) -> str:
    """Returns the location of the captions of a run of `c2b failures`. Raises ConfigError where it has none."""
    location = f"{run.rstrip('/')}/hypotheses.parquet"
    if not files.exists(location):
        raise ConfigError(
            "captions.run",
            f"{run} has no hypotheses.parquet: it is no run of c2b failures, or that has not ended; run it again first",
        )
    return location


def of_run(location: str) -> Iterator[tuple[str, str]]:
    """Yields (label, caption) of the failing captions that a run of `c2b failures` confirmed."""
    table = files.read_table(hypotheses_of(location))
    rows = [row for row in table.to_pylist() if row["stage"] == "confirmation" and row["verdict"] == "failure"]
    if not rows:
        raise SourceError(
            f"{location}: its hypotheses hold no confirmed failure, so there is no caption to draw; give it a larger "
            "budget, or name captions.file",
            location=location,
        )
    for row in rows:
        yield row["label"], row["caption"]


def of_table(
    config: Labelled, table: LabelledTable, label_names: Iterable[str], missing: Counter[str] | None = None
) -> Iterator[tuple[str, str, list[int]]]:
    """Yields (label, caption, rows) of a labelled table: for each label, or for each of its combinations of values of
    `by`.

    `label_names`: the labels to read, in their order; empty: all labels of the table. `missing`: is told how many rows
    have no label, and how many of these labels have no value in a column of `by`; a row counts for the first of them.
    """
    labels = table.labels
    targets = compared(labels, TARGET)
    columns = {name: compared(labels, column_of(labels, name)) for name in config.by}
    wanted = list(label_names) or _labels_of(table)
    if missing is not None:
        missing.update(_without_value({TARGET: targets}, np.ones(len(targets), bool)))
    for label in wanted:
        of_label = targets == normalise(label)
        if missing is not None:
            missing.update(_without_value(columns, of_label))
        values = [sorted({value for value in column[of_label] if value is not None}) for column in columns.values()]
        for shown in product(*values):
            mask = of_label.copy()
            for value, column in zip(shown, columns.values(), strict=True):
                mask &= column == value
            rows = np.flatnonzero(mask).tolist()
            if rows:
                said = "".join(f", {name}: {value}" for name, value in zip(columns, shown, strict=True))
                yield label, f"a photo of {some(label)}{said}", rows


def _labels_of(table: LabelledTable) -> list[str]:
    """Returns the labels of a table, each in its most frequent spelling. Raises ConfigError for two that may or may not
    be one."""
    column = table.labels[TARGET]
    one_form([str(name) for name in column.unique().to_pylist() if name], table.field, f"column {TARGET!r}")
    return sorted(spellings(column).values())


def _without_value(columns: Mapping[str, Texts], chosen: NDArray[np.bool_]) -> Counter[str]:
    """Returns how many of the chosen rows have no value, by the first column in which they have none."""
    left, found = chosen.copy(), Counter[str]()
    for name, column in columns.items():
        lacking = left & pc.is_null(pa.array(column)).to_numpy(zero_copy_only=False)
        found[name] = int(lacking.sum())
        left &= ~lacking
    return +found


def of_conditions(pairs: Pairs, table: LabelledTable) -> Iterator[tuple[str, str, list[int]]]:
    """Yields (label, caption, rows) for a run's captions of labelled images: the images that show what the caption
    says.

    Raises SourceError where no column of this table holds what a caption says.
    """
    labels = table.labels
    targets = compared(labels, TARGET)
    columns = {name: compared(labels, name) for name in chosen(labels, None, table.field)}
    of_text: dict[str, tuple[tuple[str, str], ...]] = {}
    singles = [(name, str(value)) for name, column in columns.items() for value in set(column) if value is not None]
    kinds = [(), *((one,) for one in singles), *((a, b) for a, b in permutations(singles, 2) if a[0] != b[0])]
    for label, text in pairs:
        for values in kinds:
            of_text.setdefault(Condition(label, values).caption.text, values)
        if text not in of_text:
            raise SourceError(
                f"{table.location}: no columns say what the caption {text!r} does; is it the run's table?"
            )
        mask = np.logical_and.reduce([columns[name] == value for name, value in of_text[text]], initial=True)
        mask = np.broadcast_to(mask, len(targets))
        for name in [label] if label != ANY_LABEL else sorted({str(one) for one in targets if one is not None}):
            rows = np.flatnonzero(mask & (targets == normalise(name))).tolist()
            if rows:
                yield name, text, rows


def with_rows(pairs: Pairs) -> Iterator[tuple[str, str, list[int] | None]]:
    return ((label, caption, None) for label, caption in pairs)
