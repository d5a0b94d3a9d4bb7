"""Ids and seeds that depend on what made a row.

An id is a hash of what made the row (the parent's id, the step, its settings, the seed, the model's revision): a rerun
resumes, a retry is idempotent, a changed setting never meets a stale row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

# One for all: json.dumps makes another at each call that sets an option, which takes longer than a short text.
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False)


def content_id(*parts: Any) -> str:
    """20 hexadecimal digits that depend on every part; parts are JSON values, bytes, views of bytes, or `Pieces`."""
    digest = hashlib.blake2b(digest_size=10)
    for part in parts:
        _add(digest, part)
    return digest.hexdigest()


def content_ids(step: str, values: Iterable[Any], *settings: Any) -> list[str]:
    """`content_id(step, value, *settings)` of each value. Settings, which may be long, are written out once."""
    first, rest = _json(step), [_json(part) for part in settings]
    return [content_id(first, value, *rest) for value in values]


def _json(part: Any) -> bytes:
    return _ENCODER.encode(part).encode()


@dataclass(frozen=True)
class Pieces:
    """A part of `content_id` that need not be in memory at once. `write` gives its bytes, a piece at a time, to what it
    is called with; it is called twice, for the length comes first."""

    write: Callable[[Callable[[Any], object]], None]


def texts(some: Callable[[], Iterable[list[str]]]) -> Pieces:
    """The part that is a list of texts, of which `some` gives a few at a time: as Python's, a million take 70 MB."""

    def write(to: Callable[[Any], object]) -> None:
        before = b"["
        for few in some():
            if few:
                to(before + _json(few)[1:-1])
                before = b", "
        to(b"]" if before != b"[" else b"[]")

    return Pieces(write)


def _add(digest: Any, part: Any) -> None:
    if isinstance(part, Pieces):
        sizes: list[int] = []
        part.write(lambda piece: sizes.append(len(piece)))
        digest.update(sum(sizes).to_bytes(8, "big"))
        part.write(digest.update)
        return
    data = part if isinstance(part, bytes | memoryview) else _json(part)
    # The length keeps ("ab", "c") apart from ("a", "bc").
    digest.update(len(data).to_bytes(8, "big"))
    digest.update(data)


def seed_of(*parts: Any) -> int:
    """A seed in [0, 2**31) from the same kind of parts: rows carry their own noise, whatever batch they are in."""
    return int(content_id(*parts)[:16], 16) % 2**31
