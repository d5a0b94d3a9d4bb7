"""Finds near-duplicates: images that are the same picture, under another name or saved again at another size or
quality.

It knows pixels and bytes; not what an image shows: two pictures of one kind of scene are no duplicates. A fingerprint
is small enough to be stored and sent without its image.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from c2b_ray.steps.draw import ImageIds, Ints, Mask, counted, numbered, repeated, wide
from c2b_ray.steps.fingerprint import HASH

DISTINCT_COLUMNS = ["image_id", "content", "fingerprint"]
"""The columns of `tables.IMAGES` that `Distinct` needs; no bytes."""

BAND = 2
"""Bytes of a band of the 64 bits of gradients: two images are compared where one of the bands agrees."""

MEAN_DIFFERENCE, LARGEST_DIFFERENCE = 1.8, 16.0
"""Levels (of 255) by which the thumbnails of one picture, saved twice, may differ, on average and anywhere."""

_SUMMED_AT_ONCE = 4096
_BLOCK = 1 << 16
"""Pairs of thumbnails that are compared at once."""


class Distinct:
    """Decides which images of a run are the same picture: those of equal content, and near-duplicates by their
    fingerprints.

    `images`: a table with COLUMNS. An image without a fingerprint is no picture, and is a duplicate of none: each
    unreadable file is a separate error. The same holds for an image that the table does not list. `classes`: numbers of
    the classes of images, where they are known. Near-duplicates of several classes are no copies, but views of one
    scene: a fixed camera's, with a part and without it.
    """

    def __init__(self, images: pa.Table, classes: tuple[ImageIds, Ints] | None = None) -> None:
        self._ids = ImageIds(wide(images["image_id"]).combine_chunks())
        self._fingerprints = images["fingerprint"].cast(pa.large_binary())
        with_fingerprint = np.flatnonzero(self._fingerprints.is_valid().to_numpy())
        # Among those with a fingerprint, the first of equal content represents the others.
        first = _first_of_content(images["content"].take(pa.array(with_fingerprint)))
        contents = np.flatnonzero(first == np.arange(len(first)))
        rows = with_fingerprint[contents]
        groups = near_duplicates(
            _matrix(self._fingerprints if len(rows) == len(self._ids) else self._fingerprints.take(pa.array(rows)))
        )
        if classes is not None:
            groups = _of_one_class(groups, _known(classes, self._ids.names(rows)))
        stands = np.arange(len(first))
        stands[contents] = contents[groups]
        self._picture = np.arange(len(self._ids))
        self._picture[with_fingerprint] = with_fingerprint[stands[first]]
        self._first = np.full(len(self._ids), -1, np.int64)
        self._first[with_fingerprint] = with_fingerprint[first]
        self._first[~repeated(self._picture)] = -1

    def pictures(self, ids: ImageIds) -> Ints:
        """Returns a number for the picture of each of these images: the same for all copies of one."""
        rows = self._ids.numbers(ids.ids)
        unknown = rows < 0
        pictures = np.append(self._picture, 0)[rows]
        pictures[unknown] = len(self._ids) + np.flatnonzero(unknown)
        return pictures

    def repeated(self, ids: ImageIds, numbers: Ints) -> Mask:
        """Returns which of these images have a copy in the run."""
        has_copy: Mask = np.append(self._first, -1)[self._ids.numbers(ids.names(numbers))] >= 0
        return has_copy

    def fingerprints(self, ids: ImageIds, numbers: Ints) -> Iterator[bytes | None]:
        """Yields the fingerprints of these images, None for one that has no copy in the run."""
        rows = self._ids.numbers(ids.names(numbers))
        for row in np.append(self._first, -1)[rows].tolist():
            yield None if row < 0 else self._fingerprints[row].as_py()


def _first_of_content(content: pa.ChunkedArray) -> Ints:
    """Returns the first row with the content of each row; for a row without content, the row itself."""
    names, numbers = numbered(pc.fill_null(wide(content), ""))
    rows = np.arange(len(numbers))
    first = np.full(len(names), len(rows), np.int64)
    np.minimum.at(first, numbers, rows)
    empty = pc.index(names, "").as_py()
    return np.where(numbers == empty, rows, first[numbers])


def _known(classes: tuple[ImageIds, Ints], ids: pa.Array) -> Ints:
    """Returns the classes of these images; -1 where it is not known."""
    ids_known, numbers = classes
    classes_of_ids: Ints = np.append(numbers, -1)[ids_known.numbers(ids)]
    return classes_of_ids


def _of_one_class(group_of: Ints, classes: Ints) -> Ints:
    """Takes apart the groups of near-duplicates that hold images of several classes."""
    width = int(classes.max(initial=0)) + 1
    has_class = classes >= 0
    kinds, _ = counted(group_of[has_class] * width + classes[has_class])
    groups, number = counted(kinds // width)
    result: Ints = np.where(np.isin(group_of, groups[number > 1]), np.arange(len(group_of)), group_of)
    return result


def _matrix(fingerprints: pa.ChunkedArray) -> NDArray[np.uint8]:
    """Returns fingerprints of equal length as rows of bytes."""
    combined = fingerprints.combine_chunks()
    offsets = np.frombuffer(combined.buffers()[1], np.int64)[combined.offset : combined.offset + len(combined) + 1]
    data = (
        np.frombuffer(combined.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        if len(combined)
        else np.zeros(0)
    )
    return data.reshape(len(combined), -1 if len(combined) else HASH).astype(np.uint8, copy=False)


def near_duplicates(fingerprints: NDArray[np.uint8]) -> Ints:
    """Returns for each fingerprint, a row of bytes, the first row of those that near-duplicates join it with."""
    if not len(fingerprints):
        return np.zeros(0, np.int64)
    # Equal ones count once: among a thousand blank pictures every pair would be compared.
    equal = _first_equal(fingerprints)
    first_rows, group_numbers = np.unique(equal, return_inverse=True)
    group_of_row = _joined(fingerprints if len(first_rows) == len(equal) else fingerprints[first_rows])[group_numbers]
    first = np.full(len(first_rows), len(equal))
    np.minimum.at(first, group_of_row, np.arange(len(equal)))
    first_of_row: Ints = first[group_of_row]
    return first_of_row


def _first_equal(fingerprints: NDArray[np.uint8]) -> Ints:
    """Returns the first row with the bytes of each row, or a later one, rarely, where other bytes have the same sum.

    Rows are compared by sums, not sorted: for millions of rows each copy of the fingerprints would take gigabytes.
    """
    factors = np.random.default_rng(0).integers(0, 2**63, fingerprints.shape[1], np.uint64) * 2 + 1
    sums = [
        (fingerprints[start : start + _SUMMED_AT_ONCE] * factors).sum(axis=1, dtype=np.uint64)
        for start in range(0, len(fingerprints), _SUMMED_AT_ONCE)
    ]
    _, first_rows, group_numbers = np.unique(np.concatenate(sums), return_index=True, return_inverse=True)
    first: Ints = first_rows[group_numbers]
    repeats = np.flatnonzero(first != np.arange(len(first)))
    collisions = repeats[(fingerprints[repeats] != fingerprints[first[repeats]]).any(axis=1)]
    first[collisions] = collisions
    return first


def _joined(fingerprints: NDArray[np.uint8]) -> Ints:
    """Returns a number for each fingerprint: the same for those that near-duplicates join."""
    n = len(fingerprints)
    hashes, thumbnails = fingerprints[:, :HASH], fingerprints[:, HASH:]
    level = thumbnails.mean(axis=1)
    pairs = [
        _alike(np.ascontiguousarray(hashes[:, band : band + BAND]).view(np.uint16)[:, 0], level, thumbnails)
        for band in range(0, HASH, BAND)
    ]
    left_rows, right_rows = np.concatenate(pairs, axis=1)
    _, label = connected_components(
        coo_array((np.ones(len(left_rows), bool), (left_rows, right_rows)), shape=(n, n)), directed=False
    )
    result: Ints = label.astype(np.int64)
    return result


def _alike(band: NDArray[np.uint16], level: NDArray[np.float64], thumbnails: NDArray[np.uint8]) -> Ints:
    """Returns the pairs (2, pairs) of near-duplicates among thumbnails whose bands of gradients are equal."""
    # The averages of two thumbnails differ by no more than the thumbnails do on average. So thumbnails are sorted by
    # average, and each is compared with the next ones while their averages are close enough.
    order = np.lexsort((level, band))
    key, ordered = band[order], level[order]
    active, step, duplicates = np.arange(len(order) - 1), 1, [np.zeros((2, 0), np.int64)]
    while len(active):
        later = active + step
        is_near = (key[later] == key[active]) & (ordered[later] <= ordered[active] + MEAN_DIFFERENCE + 1e-6)
        active = active[is_near]
        for start in range(0, len(active), _BLOCK):
            block = active[start : start + _BLOCK]
            pair = np.stack([order[block], order[block + step]])
            gap = np.abs(thumbnails[pair[0]].astype(np.int16) - thumbnails[pair[1]])
            is_same = (gap.mean(axis=1) <= MEAN_DIFFERENCE) & (gap.max(axis=1) <= LARGEST_DIFFERENCE)
            duplicates.append(pair[:, is_same])
        step += 1
        active = active[active + step < len(order)]
    return np.concatenate(duplicates, axis=1)


class Gallery:
    """A collection of pictures, each once: a near-duplicate of a picture in it is rejected.

    Pictures are added one by one. Whether one is accepted never depends on later ones, as it would where duplicates of
    duplicates are joined.
    """

    def __init__(self) -> None:
        self._thumbnails: list[NDArray[np.int16]] = []
        self._with_band: dict[tuple[int, bytes], list[int]] = defaultdict(list)

    def add(self, mark: bytes | None) -> bool:
        """Adds the picture with this `fingerprint` and returns whether it is new. None, for an image that is no
        picture, is always new."""
        if mark is None:
            return True
        bands = [(start, mark[start : start + BAND]) for start in range(0, HASH, BAND)]
        thumbnail = np.frombuffer(mark[HASH:], np.uint8).astype(np.int16)
        for number in {number for band in bands for number in self._with_band.get(band, ())}:
            gap = np.abs(self._thumbnails[number] - thumbnail)
            if gap.mean() <= MEAN_DIFFERENCE and gap.max() <= LARGEST_DIFFERENCE:
                return False
        for band in bands:
            self._with_band[band].append(len(self._thumbnails))
        self._thumbnails.append(thumbnail)
        return True
