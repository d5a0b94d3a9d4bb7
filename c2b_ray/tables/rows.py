"""How a table is declared, once, as the class of its rows, from which its Arrow schema follows; and ids of rows.

    class CaptionRow(TypedDict):
        caption_id: str
        number: Int32  # 0-based, among the cell's captions
        similarity: float | None  # cosine; null for images that were not retrieved

    CAPTIONS = schema_of(CaptionRow)

A row is a plain dict: what `pa.Table.from_pylist` takes and `to_pylist` returns. The columns have the order of the
class, those of its bases first. `str`, `bool`, `bytes`, `int` and `float` (both of 64 bits) are Arrow's types of these
names, a list is a list, and a TypedDict in a list a struct; `Annotated` with an Arrow type names another one.

An id is a hash of everything that determines a row: the parent's id, the step, its settings, the seed and the model's
revision. So a rerun resumes, a retry is idempotent, and a changed setting never reuses an old row.

Modules of tables do without `from __future__ import annotations`: their types would be parsed a second time whenever
they are imported.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
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


# Ids and seeds.


# Shared: json.dumps creates a new one at each call with an option, which takes longer than a short text.
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False)
_SHA256 = 64
"""Hexadecimal digits of a SHA-256."""


def content_id(*parts: Any) -> str:
    """Returns 20 hexadecimal digits that depend on every part: JSON values, bytes, views of bytes, or `IdPieces`."""
    digest = hashlib.blake2b(digest_size=10)
    for part in parts:
        _add(digest, part)
    return digest.hexdigest()


def content_of(data: bytes | memoryview) -> str:
    """Returns the SHA-256 of bytes, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def has_content(data: bytes, content: str) -> bool:
    """Tells whether the bytes are those that had this content: `content_of` them, or in runs of releases before,
    `content_id`."""
    return content == (content_of(data) if len(content) == _SHA256 else content_id(data))


def content_ids(step: str, values: Iterable[Any], *settings: Any) -> list[str]:
    """Returns `content_id(step, value, *settings)` of each value; settings are serialised only once."""
    return ids_between((step,), values, settings)


def ids_between(before: tuple[Any, ...], values: Iterable[Any], after: tuple[Any, ...] = ()) -> list[str]:
    """Returns `content_id(*before, value, *after)` of each value, in a fraction of the time."""
    base, end = hashlib.blake2b(digest_size=10), _Bytes()
    for part in before:
        _add(base, part)
    for part in after:
        _add(end, part)
    suffix, ids = bytes(end.data), []
    for value in values:
        digest, data = base.copy(), _json(value)
        digest.update(len(data).to_bytes(8, "big") + data + suffix)
        ids.append(digest.hexdigest())
    return ids


class _Bytes:
    """Holds what a digest would be updated with."""

    def __init__(self) -> None:
        self.data = bytearray()

    def update(self, data: Any) -> None:
        self.data += data


def _json(part: Any) -> bytes:
    # Row numbers make most ids, and the encoder takes twenty times as long for a number. A bool is another type.
    return b"%d" % part if type(part) is int else _ENCODER.encode(part).encode()


@dataclass(frozen=True)
class IdPieces:
    """A part of `content_id` that need not be in memory at once. `write` passes its bytes, a piece at a time, to its
    argument; it is called twice, because the length comes first."""

    write: Callable[[Callable[[Any], object]], None]


def texts(batches: Callable[[], Iterable[list[str]]]) -> IdPieces:
    """Returns a part that is a list of texts; `batches` yields a few at a time: a million Python strings take 70 MB."""

    def write(write_bytes: Callable[[Any], object]) -> None:
        separator = b"["
        for batch in batches():
            if batch:
                write_bytes(separator + _json(batch)[1:-1])
                separator = b", "
        write_bytes(b"]" if separator != b"[" else b"[]")

    return IdPieces(write)


def _add(digest: Any, part: Any) -> None:
    if isinstance(part, IdPieces):
        sizes: list[int] = []
        part.write(lambda chunk: sizes.append(len(chunk)))
        digest.update(sum(sizes).to_bytes(8, "big"))
        part.write(digest.update)
        return
    data = part if isinstance(part, bytes | memoryview) else _json(part)
    # The length distinguishes ("ab", "c") from ("a", "bc").
    digest.update(len(data).to_bytes(8, "big"))
    digest.update(data)


def seed_of(*parts: Any) -> int:
    """Returns a seed in [0, 2**31) from the same kind of parts: a row has the same noise in any batch."""
    return int(content_id(*parts)[:16], 16) % 2**31
