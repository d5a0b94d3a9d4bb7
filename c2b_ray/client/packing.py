"""Packs labelled images into one Parquet table, whatever form they have: the form in which an endpoint takes them.

    photos/bus/1.jpg …          a folder of classes, with metadata.csv or without
    labels.csv, photos/1.jpg    a table, and the images that it names
        → one table: the same rows and columns, with the images' bytes beside their paths

The packed table has the keys, labels and revision of the images as they lie here, so that an audit of it draws the same
images and gives the same results. The same images always give the same bytes, which are sent once. A row whose image
cannot be read stays, without bytes: it is an error there as it is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from c2b_ray.errors import SourceError
from c2b_ray.storage.labelled import IMAGE, TARGET, LabelledTable, class_names
from c2b_ray.storage.labelled_rows import LABEL, PACKED, Rows, open_rows

ROWS_AT_ONCE = 64
"""Images that are read, and written as one row group: few, for photographs of 10 MB each."""
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""The form of images in Hugging Face datasets."""
Progress = Callable[[str, int, int], None]
"""Is told what is done, how much of it, and of how much."""


@dataclass(frozen=True)
class Images:
    """Labelled images of this machine. `location`: a folder or table. `config_field`: the config's field that names it,
    for errors. `columns`: its names for `image`, `target_class` and `key`, if they differ; several names for
    `target_class` where each class has a column. `root`: the folder that its paths lie below, if that is not its own.
    `has_classes`: whether it must have a column of classes."""

    location: str
    config_field: str
    columns: Mapping[str, str | list[str]] = field(default_factory=dict)
    root: str | None = None
    has_classes: bool = True

    def open(self) -> LabelledTable:
        """Raises SourceError or ConfigError as an audit does that reads them."""
        columns = dict(self.columns)
        if not self.has_classes and TARGET not in columns:  # which nobody looks at
            names = open_rows(self.location, self.config_field).schema.names
            columns[TARGET] = next((name for name in names if name != columns.get(IMAGE, IMAGE)), IMAGE)
        return LabelledTable(self.location, self.config_field, columns, self.root)

    def is_packed(self) -> bool:
        """Returns whether they are one Parquet file that holds the images themselves, and is sent as it is."""
        is_file = self.location.lower().endswith((".parquet", ".pq")) and Path(self.location).is_file()
        return is_file and self.root is None and next(self.open().paths(), None) is None

    def bytes(self) -> int:
        """Returns about how many bytes the images have."""
        table, total = self.open(), 0
        for start in range(0, len(table), ROWS_AT_ONCE):
            ids = range(start, min(start + ROWS_AT_ONCE, len(table)))
            total += sum(Path(path).stat().st_size for path in table.locations(ids) if path is not None)
        here = Path(self.location)
        files = [here] if here.is_file() else [one for one in here.rglob("*") if one.suffix in (".parquet", ".arrow")]
        return total + sum(one.stat().st_size for one in files)


def pack(images: Images, file: Path, told: Progress) -> None:
    """Writes the packed table to `file`. Raises SourceError where no image can be read."""
    table, rows = images.open(), open_rows(images.location, images.config_field)
    image, target = table.column_names[IMAGE], table.column_names[TARGET]
    # Only a folder may call its classes `label`, so a table has to call them by the name that every table has.
    renamed = {LABEL: TARGET} if target == LABEL and not _says_label(images, rows) else {}
    schema = pa.schema(
        [one.with_name(renamed.get(one.name, one.name)) for one in rows.schema if one.name != image]
        + [pa.field(image, _IMAGE)],
        {**(rows.schema.metadata or {}), PACKED: str(rows.size).encode()},
    )
    told(images.location, 0, len(table))
    readable, first_error = 0, ""
    options = {"compression": "none", "use_dictionary": [one.name for one in schema if one.name != image]}
    with pq.ParquetWriter(file, schema, **options) as writer:
        done = 0
        for part in _parts(rows, [one.name for one in rows.schema if one.name != image], len(table)):
            ids = range(done, done + len(part))
            _, data, errors = table.read(ids)
            readable += sum(one is not None for one in data)
            first_error = first_error or next((one for one in errors if one), "")
            paths = _paths(table, rows, image, ids)
            pictures = pa.StructArray.from_arrays(
                [pa.array(data, pa.binary()), pa.array(paths, pa.string())], fields=list(_IMAGE)
            )
            writer.write_table(
                part.rename_columns(schema.names[:-1]).append_column(schema.field(image), pictures).cast(schema)
            )
            done += len(part)
            told(images.location, done, len(table))
    if not readable:
        raise SourceError(f"{images.location}: none of its {len(table):,} images can be read: {first_error}")


def _parts(rows: Rows, names: list[str], count: int) -> Iterator[pa.Table]:
    """Yields the columns `names`, some rows at a time; tables without columns where there are none."""
    if not names:
        yield from (
            pa.table({"": pa.nulls(min(ROWS_AT_ONCE, count - at))}).select([]) for at in range(0, count, ROWS_AT_ONCE)
        )
        return
    for table in rows.each(names):
        for start in range(0, len(table), ROWS_AT_ONCE):
            yield table.slice(start, ROWS_AT_ONCE)


def _says_label(images: Images, rows: Rows) -> bool:
    return TARGET in images.columns or class_names(rows.schema, LABEL) is not None


def _paths(table: LabelledTable, rows: Rows, image: str, ids: range) -> list[str | None]:
    """Returns the path of each image as the table writes it; None where it has none."""
    values = rows.images(image, ids) if table.has_paths else [None] * len(ids)
    return [value.get("path") if isinstance(value, dict) else value for value in values]
