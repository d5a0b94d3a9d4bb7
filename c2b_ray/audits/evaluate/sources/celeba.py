"""Reads CelebA's annotations in their public layouts.

    list_attr_celeba.txt       the number of images; the names of 40 attributes; a line per image of 1 and −1
    list_eval_partition.txt    a line per image: 0 train, 1 validation, 2 test
    img_align_celeba/          the images

The two files may be in the folders Anno and Eval, the images in Img, as in the dataset's archive. In Kaggle's version
they are list_attr_celeba.csv and list_eval_partition.csv, with a header each (image_id, then attributes; image_id,
partition), and the images are in img_align_celeba/img_align_celeba. It knows these files, and nothing of classifiers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from c2b_ray.audits.evaluate.config import CelebATruth
from c2b_ray.audits.evaluate.sources.annotated import ABSENT, PRESENT, Annotated, each_once, first_of
from c2b_ray.errors import ConfigError, SourceError, nearest
from c2b_ray.names import normalise
from c2b_ray.storage.manifest import read_lines

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
    all_rows = list(_rows(where, names, lines))
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


def _rows(path: Path, names: Sequence[str], lines: Sequence[Line]) -> Iterator[tuple[str, list[str]]]:
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
