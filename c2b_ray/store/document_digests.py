"""Records the digests of a dataset's documents when its build ends, and compares them later: digests.json.

Datasets of earlier releases have no such file; what it would show then cannot be told.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from c2b_ray.errors import C2BError
from c2b_ray.store import files
from c2b_ray.store.shards import ShardFiles

DIGESTS = "digests.json"
RECORDED = "documents"
"""The entry of the manifest that says that there is such a file."""
NOT_RECORDED = (
    f"built by an earlier release, which recorded no {DIGESTS}: whether its JSON documents have changed since cannot "
    "be told"
)


def record(location: ShardFiles, names: Sequence[str]) -> None:
    """Writes the digests of these documents, once none of them changes any more."""
    files.write_bytes(location.at(DIGESTS), _content(location, names))


def forget(location: ShardFiles) -> None:
    """Removes the digests, because the documents are about to change."""
    if location.exists(DIGESTS):
        location.remove(DIGESTS)


def problems(location: ShardFiles, manifest: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    """Yields which documents are not those that the build ended with."""
    if not location.exists(DIGESTS):
        if manifest.get(RECORDED) == DIGESTS:
            yield f"{DIGESTS}: is missing; the last build has not ended, or the file was removed"
        return
    data = files.read_bytes(location.at(DIGESTS))
    try:
        if data == _content(location, names):
            return
        recorded = json.loads(data)
        now = json.loads(_content(location, names))
        changed = [name for name in names if recorded[name] != now[name]]
    except (C2BError, ValueError, KeyError, TypeError) as error:
        yield f"{DIGESTS}: it, or a document that it lists, is damaged: {error!r}"
        return
    yield from (f"{name}: is not the file that the build ended with (sha256)" for name in changed)
    if not changed:
        yield f"{DIGESTS}: is not the file that the build wrote"


def note(location: ShardFiles, manifest: Mapping[str, Any]) -> str | None:
    """Returns what cannot be told of a dataset that an earlier release built; None of others."""
    recorded = location.exists(DIGESTS) or manifest.get(RECORDED) == DIGESTS
    return None if recorded else NOT_RECORDED


def _content(location: ShardFiles, names: Sequence[str]) -> bytes:
    digests = {name: location.digest(name).sha256 for name in names}
    return json.dumps(digests, indent=1).encode()
