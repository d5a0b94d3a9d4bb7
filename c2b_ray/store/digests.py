"""Digests of ids, by which stages tell which rows exist. This module knows no files (`memory` sorts digests there)."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

DIGEST = "S12"
DIGESTED_AT_ONCE = 4096
Digests = NDArray[np.bytes_]


def digests(ids: pa.ChunkedArray | pa.Array) -> Digests:
    """Returns 96 bits of each id: small enough to send to every worker. Ray shares them uncopied, because their width
    is fixed."""
    marks = np.empty(len(ids), DIGEST)
    for start in range(0, len(ids), DIGESTED_AT_ONCE):  # as Python objects, ids take ten times the memory
        texts = ids.slice(start, DIGESTED_AT_ONCE).cast(pa.string()).to_pylist()
        some = [hashlib.blake2b(text.encode(), digest_size=12).digest() for text in texts]
        marks[start : start + len(some)] = some
    return marks


def absent(ids: pa.ChunkedArray | pa.Array, there: Digests) -> NDArray[np.bool_]:
    """Returns which of the ids are not among the sorted digests."""
    if not len(there):
        return np.ones(len(ids), bool)
    return _absent(digests(ids), there)


def among(some: Digests, there: Digests) -> bool:
    """Tells whether all of the digests are among the sorted ones."""
    return not len(some) or (len(there) > 0 and not _absent(some, there).any())


def _absent(some: Digests, there: Digests) -> NDArray[np.bool_]:
    nearest = np.minimum(np.searchsorted(there, some), len(there) - 1)
    is_absent: NDArray[np.bool_] = there[nearest] != some
    return is_absent


def distinct(ids: Digests) -> Digests:
    """Returns each of the sorted ids once."""
    again = repeats(ids)
    return ids[~again] if again.any() else ids


def repeats(ids: Digests) -> NDArray[np.bool_]:
    """Returns which of the sorted ids equal the one before."""
    again = np.zeros(len(ids), bool)
    again[1:] = ids[1:] == ids[:-1]
    return again
