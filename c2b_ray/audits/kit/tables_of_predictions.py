"""Compares tables of predictions with the images that they are to answer for: which of them they list, and whether
their answers are the truth itself.

It knows specs and names of images. A table is read here, where its audit begins, and again where its stage runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from c2b_ray.errors import C2BError, SourceError
from c2b_ray.models import catalog
from c2b_ray.names import normalise
from c2b_ray.steps.classify import LabelMap, classification
from c2b_ray.storage.confined import cause_of

SCHEME = "table"


def is_table(spec: str) -> bool:
    return spec.partition(":")[0] == SCHEME


def compared_with(
    specs: Mapping[str, str],
    keys: Sequence[str],
    truth: Sequence[str | None] | None = None,
    classes: Sequence[str] = (),
    label_map: LabelMap | None = None,
) -> list[str]:
    """Returns in words what is odd about the tables among `specs` (name → spec): images that they do not list, and
    answers that are right without exception.

    `keys`: the names of the images. `truth`: their classes, as the images' source spells them, where they are known.
    Raises SourceError where a table lists none of the images, with the commonest cause.
    """
    sentences = []
    for spec in specs.values():
        if is_table(spec) and keys:
            table: Any = catalog.classifier(spec)
            rows = np.array([-1 if (row := table.row_of(key)) is None else row for key in keys], np.int64)
            sentences += _unlisted(spec, table, keys, rows)
            if truth is not None:
                sentences += _always_right(spec, table, rows, truth, _groups(spec, table, classes, label_map))
    return sentences


def said_of_tables(specs: Mapping[str, str], keys: Sequence[str]) -> list[str]:
    """Like `compared_with`, of images that are known by their names alone; it also reports a table of other images."""
    try:
        return compared_with(specs, keys)
    except SourceError as error:
        return [str(error)]


def _unlisted(spec: str, table: Any, keys: Sequence[str], rows: NDArray[np.int64]) -> list[str]:
    unlisted = [keys[i] for i in np.flatnonzero(rows < 0).tolist()]
    if not unlisted:
        return []
    cause = cause_of(table.files, unlisted)
    if len(unlisted) == len(keys):
        why = cause or f"it lists {next(iter(table.files))!r}, and an image is called {keys[0]!r}"
        raise SourceError(
            f"{spec}: the table lists none of the {len(keys):,} images; {why}. Write the files as the images are "
            "called, or name the column that does: ?file=COLUMN in the spec, or `key` among the columns of the images' "
            "table"
        )
    hint = f"; {cause}" if cause else ""
    images = "image is" if len(unlisted) == 1 else "images are"
    return [f"{spec}: {len(unlisted):,} of {len(keys):,} {images} not in the table, such as {unlisted[0]!r}{hint}"]


def _groups(spec: str, table: Any, classes: Sequence[str], label_map: LabelMap | None) -> dict[str, set[int]]:
    """Returns the labels' positions by class, as classes are compared; nothing where classes and labels do not fit,
    which another check reports."""
    try:
        groups = classification(spec, table, classes, label_map).labels_of_class
    except C2BError:
        return {}
    return {normalise(name): set(group) for name, group in zip(classes, groups, strict=True)}


def _always_right(
    spec: str, table: Any, rows: NDArray[np.int64], truth: Sequence[str | None], groups: Mapping[str, set[int]]
) -> list[str]:
    """Returns a remark where every answer is right: then the table's column may be the truth."""
    answers, count = table.likeliest(), 0
    for row, name in zip(rows.tolist(), truth, strict=True):
        if row >= 0 and name is not None and (group := groups.get(normalise(name))) is not None:
            if int(answers[row]) not in group:
                return []
            count += 1
    if count < 2:
        return []
    column = next((fact.value for fact in table.facts if fact.name == "answers"), "the answer")
    return [
        f"{spec}: all {count:,} answers are right. If {column} of the table is the truth and not the classifier's "
        "answer, nothing is measured: name the answers' column, ?prediction=COLUMN"
    ]
