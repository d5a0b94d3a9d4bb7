"""Reads ImageNet-X's annotations in their public layout (Idrissi et al. 2022; the package imagenet-x).

    imagenet_x_val_multi_factor.jsonl    a JSON object per line: file_name, class (0 to 999), 16 factors of 0 and 1
    imagenet_x_val_top_factor.jsonl      the same with one factor per image
    prototypical_paths.csv               file_name: the images that are typical of their class

A CSV with the same columns is accepted as well. Images are in one folder, or in one for each synset. It knows these
files; of classifiers it assumes only that their labels are in ImageNet's order.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from c2b_ray.audits.evaluate.config import ImageNetXTruth
from c2b_ray.audits.evaluate.sources.annotated import ABSENT, PRESENT, Annotated, each_once, first_of
from c2b_ray.config.hierarchy import read_hierarchy
from c2b_ray.errors import SourceError
from c2b_ray.names import folded
from c2b_ray.storage.manifest import read_table, read_text

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
    annotated = list(_rows(where))
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


def _rows(path: Path) -> Iterator[tuple[str, int, Mapping[str, bool]]]:
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
