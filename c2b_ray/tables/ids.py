"""Computes ids and seeds from everything that determines a row.

An id is a hash of the parent's id, the step, its settings, the seed and the model's revision: so a rerun resumes, a
retry is idempotent, and a changed setting never reuses an old row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

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
