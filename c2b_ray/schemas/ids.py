"""Ids and seeds that depend on what made a row.

An id is a hash of what made the row (the parent's id, the step, its settings, the seed, the model's revision): a rerun
resumes, a retry is idempotent, a changed setting never meets a stale row.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def content_id(*parts: Any) -> str:
    """20 hexadecimal digits that depend on every part; parts are JSON values, bytes or views of bytes."""
    digest = hashlib.blake2b(digest_size=10)
    for part in parts:
        raw = isinstance(part, bytes | memoryview)
        data = part if raw else json.dumps(part, sort_keys=True, ensure_ascii=False).encode()
        # The length keeps ("ab", "c") apart from ("a", "bc").
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def seed_of(*parts: Any) -> int:
    """A seed in [0, 2**31) from the same kind of parts: rows carry their own noise, whatever batch they are in."""
    return int(content_id(*parts)[:16], 16) % 2**31
