"""Tables of images with captions and attributes, one row per image; and tables of models' outputs for these images.

It returns captions and attributes as text, all at once, and the images' bytes by row. It does not know their meaning.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.labelled_rows import open_rows


class CaptionedTable:
    """The table at `location`. Raises SourceError if it cannot be read or is empty; ConfigError for a missing column.

    `field`: the config's field that names the table. `columns`: the table's names for `image`, `caption` and `key`, if
    they differ. `attributes`: the columns that are attributes.
    """

    def __init__(self, location: str, field: str, columns: Mapping[str, str], attributes: Sequence[str]) -> None:
        self.location, self.attributes = location, tuple(attributes)
        self._field, self._columns = field, dict(columns)
        self._rows = open_rows(location, f"{field}.table")
        header = self._rows.schema.names
        for attribute in attributes:
            if attribute not in header:
                hint = nearest(attribute, header)
                raise ConfigError(f"{field}.attributes", f"{location} has no column {attribute!r}; {hint}")
        if "image" not in self._columns and "image" not in header:
            raise ConfigError(
                f"{field}.table",
                f"{location} has no column 'image' ({nearest('image', header)}); expected `image` (a path relative to "
                f"the table, or bytes), or {field}.columns to say what it is called",
            )
        caption = self._columns.get("caption", "caption")
        if "caption" in self._columns and caption not in header:
            raise ConfigError(
                f"{field}.columns", f"caption: {location} has no column {caption!r}; {nearest(caption, header)}"
            )
        self._caption = caption if caption in header else None
        image_columns: dict[str, str] = {
            name: self._columns[name] for name in ("image", "key") if name in self._columns
        }
        # Images are read as from a labelled table, whose class is not used here.
        self._images = LabelledTable(location, f"{field}.table", {**image_columns, "target_class": attributes[0]})
        self._refuse_repeats()

    def __reduce__(self) -> tuple[type[CaptionedTable], tuple[str, str, dict[str, str], tuple[str, ...]]]:
        return CaptionedTable, (self.location, self._field, self._columns, self.attributes)

    def __len__(self) -> int:
        return len(self._images)

    @cached_property
    def keys(self) -> list[str]:
        """The name of each image: its key, its path, or its row if the table contains the bytes."""
        names: list[str] = self._images.keys.to_pylist()
        return names

    @cached_property
    def captions(self) -> list[list[str]] | None:
        """The captions of each image, without blank ones; None if the table has no captions.

        Raises ConfigError where texts look like lists but are not JSON, such as those that pandas writes into a CSV.
        """
        if self._caption is None:
            return None
        values = self._rows.columns([self._caption])[self._caption].to_pylist()
        if all(_looks_like_a_list(value) for value in values if _text(value) is not None):
            values = [self._listed(row, value) for row, value in enumerate(values)]
        return [_texts(value) for value in values]

    def _listed(self, row: int, value: object) -> object:
        if not isinstance(value, str) or not value.strip():
            return value
        try:
            texts = json.loads(value)
        except ValueError as error:
            raise ConfigError(
                f"{self._field}.table",
                f"{self.location}, row {row}: the captions {value[:60]!r} are no JSON list ({error}); write one, such "
                'as ["a dog", "a brown dog"], or a Parquet table',
            ) from error
        return texts

    def check_column(self, name: str, field: str) -> None:
        """Raises ConfigError for `field` if the table lacks the column."""
        if name not in self._rows.schema.names:
            raise ConfigError(
                field, f"{self.location} has no column {name!r}; {nearest(name, self._rows.schema.names)}"
            )

    def values(self, attribute: str) -> list[str | None]:
        """Returns an attribute's value for each image as text; None where it is missing."""
        return [_text(value) for value in self._rows.columns([attribute])[attribute].to_pylist()]

    def fetch(self, rows: Sequence[int]) -> pa.Table:
        """Returns the columns `key`, `bytes`, `error` of these rows, in their order."""
        return self._images.fetch(rows)

    def _refuse_repeats(self) -> None:
        twice = [name for name, count in Counter(self.keys).items() if count > 1]
        if twice:
            raise SourceError(
                f"{self.location}: the image {twice[0]!r} occurs in two rows; keep one row per image, with a list of "
                "its captions if it has several"
            )


def read_results(location: str, field: str, columns: Sequence[str], optional: Sequence[str] = ()) -> pa.Table:
    """Returns the columns of a table of results, and those of `optional` that exist. Raises ConfigError for a missing
    one."""
    rows = open_rows(location, field)
    column_names = rows.schema.names
    if missing := [name for name in columns if name not in column_names]:
        raise ConfigError(field, f"{location} has no column {missing[0]!r}; expected {', '.join(columns)}")
    table = rows.columns([*columns, *(name for name in optional if name in column_names)])
    if table["image"].null_count:
        raise ConfigError(field, f"{location}: {table['image'].null_count} row(s) name no image")
    return table.set_column(table.schema.get_field_index("image"), "image", pc.cast(table["image"], pa.string()))


def _looks_like_a_list(value: object) -> bool:
    return isinstance(value, str) and value.strip().startswith("[") and value.strip().endswith("]")


def _texts(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [text for item in values if (text := _text(item)) is not None]


def _text(value: object) -> str | None:
    if value is None or (isinstance(value, float) and value != value):
        return None
    return " ".join(str(value).split()) or None
