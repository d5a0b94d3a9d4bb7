"""Finds copies across two collections of pictures: pictures of one that a picture of the other shows too.

A copy is what a build leaves out as a near-duplicate (`repeats`, `moved`): the same picture saved again, lighter or
darker, or moved by a pixel. It knows pixels, not what the collections are for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from c2b_ray.roles import Pixels
from c2b_ray.steps.dataset.fingerprint import (
    THUMBNAIL_BYTES,
    WINDOW_BYTES,
    Hashes,
    Thumbnails,
    fingerprint,
    thumbnail,
    windows,
)
from c2b_ray.steps.dataset.moved import earliest_moved, moved_rows
from c2b_ray.steps.dataset.repeats import Marks, earliest_repeats

DISTANCE = 4
"""The bits of 64 in which the hashes of a picture and its copy may differ."""


@dataclass(frozen=True)
class Prints:
    """What pictures are compared by: `hashes` (n,), `thumbnails` (n, THUMBNAIL_BYTES) and `windows` (n, 1 + moves)."""

    hashes: Hashes
    thumbnails: Thumbnails
    windows: Hashes

    def __len__(self) -> int:
        return len(self.hashes)

    @staticmethod
    def of(pictures: Iterable[Pixels]) -> Prints:
        hashes, levels, inner = [], bytearray(), bytearray()
        for picture in pictures:
            hashes.append(fingerprint(picture))
            levels += thumbnail(picture)
            inner += windows(picture)
        return Prints(
            np.array(hashes, np.uint64),
            np.frombuffer(bytes(levels), np.uint8).reshape(-1, THUMBNAIL_BYTES),
            np.frombuffer(bytes(inner), "<u8").reshape(-1, WINDOW_BYTES // 8),
        )

    @staticmethod
    def joined(parts: Iterable[Prints]) -> Prints:
        each = list(parts)
        return Prints(
            *(np.concatenate([getattr(part, name) for part in each]) for name in ("hashes", "thumbnails", "windows"))
        )


def are_copies(pictures: Prints, originals: Prints) -> NDArray[np.bool_]:
    """Returns which of the pictures are copies of one of the originals."""
    # The originals come first: so the earliest match of a picture is an original, if any original matches.
    count, together = len(originals), Prints.joined([originals, pictures])
    every = np.arange(len(together))
    marks = Marks(every, np.zeros(len(every), np.int32), together.hashes, together.thumbnails)
    copies: NDArray[np.bool_] = earliest_repeats(marks, DISTANCE) < count
    rows, hashes, is_moved = moved_rows(together.windows)
    inner = Marks(rows, np.zeros(len(rows), np.int32), hashes, together.thumbnails[rows])
    copies[rows[earliest_moved(inner, is_moved) < count]] = True
    return copies[count:]
