"""Finds moved copies: failures that show the same as an earlier one of their label, shifted by a pixel.

Each failure has the hash of its inner part, and those of the same part shifted each way (`fingerprint.windows`). A
failure is a copy if one of its shifted hashes equals an earlier failure's unshifted hash and the thumbnails are
similar. As with other near-duplicates it does not matter whether the earlier one is itself left out, so neither the
order of work nor its partition changes the result. It knows hashes, labels and positions, not where they are kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from c2b_ray.steps.dataset.fingerprint import MOVED_LARGEST_DIFFERENCE, MOVED_MEAN_DIFFERENCE, Hashes, alike
from c2b_ray.steps.dataset.plan import Ints
from c2b_ray.steps.dataset.repeats import NONE, Marks

MOST_COMPARED = 64
"""The most failures with one hash, the earliest, that others are compared with: a thousand stripes share one hash."""


def moved_rows(windows: Hashes) -> tuple[Ints, Hashes, NDArray[np.bool_]]:
    """Returns the entries to compare for failures with these windows (failures, 1 + moves): the row, a hash, and
    whether it is shifted.

    A shifted hash that equals the picture's unshifted one carries no information: in a blank picture all do.
    """
    is_new = windows != windows[:, :1]
    for column in range(2, windows.shape[1]):
        is_new[:, column] &= (windows[:, 1:column] != windows[:, column : column + 1]).all(axis=1)
    rows, columns = np.nonzero(is_new)
    every = np.arange(len(windows))
    unmoved, moved = np.zeros(len(every), bool), np.ones(len(rows), bool)
    return np.append(every, rows), np.append(windows[:, 0], windows[rows, columns]), np.append(unmoved, moved)


def earliest_moved(marks: Marks, is_moved: NDArray[np.bool_]) -> Ints:
    """Returns for each shifted entry the position of the earliest earlier failure of its label that has its hash
    unshifted and a similar thumbnail; NONE where there is none, and for unshifted entries.

    `marks.hashes`: one per entry (`moved_rows`). The entries must include all those with the same label and hash as any
    of these.
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
