"""How a table is declared: once, as the class of its rows, from which its Arrow schema follows.

    class CaptionRow(TypedDict):
        caption_id: str
        number: Int32  # 0-based, among the cell's captions
        similarity: float | None  # cosine; null for images that were not retrieved

    CAPTIONS = schema_of(CaptionRow)

A row is a plain dict: what `pa.Table.from_pylist` takes and `to_pylist` returns. The columns have the order of the
class, those of its bases first. `str`, `bool`, `bytes`, `int` and `float` (both of 64 bits) are Arrow's types of these
names, a list is a list, and a TypedDict in a list a struct; `Annotated` with an Arrow type names another one.

Modules of tables do without `from __future__ import annotations`: their types would be parsed a second time whenever
they are imported.
"""

from __future__ import annotations

from collections.abc import Collection
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, TypedDict, Union, get_args, get_origin, get_type_hints, is_typeddict

import pyarrow as pa

NULLABLE = "nullable"
"""Marks a column that may be null in a table and never is in a row that is being made: runs of older releases lack it,
or an undefined number is NaN before it is written."""

Int8 = Annotated[int, pa.int8()]
Int32 = Annotated[int, pa.int32()]
UInt64 = Annotated[int, pa.uint64()]
Float32 = Annotated[float, pa.float32()]
Measured = Annotated[float, NULLABLE]
"""A number that is NaN where it is undefined."""
Encoded = bytes
"""`bytes` in a row that has a column of that name."""

_TYPES = {
    str: pa.string(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    bytes: pa.binary(),
}


class ComparedRow(TypedDict):
    """What the rows of every comparison of two runs have, B minus A; None where the two cannot be compared."""

    difference: float | None
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    q_value: float | None
    change: str


def schema_of(row: type) -> pa.Schema:
    """Returns the schema of a table of these rows. Columns are nullable where their type has None or NULLABLE, whether
    a step adds them later (`NotRequired`) or not. Raises TypeError for a type that Arrow has no counterpart of."""
    return pa.schema([_field(name, hint) for name, hint in get_type_hints(row, include_extras=True).items()])


def struct_of(row: type, without: Collection[str] = ()) -> pa.StructType:
    """Returns the type of such a row in a column, `without` some fields. All its fields are nullable."""
    return pa.struct([field.with_nullable(True) for field in schema_of(row) if field.name not in without])


def _field(name: str, hint: Any) -> pa.Field:
    if get_origin(hint) is NotRequired:
        hint = get_args(hint)[0]
    nullable = False
    if get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
        nullable = True
    return pa.field(name, _type_of(hint), nullable or NULLABLE in getattr(hint, "__metadata__", ()))


def _type_of(hint: Any) -> pa.DataType:
    if get_origin(hint) is Annotated:
        python, *extra = get_args(hint)
        return next((one for one in extra if isinstance(one, pa.DataType)), None) or _type_of(python)
    if get_origin(hint) is list:
        return pa.list_(_field("item", get_args(hint)[0]).type)
    if is_typeddict(hint):
        return struct_of(hint)
    if hint not in _TYPES:
        known = ", ".join(one.__name__ for one in _TYPES)
        raise TypeError(
            f"{hint!r} is no column's type: use {known}, a list, a TypedDict, or Annotated with Arrow's type"
        )
    return _TYPES[hint]
