"""Near-duplicates: images that are one picture, saved again at another size or quality.

It knows pixels alone; not what an image shows: two pictures of one kind of scene are no duplicates. A fingerprint is
small enough to travel without its image.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from c2b_ray.roles import Pixels

SIDE = 8
BAND = 2
"""Bytes of a band of the 64 bits of gradients: two images are compared where one of the bands agrees."""

MEAN_DIFFERENCE, LARGEST_DIFFERENCE = 1.8, 16.0
"""Levels (of 255) by which the thumbnails of one picture, saved twice, may differ, on average and anywhere."""


def fingerprint(pixels: Pixels) -> bytes:
    """8 bytes of gradient signs (dHash, Krawetz 2013), then a thumbnail of SIDE × SIDE × 3 levels."""
    picture = Image.fromarray(pixels)
    thumbnail = np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BOX), np.uint8)
    grey = np.asarray(picture.convert("L").resize((9, 8), Image.Resampling.BOX), np.int16)
    return np.packbits(grey[:, 1:] > grey[:, :-1]).tobytes() + thumbnail.tobytes()


def representatives(fingerprints: Mapping[str, bytes]) -> dict[str, str]:
    """Image id → the id that stands for all its near-duplicates: the first of them in alphabetical order.

    Duplicates of duplicates are duplicates. Images that were not fingerprinted stand for themselves and are left out.
    """
    ids = sorted(fingerprints)
    if not ids:
        return {}
    data = np.frombuffer(b"".join(fingerprints[i] for i in ids), np.uint8).reshape(len(ids), -1)
    hashes, thumbnails = data[:, :8], data[:, 8:]
    parent = np.arange(len(ids))
    for band in range(0, hashes.shape[1], BAND):
        groups: dict[bytes, list[int]] = defaultdict(list)
        for row in range(len(ids)):
            groups[hashes[row, band : band + BAND].tobytes()].append(row)
        for rows in groups.values():
            _join(np.array(rows), thumbnails, parent)
    return {name: ids[_root(parent, row)] for row, name in enumerate(ids)}


def _join(rows: NDArray[np.int64], thumbnails: NDArray[np.uint8], parent: NDArray[np.int64]) -> None:
    for place, row in enumerate(rows[:-1]):
        later = rows[place + 1 :]
        gap = np.abs(thumbnails[later].astype(np.int16) - thumbnails[row])
        same = (gap.mean(axis=1) <= MEAN_DIFFERENCE) & (gap.max(axis=1) <= LARGEST_DIFFERENCE)
        for other in later[same]:
            a, b = _root(parent, int(row)), _root(parent, int(other))
            parent[max(a, b)] = min(a, b)


def _root(parent: NDArray[np.int64], row: int) -> int:
    while parent[row] != row:
        row = int(parent[row])
    return row
