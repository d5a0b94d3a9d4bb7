"""Columns of a labelled table in which an image may have several labels, or none.

As the table has them: a list in each row, names with a separator between them, or one column of 0 and 1 for each label.
As the rest of the product reads them: one text a row, the labels sorted, with `JOINT` between them; an empty text where
there is none, and null where it is not known. The column's field says that it is such a one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from c2b_ray.errors import SourceError

JOINT = "; "
SEVERAL = {b"labels": b"several"}
"""The metadata of the field of such a column."""


def has_several(field: pa.Field) -> bool:
    """Tells whether a row of the column may have several labels."""
    return bool(field.metadata) and SEVERAL.items() <= field.metadata.items()


def labels_in(text: str | None) -> list[str]:
    """Returns the labels of a row's text."""
    return [] if not text else text.split(JOINT)


def joined_lists(column: pa.Array, names: Sequence[str] | None, where: str, first: int = 0) -> pa.Array:
    """Returns the texts of lists of labels, or of numbers of `names`. `first`: the row that the column begins at.

    Null where a number has no name, such as −1: what else such an image shows is not known. Raises SourceError, about
    `where`, for a label that holds the joint.
    """
    texts = []
    for number, row in enumerate(column.to_pylist(), first + 1):
        labels = None if row is None else _names(row, names)
        texts.append(None if labels is None else _joined(labels, where, number))
    return pa.array(texts, pa.string())


def joined_texts(column: pa.Array, separator: str, where: str, first: int = 0) -> pa.Array:
    """Returns the texts of labels with a separator between them. A row without text has none of the labels."""
    texts = column.cast(pa.string()).to_pylist()
    rows = enumerate(((text or "").split(separator) for text in texts), first + 1)
    return pa.array([_joined(row, where, number) for number, row in rows], pa.string())


def joined_marks(columns: Sequence[pa.Array], names: Sequence[str], where: str, first: int = 0) -> pa.Array:
    """Returns the texts of columns of 0 and 1, one for each label.

    Raises SourceError for a value that is neither, with its row and column.
    """
    marks = []
    for name, column in zip(names, columns, strict=True):
        try:
            numbers = column.cast(pa.float64(), safe=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise SourceError(
                f"{where}: column {name!r} is {column.type}, expected 0 and 1: one for images that show it"
            ) from error
        ones = pc.equal(numbers, 1.0)
        known = pc.fill_null(pc.or_(ones, pc.equal(numbers, 0.0)), False).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(~known):
            raise SourceError(f"{where}: row {first + row + 1}: {name!r} is {column[row].as_py()!r}, expected 0 or 1")
        marks.append(ones.to_numpy(zero_copy_only=False))
    shown = np.stack(marks, axis=1)
    rows = [[name for name, one in zip(names, row, strict=True) if one] for row in shown.tolist()]
    return pa.array([_joined(row, where, number) for number, row in enumerate(rows, first + 1)], pa.string())


def _names(row: Iterable[object], names: Sequence[str] | None) -> list[str] | None:
    labels = [one for one in row if one is not None]
    if names is None:
        return [str(one) for one in labels]
    if any(isinstance(one, int) and not 0 <= one < len(names) for one in labels):
        return None
    return [names[one] if isinstance(one, int) else str(one) for one in labels]


def _joined(labels: Iterable[str], where: str, row: int) -> str:
    distinct = sorted({label.strip() for label in labels} - {""})
    for label in distinct:
        if JOINT.strip() in label:
            raise SourceError(
                f"{where}: row {row}: the label {label!r} holds {JOINT.strip()!r}, which separates labels here"
            )
    return JOINT.join(distinct)
