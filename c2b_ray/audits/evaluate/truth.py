"""The ground truth of an evaluation: labelled images, from public annotations or scenes, and who answers them right."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from c2b_ray.audits.c2b.audit import audit
from c2b_ray.audits.c2b.run import C2BRun
from c2b_ray.audits.evaluate.config import CelebATruth, EvaluateConfig, ImageNetXTruth, WorldTruth
from c2b_ray.audits.evaluate.steps.matching import wording
from c2b_ray.audits.evaluate.steps.truth import (
    TARGET,
    Ints,
    Rows,
    TruthAnswers,
    TruthCell,
    cells,
    one_spelling,
    truth_biases,
)
from c2b_ray.audits.kit.session import Session
from c2b_ray.config.classifiers import read_hierarchy
from c2b_ray.errors import ConfigError, ImageError, RunError, SourceError, another_run, nearest
from c2b_ray.models import catalog
from c2b_ray.names import folded, normalise
from c2b_ray.steps.classify import are_numbers
from c2b_ray.steps.draw import ImageIds, image_ids
from c2b_ray.steps.duplicates import DISTINCT_COLUMNS, Distinct
from c2b_ray.steps.labels import check_classes, chosen, left_out, spellings
from c2b_ray.storage import files, is_remote
from c2b_ray.storage.confined import MAX_BYTES, Folder
from c2b_ray.storage.labelled import LabelledTable
from c2b_ray.storage.manifest import read_lines, read_table, read_text
from c2b_ray.world.captions import DECOYS, PARAPHRASES, DecoyAttribute, decoy_columns
from c2b_ray.world.scenes import sample
from c2b_ray.world.table import labelled_table

# Public annotations as one labelled Parquet table, which an audit reads: which images, of which class, with which
# attributes.


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


IMAGENET = 1000
TABLE, RUN, FIELD = "truth_images.parquet", "truth_run", "truth.table"


@dataclass(frozen=True)
class TruthTable:
    """The location of the labelled images, the names of their columns, and further content of the annotations.

    `missing`: the number of annotated images that do not exist.
    """

    location: str
    columns: Mapping[str, str]
    names: Mapping[str, str]
    label_map: dict[str, list[int | str]] | None
    missing: int = 0


@dataclass(frozen=True)
class GroundTruth:
    """Labelled images and the answers to them. A row is a row of the table."""

    labels: pa.Table
    revision: str
    run: C2BRun
    classes: tuple[str, ...]
    cells: Mapping[TruthCell, Rows]
    right: Mapping[str, TruthAnswers]  # by classifier: which rows were answered right, and which at all
    names: Mapping[str, str]
    pictures: Ints  # by row, the same number for all copies of a picture
    decoys: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Image id → row."""
        ids = image_ids(np.arange(self.labels.num_rows), self.revision)
        return {image: row for row, image in enumerate(ids.to_pylist())}

    def biases(self, tau: float, alpha: float) -> pa.Table:
        return truth_biases(self.cells, self.right, tau, alpha, self.names, self.pictures)

    def visible(self) -> dict[TruthCell, Rows]:
        """Returns the cells of attributes that images show: those of planted decoys are left out."""
        return {cell: rows for cell, rows in self.cells.items() if cell[1] not in self.decoys}

    def words(self) -> dict[tuple[str, str], str]:
        """Returns the name of each (attribute, value) in captions."""
        return {(a, v): wording(a, v).texts[0] for _, a, v in self.cells}

    def wanted(self, most: int | None, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns rows of the classes, at most `most` of each, drawn at random."""
        targets = np.array(self.labels[TARGET].to_pylist(), object)
        rows = [np.flatnonzero(targets == name) for name in self.classes]
        if most is not None:
            random = np.random.default_rng(seed)
            rows = [np.sort(random.permutation(rows_of_class)[:most]) for rows_of_class in rows]
        return np.concatenate([np.zeros(0, np.int64), *rows])


def truth_table(config: EvaluateConfig, out: str) -> TruthTable:
    """Returns the labelled images of the config, written to `out` where they are annotations or scenes."""
    truth, label_map = config.truth, config.label_map
    if truth.table is not None:
        columns = {} if truth.columns is None else truth.columns.model_dump(exclude_none=True)
        return TruthTable(truth.table, columns, config.names, _mapped(label_map))
    path = f"{out}/{TABLE}"
    if truth.world is not None:
        if not files.exists(path):
            files.write_table(path, world_table(truth.world))
        return TruthTable(path, {}, {**PARAPHRASES, **config.names}, _mapped(label_map))
    annotated = _annotated(config)
    if files.exists(path):
        if not annotated.written(Path(path)):
            raise RunError(
                f"{out}: the annotations or images are others now than it measured",
                remedy=another_run("to evaluate them as they are", "put the former files back"),
            )
    else:
        if is_remote(out):
            raise ConfigError("--out", f"{out}: annotations are gathered into a local directory; name one")
        annotated.write(Path(path))
    if config.truth.imagenet_x is not None and not isinstance(label_map, dict):
        _check_imagenet(config)
    return TruthTable(path, {}, config.names, _mapped(label_map) or annotated.label_map or None, annotated.missing)


def _check_imagenet(config: EvaluateConfig) -> None:
    """Raises ConfigError for a classifier whose labels cannot be in ImageNet's order, in which classes are counted."""
    for name, spec in config.specs.items():
        description = catalog.describe("classifier", spec)
        if (
            description is not None
            and description.labels
            and not are_numbers(description.labels)
            and len(description.labels) != IMAGENET
        ):
            raise ConfigError(
                f"classifier.{name}",
                f"{spec} has {len(description.labels)} labels, and ImageNet-X counts {IMAGENET:,} classes: give "
                "`label_map`, or for a table of predictions ?labels=PATH with all labels in ImageNet's order",
            )


def _mapped(label_map: Any) -> dict[str, list[int | str]] | None:
    return label_map if isinstance(label_map, dict) else None


def _annotated(config: EvaluateConfig) -> Annotated:
    if config.truth.celeba is not None:
        return celeba(config.truth.celeba, config.seed)
    assert config.truth.imagenet_x is not None
    return imagenet_x(config.truth.imagenet_x, config.seed)


def world_table(truth: WorldTruth) -> pa.Table:
    """Returns scenes as a labelled table, with a column for each decoy."""
    scenes = sample(truth.scenes, truth.seed)
    table = labelled_table(scenes, f"scene-{truth.seed}")
    try:
        columns = decoy_columns(scenes, truth.seed, planted(truth))
    except ValueError as error:
        raise ConfigError("truth.world.planted", str(error)) from error
    for name, column in columns.items():
        if name in table.column_names:
            raise ConfigError("truth.world.planted", f"{name!r} is a column of scenes already")
        table = table.append_column(name, column)
    return table


def planted(truth: WorldTruth | None) -> tuple[DecoyAttribute, ...]:
    if truth is None:
        return ()
    if truth.planted:
        return tuple(DecoyAttribute(**decoy.model_dump()) for decoy in truth.planted)
    return DECOYS if truth.decoys else ()


def ground_truth(config: EvaluateConfig, table: TruthTable, out: str, session: Session) -> GroundTruth:
    """Returns the ground truth. Each classifier answers every image that it has not answered yet."""
    read = LabelledTable(table.location, FIELD, table.columns)
    labels = read.labels
    classes = _classes(config, labels, table.location)
    check_classes(labels, classes, FIELD)
    attributes = chosen(labels, None, FIELD)
    labels = one_spelling(labels, [TARGET, *attributes])
    columns = {"columns": dict(table.columns)} if table.columns else {}
    run = audit(
        {
            "task": config.task,
            "classes": classes,
            "classifier": config.classifier,
            "images": {"source": "labelled", "table": table.location} | columns,
            "attributes": attributes,
            "label_map": table.label_map,
            "right": config.right,
            "tau": config.tau,
            "alpha": config.alpha,
            "seed": config.seed,
        },
        f"{out}/{RUN}",
        session.via,
        session.listener,
        session.placement,
    )
    truth_cells = cells(labels, list(attributes), classes, config.least)
    if not truth_cells:
        raise SourceError(
            f"{table.location}: no class has {config.least} images with a value and as many without it; lower `least`, "
            "or give more images",
            location=table.location,
        )
    right = _right(run, labels, read.revision, list(config.specs))
    decoys = frozenset(decoy.name for decoy in planted(config.truth.world))
    pictures = Distinct(run.read("images", DISTINCT_COLUMNS)).pictures(
        ImageIds(image_ids(np.arange(labels.num_rows), read.revision))
    )
    answers = (truth_cells, right, table.names, pictures, decoys, _notes(read.labels, pictures))
    return GroundTruth(labels, read.revision, run, tuple(classes), *answers)


def _notes(labels: pa.Table, pictures: Ints) -> tuple[str, ...]:
    notes = [f"The column {name} is no attribute: {why}." for name, why in left_out(labels).items()]
    if copies := len(pictures) - len(np.unique(pictures)):
        sentence = f"{copies:,} of {len(pictures):,} images are copies of others"
        notes.append(f"{sentence}: biases of the ground truth count each picture once.")
    return tuple(notes)


def _classes(config: EvaluateConfig, labels: pa.Table, location: str) -> list[str]:
    spelling_of = spellings(labels[TARGET])
    if config.classes is None:
        return sorted(spelling_of.values())
    for name in config.classes:
        if normalise(name) not in spelling_of:
            raise ConfigError("classes", f"{location} has no images of {name!r}; {nearest(name, spelling_of.values())}")
    return [spelling_of[normalise(name)] for name in config.classes]


def _right(run: C2BRun, labels: pa.Table, revision: str, classifiers: Sequence[str]) -> dict[str, TruthAnswers]:
    ids = image_ids(np.arange(labels.num_rows), revision).to_pylist()
    row_of = {image: row for row, image in enumerate(ids)}
    targets = labels[TARGET].to_pylist()
    result = {name: (np.zeros(len(ids), bool), np.zeros(len(ids), bool)) for name in classifiers}
    columns = ["image_id", "predicted_class", "answered", "error"]
    for answer in run.predictions_of(columns).to_pylist():
        row = row_of.get(answer["image_id"])
        if row is None or answer["error"] is not None or answer["classifier"] not in result:
            continue
        ok, is_answered = result[answer["classifier"]]
        is_answered[row] = True
        answered = answer["answered"] if answer["answered"] is not None else [answer["predicted_class"]]
        ok[row] = targets[row] in answered
    return result
