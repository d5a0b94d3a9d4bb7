"""Writes annotated images into one labelled Parquet table, which an audit reads. It knows files, not formats."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from c2b_ray.errors import ImageError, SourceError
from c2b_ray.storage.confined import MAX_BYTES, Folder

PRESENT, ABSENT = "present", "absent"
AT_ONCE = 256


@dataclass(frozen=True)
class Annotated:
    """Images by file, below `root`, their classes, and by attribute what is known about each: present, absent, or None.

    `label_map`: class → indices of a classifier's labels, where the annotations contain them. `missing`: the number of
    annotated images that do not exist, where that is no error.
    """

    root: Path
    keys: list[str]
    paths: list[Path]
    classes: list[str]
    attributes: Mapping[str, Sequence[str | None]]
    label_map: dict[str, list[int | str]] = field(default_factory=dict)
    missing: int = 0

    def some(self, rows: Sequence[int]) -> Annotated:
        return Annotated(
            self.root,
            [self.keys[row] for row in rows],
            [self.paths[row] for row in rows],
            [self.classes[row] for row in rows],
            {name: [values[row] for row in rows] for name, values in self.attributes.items()},
            self.label_map,
            self.missing,
        )

    def at_most(self, images: int | None, seed: int) -> Annotated:
        """Returns at most `images` of each class, drawn at random, in the same order."""
        if images is None:
            return self
        groups: dict[str, list[int]] = defaultdict(list)
        for row, name in enumerate(self.classes):
            groups[name].append(row)
        random = np.random.default_rng(seed)
        kept_rows = [
            row
            for rows in groups.values()
            for row in (rows if len(rows) <= images else random.choice(rows, images, replace=False).tolist())
        ]
        return self.some(sorted(kept_rows))

    def write(self, location: Path) -> None:
        """Writes one Parquet file with the images' bytes; it is whole or absent."""
        location.parent.mkdir(parents=True, exist_ok=True)
        unfinished = location.with_suffix(".unfinished")
        with pq.ParquetWriter(unfinished, self._schema()) as writer:
            for table in self._tables():
                writer.write_table(table)
        unfinished.replace(location)

    def written(self, location: Path) -> bool:
        """Returns whether the file holds these images with these labels; their bytes are not compared."""
        names = [name for name in self._schema().names if name != "image"]
        columns = {"key": self.keys, "target_class": self.classes, **self.attributes}
        stored_names = pq.read_schema(location).names
        return set(names) == set(stored_names) - {"image"} and pq.read_table(location, columns=names).equals(
            pa.table({name: pa.array(columns[name], pa.string()) for name in names})
        )

    def _schema(self) -> pa.Schema:
        text = pa.string()
        fixed = [("key", text), ("image", pa.binary()), ("target_class", text)]
        return pa.schema([*fixed, *[(name, text) for name in self.attributes]])

    def _tables(self) -> Iterator[pa.Table]:
        folder = Folder(fs.LocalFileSystem(), str(self.root))
        for start in range(0, len(self.keys), AT_ONCE):
            chunk = self.some(range(start, min(start + AT_ONCE, len(self.keys))))
            columns = {
                "key": chunk.keys,
                "image": [_bytes(folder, self.root, path) for path in chunk.paths],
                "target_class": chunk.classes,
                **chunk.attributes,
            }
            schema = self._schema()
            yield pa.table({field.name: pa.array(columns[field.name], field.type) for field in schema})


def _bytes(folder: Folder, root: Path, path: Path) -> bytes:
    if not path.is_file():
        raise SourceError(f"{path}: annotated, and no such image is there", location=str(path))
    try:
        return folder.read(path.relative_to(root).as_posix(), MAX_BYTES)
    except ImageError as error:
        raise SourceError(f"{path}: {error}", location=str(path)) from error
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}", location=str(path)) from error


def each_once(path: Path, names: Sequence[str]) -> None:
    """Raises SourceError where a file holds a name twice, so that it is unclear which line is meant."""
    if len(set(names)) < len(names):
        repeated = next(name for name, count in Counter(names).items() if count > 1)
        raise SourceError(f"{path}: {repeated!r} is there twice", location=str(path))


def first_of(folder: Path, names: Sequence[str], description: str) -> Path:
    """Returns the first of several paths below a folder that exists. Raises SourceError where none does."""
    for name in names:
        if (folder / name).exists():
            return folder / name
    raise SourceError(f"{folder} has no {description}; looked for {', '.join(names)}", location=str(folder))
