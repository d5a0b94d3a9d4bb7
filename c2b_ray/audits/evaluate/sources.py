"""Public annotations as labelled tables: which images, of which class, with which attributes."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from c2b_ray.audits.evaluate.config import CelebATruth, ImageNetXTruth
from c2b_ray.config.classifiers import read_hierarchy
from c2b_ray.errors import ConfigError, ImageError, SourceError, nearest
from c2b_ray.names import folded, normalise
from c2b_ray.storage.confined import MAX_BYTES, Folder
from c2b_ray.storage.manifest import read_lines, read_table, read_text

# Writes annotated images into one labelled Parquet table, which an audit reads. It knows files, not formats.


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


# Reads CelebA's annotations in their public layouts.


ATTRIBUTES, PARTITIONS, IMAGES = "list_attr_celeba", "list_eval_partition", "img_align_celeba"
_NUMBERS = {"train": "0", "valid": "1", "test": "2"}
_VALUES = {"1": PRESENT, "-1": ABSENT}

Line = tuple[int, list[str]]
"""The number of a line, and its cells."""


def celeba(truth: CelebATruth, seed: int = 0) -> Annotated:
    """Returns the images of one partition. Raises SourceError, which names the file and line that is not as expected,
    and ConfigError for a target that is no attribute."""
    folder = Path(truth.folder)
    # The innermost first: Kaggle's folder of images holds one of the same name.
    images = first_of(folder, (f"{IMAGES}/{IMAGES}", f"Img/{IMAGES}", IMAGES), "images")
    where = first_of(folder, _candidates(ATTRIBUTES, "Anno"), "attributes")
    split = first_of(folder, _candidates(PARTITIONS, "Eval"), "partitions")
    partition = _partition(split)
    names, lines = _attributes(where)
    if truth.target not in names:
        raise ConfigError("truth.celeba.target", f"{where} has no {truth.target!r}; {nearest(truth.target, names)}")
    all_rows = list(_celeba_rows(where, names, lines))
    each_once(where, [key for key, _ in all_rows])
    if absent_keys := [key for key, _ in all_rows if key not in partition]:
        raise SourceError(
            f"{split}: no line for {absent_keys[0]}, nor for {len(absent_keys) - 1:,} other images of {where.name}; is "
            "it whole?",
            location=str(split),
        )
    rows = [(key, values) for key, values in all_rows if partition.get(key) == _NUMBERS[truth.partition]]
    if not rows:
        raise SourceError(f"{where}: no image of the partition {truth.partition}", location=str(where))
    target_form = normalise(truth.target)
    present, absent = truth.present or target_form, truth.absent or f"not {target_form}"
    target_index = names.index(truth.target)
    return Annotated(
        images,
        [key for key, _ in rows],
        [images / key for key, _ in rows],
        [present if values[target_index] == PRESENT else absent for _, values in rows],
        {name: [values[k] for _, values in rows] for k, name in enumerate(names) if k != target_index},
    ).at_most(truth.images, seed)


def _candidates(name: str, inner: str) -> tuple[str, ...]:
    return tuple(f"{above}{name}.{form}" for form in ("txt", "csv") for above in ("", f"{inner}/"))


def _cells(path: Path) -> list[Line]:
    """Returns the cells of every line that is not empty; a CSV's are separated by commas, others by spaces."""
    parted = [
        (number, [cell.strip() for cell in line.split(",")] if path.suffix == ".csv" else line.split())
        for number, line in enumerate(read_lines(path, "text"), 1)
    ]
    return [(number, cells) for number, cells in parted if any(cells)]


def _attributes(path: Path) -> tuple[list[str], list[Line]]:
    """Returns the names of the attributes, and the lines of images."""
    lines = _cells(path)
    if path.suffix == ".csv":
        if len(lines) < 2 or len(lines[0][1]) < 2:
            raise SourceError(f"{path}: expected a header of image_id and attributes, then a line an image",
                              location=str(path))  # fmt: skip
        return _names(path, lines[0][1][1:]), lines[1:]
    if len(lines) < 3 or len(lines[0][1]) != 1 or not lines[0][1][0].isdigit():
        raise SourceError(
            f"{path}: expected the number of images, the names of attributes, then a line an image", location=str(path)
        )
    lines_promised, lines_found = int(lines[0][1][0]), len(lines) - 2
    if lines_promised != lines_found:
        raise SourceError(
            f"{path}: its first line says {lines_promised} images, and {lines_found} follow", location=str(path)
        )
    return _names(path, lines[1][1]), lines[2:]


def _names(path: Path, names: list[str]) -> list[str]:
    if set(names) & {*_VALUES, ""}:
        raise SourceError(f"{path}: expected the names of attributes above the images, not {names[0]!r}",
                          location=str(path))  # fmt: skip
    each_once(path, names)
    return names


def _celeba_rows(path: Path, names: Sequence[str], lines: Sequence[Line]) -> Iterator[tuple[str, list[str]]]:
    for number, (key, *values) in lines:
        if len(values) != len(names) or not set(values) <= set(_VALUES):
            raise SourceError(
                f"{path}, line {number}: expected a file name and {len(names)} times 1 or -1", location=str(path)
            )
        if "/" in key or "\\" in key or key.startswith("."):
            raise SourceError(f"{path}, line {number}: {key!r} is no plain file name", location=str(path))
        yield key, [_VALUES[value] for value in values]


def _partition(path: Path) -> dict[str, str]:
    """Returns file name → number of its partition."""
    lines = _cells(path)
    keys = []
    for number, parts in lines[1:] if path.suffix == ".csv" else lines:
        if len(parts) != 2 or parts[1] not in _NUMBERS.values():
            raise SourceError(f"{path}, line {number}: expected a file name and 0, 1 or 2", location=str(path))
        keys.append((parts[0], parts[1]))
    each_once(path, [key for key, _ in keys])
    return dict(keys)


# Reads ImageNet-X's annotations in their public layout (Idrissi et al. 2022; the package imagenet-x).


FACTORS = (
    "pose", "background", "pattern", "color", "smaller", "shape", "partial_view", "subcategory", "texture", "larger",
    "darker", "object_blocking", "person_blocking", "style", "brighter", "multiple_objects",
)  # fmt: skip
PROTOTYPES = "prototypical_paths.csv"


def imagenet_x(truth: ImageNetXTruth, seed: int = 0) -> Annotated:
    """Returns the annotated images that exist. Raises SourceError, which names the line that is not as expected."""
    where = Path(truth.annotations)
    folder = where if where.is_dir() else where.parent
    if where.is_dir():
        name = f"imagenet_x_val_{truth.factors}_factor"
        where = first_of(where, (f"{name}.jsonl", f"{name}.csv"), "annotations")
    typical = set() if truth.prototypes else _typical(folder / PROTOTYPES)
    names = _class_names()
    annotated = list(_imagenet_x_rows(where))
    each_once(where, [key for key, _, _ in annotated])
    rows = [row for row in annotated if row[0] not in typical]
    paths = _paths(Path(truth.folder), names)
    with_image = [(key, number, factors_shown) for key, number, factors_shown in rows if key in paths]
    if not with_image:
        raise SourceError(f"{truth.folder} holds no image that {where} annotates", location=truth.folder)
    classes = [names[number][0] for _, number, _ in with_image]
    return Annotated(
        Path(truth.folder),
        [key for key, _, _ in with_image],
        [paths[key] for key, _, _ in with_image],
        classes,
        {
            factor: [PRESENT if factors_shown[factor] else ABSENT for _, _, factors_shown in with_image]
            for factor in FACTORS
        },
        {names[number][0]: [number] for number in sorted({number for _, number, _ in with_image})},
        len(rows) - len(with_image),
    ).at_most(truth.images, seed)


def _class_names() -> list[tuple[str, str]]:
    """Returns (name, synset) of each class. Of classes with one name, case aside, each says what it is: crane (aquatic
    bird), crane (device); such names go into captions and prompts, where a synset's number would mean nothing."""
    entries = read_hierarchy("imagenet").entries
    counts = Counter(folded(entry.names[0]) for entry in entries)
    return [
        (
            entry.names[0] if counts[folded(entry.names[0])] == 1 else f"{entry.names[0]} ({entry.shown})",
            entry.names[-1],
        )
        for entry in entries
    ]


def _imagenet_x_rows(path: Path) -> Iterator[tuple[str, int, Mapping[str, bool]]]:
    for number, row in _records(path):
        try:
            key, target = str(row["file_name"]), _whole(row["class"])
            factors_shown = {factor: _flag(row[factor]) for factor in FACTORS}
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"{path}, line {number}: expected file_name, class and 16 factors of 0 or 1 ({error!r})",
                location=str(path),
            ) from error
        if not 0 <= target < 1000 or "/" in key or "\\" in key:
            problem = f"{path}, line {number}: {key!r} of class {target} is none of ImageNet"
            raise SourceError(problem, location=str(path))
        yield key, target, factors_shown


def _records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    text = read_text(path, "CSV or JSONL")
    if path.suffix.lower() == ".csv":
        yield from enumerate(csv.DictReader(io.StringIO(text, newline="")), 2)
        return
    # Not splitlines: a justification may hold a line separator that JSON need not escape.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise SourceError(f"{path}, line {number}: not JSON: {error}", location=str(path)) from error
            if not isinstance(row, dict):
                raise SourceError(f"{path}, line {number}: expected a JSON object", location=str(path))
            yield number, row


def _whole(value: Any) -> int:
    """Returns a whole number, also for 65.0, as tables with missing values write it."""
    number = float(value)
    if isinstance(value, bool) or not number.is_integer():
        raise ValueError(f"{value!r} is no whole number")
    return int(number)


def _flag(value: Any) -> bool:
    number = float(value)
    if number not in (0.0, 1.0):
        raise ValueError(f"{value!r} is neither 0 nor 1")
    return number == 1.0


def _typical(path: Path) -> set[str]:
    return {row["file_name"] for row in read_table(path, ("file_name",))} if path.is_file() else set()


def _paths(folder: Path, names: list[tuple[str, str]]) -> dict[str, Path]:
    """Returns file name → path, for the images in the folder or in one of a synset."""
    synsets = {synset for _, synset in names}
    folders = [folder, *(inner for inner in sorted(folder.glob("n*")) if inner.name in synsets and inner.is_dir())]
    return {path.name: path for inner in folders for path in inner.iterdir() if path.is_file()}
