"""Splits a dataset's rows into two parts that have only labels in common.

Rows of one caption form a group; without captions, rows whose perceptual hashes nearly agree do. Groups go whole into
one part, in the order of a hash of their smallest image id, so that the parts do not depend on the order of rows, and a
dataset that has grown keeps most of its split. It knows ids, captions and hashes, not images.

Hashes do not join captions: among thousands of images of each caption some nearly agree by chance, and all captions
would become one group. Copies that lie in both parts are found by their images (`dataset.copies`).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

By = Literal["caption", "image"]
ENOUGH_CAPTIONS = 10
"""With fewer captions a fifth is one or two, which say little about the others: then images are split."""
_BLOCK = 512


@dataclass(frozen=True)
class Split:
    """`test`: whether each row is held out. `groups`: their number. `by`: what the rows of a group have in common."""

    test: NDArray[np.bool_]
    groups: int
    by: By


def split(
    ids: Sequence[str],
    captions: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    by: By | None = None,
    share: float = 0.2,
    distance: int = 4,
) -> Split:
    """Holds out at least `share` of the rows, and no more groups than needed for that; one group is always left.

    Args: captions, hashes: of each row. by: None: captions if there are `ENOUGH_CAPTIONS`, else images. distance:
    for images, hashes that differ in at most this many of 64 bits are near-duplicates.

    Raises: ValueError where there are fewer than two groups.
    """
    chosen: By = by or ("caption" if len(np.unique(captions)) >= ENOUGH_CAPTIONS else "image")
    pairs = _of_one_caption(captions) if chosen == "caption" else near_pairs(hashes, distance)
    graph = coo_matrix((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(len(ids), len(ids)))
    count, group = connected_components(graph, directed=False)
    if count < 2:
        what = "of one caption" if chosen == "caption" else "near-duplicates of one image"
        raise ValueError(f"its {len(ids)} rows are {what}, and two groups are needed")
    smallest = [""] * count
    for name, number in zip(ids, group.tolist(), strict=True):
        smallest[number] = min(smallest[number] or name, name)
    order = np.array(sorted(range(count), key=lambda number: hashlib.sha256(smallest[number].encode()).digest()))
    sizes = np.bincount(group, minlength=count)[order]
    held = np.cumsum(sizes) - sizes < share * len(ids)
    held[-1] = False
    return Split(np.isin(group, order[held]), int(count), chosen)


def _of_one_caption(captions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns pairs (pairs, 2) of rows that link all rows of each caption."""
    order = np.argsort(captions, kind="stable")
    same = captions[order][1:] == captions[order][:-1]
    return np.stack([order[1:][same], order[:-1][same]], axis=1)


def near_pairs(hashes: NDArray[np.uint64], distance: int) -> NDArray[np.int64]:
    """Returns pairs (pairs, 2) of rows that link all rows whose hashes differ in at most `distance` bits, directly or
    through others.

    In such a pair at least one of `distance` + 1 bands of bits agrees, so only rows that share a band are compared.
    """
    pairs = [np.zeros((0, 2), np.int64)]
    edges = np.linspace(0, 64, distance + 2).astype(int)
    for low, high in itertools.pairwise(edges):
        band = (hashes >> np.uint64(low)) & np.uint64((1 << int(high - low)) - 1)
        order = np.lexsort((hashes, band))
        starts = np.flatnonzero(np.r_[True, band[order][1:] != band[order][:-1]])
        runs = np.split(order, starts[1:])
        pairs += [_compared(rows, hashes, distance) for rows in runs if len(rows) > 1]
    return np.concatenate(pairs)


def _compared(rows: NDArray[np.int64], hashes: NDArray[np.uint64], distance: int) -> NDArray[np.int64]:
    """Returns the near pairs among rows sorted by their hashes; equal hashes are linked once and compared once."""
    same = hashes[rows][1:] == hashes[rows][:-1]
    pairs = [np.stack([rows[1:][same], rows[:-1][same]], axis=1)]
    rows = rows[np.r_[True, ~same]]
    bits = hashes[rows]
    for start in range(0, len(rows), _BLOCK):
        apart = np.bitwise_count(bits[start : start + _BLOCK, None] ^ bits[None, start:])
        a, b = np.nonzero(apart <= distance)
        near = a < b
        pairs.append(np.stack([rows[start + a[near]], rows[start + b[near]]], axis=1))
    return np.concatenate(pairs)
