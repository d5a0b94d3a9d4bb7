"""Moved copies: failures of which an earlier one of the same label shows the same a pixel away.

Each failure has the hash of its inner part, and those of the same part moved each way (`fingerprint.windows`). A moved
hash that is an earlier failure's own, with thumbnails that are nearly alike, makes the later one a copy. As with other
near-duplicates it does not matter whether the earlier one is itself left out, so that neither the order of work nor its
partition changes the result. It knows hashes, labels and positions, not where they are kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from c2b_ray.steps.dataset.fingerprint import MOVED_LARGEST_DIFFERENCE, MOVED_MEAN_DIFFERENCE, Hashes, alike
from c2b_ray.steps.dataset.plan import Ints
from c2b_ray.steps.dataset.repeats import NONE, Marks

MOST_COMPARED = 64
"""Of the failures with one hash, the earliest ones that others are compared with: a thousand stripes have one hash."""


def moved_rows(windows: Hashes) -> tuple[Ints, Hashes, NDArray[np.bool_]]:
    """What is compared of failures with these windows (failures, 1 + moves): the row, a hash, and whether it is moved.

    A moved hash that is the picture's own says nothing: of a blank picture all are.
    """
    is_new = windows != windows[:, :1]
    for column in range(2, windows.shape[1]):
        is_new[:, column] &= (windows[:, 1:column] != windows[:, column : column + 1]).all(axis=1)
    rows, columns = np.nonzero(is_new)
    every = np.arange(len(windows))
    unmoved, moved = np.zeros(len(every), bool), np.ones(len(rows), bool)
    return np.append(every, rows), np.append(windows[:, 0], windows[rows, columns]), np.append(unmoved, moved)


def earliest_moved(marks: Marks, is_moved: NDArray[np.bool_]) -> Ints:
    """Of each entry that is moved, the position of the earliest failure of its label that has its hash as its own, a
    thumbnail that is nearly alike, and comes before it; NONE where there is none, and of the other entries.

    `marks.hashes`: of an entry (`moved_rows`), of all those whose labels and hashes are the same as any of these.
    """
    order = np.lexsort((marks.positions, is_moved, marks.hashes, marks.labels))
    ordered, moved = marks.take(order), is_moved[order]
    starts = np.ones(len(order), bool)
    starts[1:] = (ordered.labels[1:] != ordered.labels[:-1]) | (ordered.hashes[1:] != ordered.hashes[:-1])
    begins = np.flatnonzero(starts)[np.cumsum(starts) - 1]
    earliest = np.full(len(order), NONE, np.int64)
    left = np.flatnonzero(moved)
    for step in range(MOST_COMPARED):
        others = begins[left] + step
        is_earlier = ~moved[others] & (ordered.positions[others] < ordered.positions[left])
        left, others = left[is_earlier], others[is_earlier]
        if not len(left):
            break
        pair = ordered.thumbnails[left], ordered.thumbnails[others]
        same = alike(*pair, MOVED_MEAN_DIFFERENCE, MOVED_LARGEST_DIFFERENCE)
        earliest[left[same]] = ordered.positions[others[same]]
        left = left[~same]
    result = np.full(len(marks), NONE, np.int64)
    result[order] = earliest
    return result
