"""Finds copies across two collections of pictures: pictures of one that a picture of the other shows too.

A copy is what a build leaves out as a near-duplicate (`repeats`, `moved`): the same picture saved again, lighter or
darker, or moved by a pixel. It knows pixels, not what the collections are for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from c2b_ray.audits.dataset.steps.fingerprint import (
    MOVED_LARGEST_DIFFERENCE,
    MOVED_MEAN_DIFFERENCE,
    THUMBNAIL_BYTES,
    WINDOW_BYTES,
    Hashes,
    Thumbnails,
    alike,
    bands,
    differing_bits,
    fingerprint,
    thumbnail,
    windows,
)
from c2b_ray.audits.dataset.steps.plan import Ints
from c2b_ray.roles import Pixels

# Finds near-duplicates: failures whose fingerprint almost equals an earlier one's of the same label, with a similar
# thumbnail.


NONE = np.iinfo(np.int64).max
"""The position where there is no earlier failure."""

_LONG = 64
"""Groups of more entries than this with one band in common are compared one by one, smaller ones together."""
_BLOCK, _CHUNK, _PAIRS = 1024, 2048, 4096


@dataclass(frozen=True)
class CopyMarks:
    """The data by which near-duplicates of failures are recognised. All arrays have the same length.

    `thumbnails` (failures, THUMBNAIL_BYTES): where all are equal, only fingerprints decide.
    """

    positions: Ints  # in the plan
    labels: NDArray[np.int32]
    hashes: Hashes
    thumbnails: Thumbnails

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> CopyMarks:
        return CopyMarks(self.positions[rows], self.labels[rows], self.hashes[rows], self.thumbnails[rows])

    @staticmethod
    def joined(parts: list[CopyMarks]) -> CopyMarks:
        names = ("positions", "labels", "hashes", "thumbnails")
        return CopyMarks(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def bucket_of(labels: NDArray[np.int32], band: Hashes, number: int, buckets: int) -> Ints:
    """Returns the bucket in which each entry of band `number` is compared: the same for equal labels and bits."""
    mixed = band ^ (labels.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(number * 0x2545F491)
    for shift, factor in ((33, 0xFF51AFD7ED558CCD), (33, 0xC4CEB9FE1A85EC53), (33, 1)):  # murmur3's finaliser
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed % np.uint64(buckets)).astype(np.int64)


def earliest_repeats(marks: CopyMarks, distance: int) -> Ints:
    """Returns for each failure the position of the earliest earlier one of its label that differs in at most `distance`
    bits and has a similar thumbnail; NONE where there is none."""
    result = np.full(len(marks), NONE, np.int64)
    for band in bands(marks.hashes, distance + 1):
        result = np.minimum(result, earliest_in_band(marks, band, distance))
    return result


def earliest_in_band(marks: CopyMarks, band: Hashes, distance: int) -> Ints:
    """Does the work of `earliest_repeats` among the failures whose `band` is equal."""
    result = np.full(len(marks), NONE, np.int64)
    if not len(marks):
        return result
    order = np.lexsort((marks.positions, _mixed(marks.thumbnails), marks.hashes, band, marks.labels))
    ordered, bits = marks.take(order), band[order]
    new = np.ones(len(order), bool)
    new[1:] = (ordered.hashes[1:] != ordered.hashes[:-1]) | (ordered.labels[1:] != ordered.labels[:-1])
    new[1:] |= (ordered.thumbnails[1:] != ordered.thumbnails[:-1]).any(axis=1)
    first = np.flatnonzero(new)[np.cumsum(new) - 1]
    # Equal pictures are compared once: among a thousand blank ones every pair would be compared.
    distinct_rows = np.flatnonzero(new)
    earliest_of_distinct = np.full(len(order), NONE, np.int64)
    earliest_of_distinct[distinct_rows] = _earliest_of_distinct(
        ordered.take(distinct_rows), bits[distinct_rows], distance
    )
    earliest = earliest_of_distinct[first]
    repeated = ~new
    earliest[repeated] = np.minimum(earliest[repeated], ordered.positions[first[repeated]])
    result[order] = earliest
    return result


def _earliest_of_distinct(marks: CopyMarks, band: Hashes, distance: int) -> Ints:
    """Compares failures whose hashes or thumbnails differ, where labels and bands are equal."""
    result = np.full(len(marks), NONE, np.int64)
    order = np.lexsort((marks.positions, band, marks.labels))
    marks, band = marks.take(order), band[order]
    starts = np.ones(len(marks), bool)
    starts[1:] = (marks.labels[1:] != marks.labels[:-1]) | (band[1:] != band[:-1])
    begins = np.flatnonzero(starts)
    lengths = np.diff(np.append(begins, len(marks)))
    short = np.repeat(lengths <= _LONG, lengths)
    run = np.cumsum(starts) - 1
    earliest = np.full(len(marks), NONE, np.int64)
    active = np.flatnonzero(short)
    for step in range(1, int(lengths[lengths <= _LONG].max(initial=1))):
        active = active[active >= step]
        active = active[run[active - step] == run[active]]
        near_rows = active[differing_bits(marks.hashes[active], marks.hashes[active - step]) <= distance]
        hit = near_rows[_alike(marks.thumbnails, near_rows, near_rows - step)]
        earliest[hit] = marks.positions[hit - step]  # each earlier than the one before: the last is the earliest
    for begin, length in zip(begins[lengths > _LONG].tolist(), lengths[lengths > _LONG].tolist(), strict=True):
        piece = slice(begin, begin + length)
        earliest[piece] = _earliest_in_run(marks.take(np.arange(begin, begin + length)), distance)
    result[order] = earliest
    return result


def _mixed(thumbnails: Thumbnails) -> Hashes:
    """Returns numbers that are equal for equal thumbnails, and almost never for others."""
    words = np.ascontiguousarray(thumbnails).view(np.uint64)
    factors = np.uint64(0x9E3779B97F4A7C15) * (2 * np.arange(words.shape[1], dtype=np.uint64) + np.uint64(1))
    mixed: Hashes = ((words ^ (words >> np.uint64(29))) * factors).sum(axis=1, dtype=np.uint64)
    return mixed


def _alike(thumbnails: Thumbnails, rows: Ints, other_rows: Ints) -> NDArray[np.bool_]:
    """Applies `alike` to pairs of rows, some at a time."""
    result = np.zeros(len(rows), bool)
    for start in range(0, len(rows), _PAIRS):
        piece = slice(start, start + _PAIRS)
        result[piece] = alike(thumbnails[rows[piece]], thumbnails[other_rows[piece]])
    return result


def repeated_among(new: CopyMarks, earlier: CopyMarks, distance: int) -> NDArray[np.bool_]:
    """Returns which of the `new` failures are near-duplicates of an `earlier` one, or of an earlier one among
    themselves.

    `new` and `earlier` are in the order of their positions, all earlier ones before all new ones.
    """
    all_marks = CopyMarks.joined([earlier, new])
    near = differing_bits(new.hashes[:, None], all_marks.hashes[None, :]) <= distance
    near &= new.labels[:, None] == all_marks.labels[None, :]
    near &= all_marks.positions[None, :] < new.positions[:, None]
    rows, columns = np.nonzero(near)
    result = np.zeros(len(new), bool)
    result[rows[_alike(all_marks.thumbnails, len(earlier) + rows, columns)]] = True
    return result


def _earliest_in_run(marks: CopyMarks, distance: int) -> Ints:
    """Compares each failure of one label and band, in the order of their positions, with all earlier ones, from the
    first on, until one is near."""
    positions, hashes = marks.positions, marks.hashes
    earliest = np.full(len(hashes), NONE, np.int64)
    for start in range(0, len(hashes), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(hashes)))
        for chunk in range(0, start + len(rows), _CHUNK):
            block = slice(chunk, min(chunk + _CHUNK, start + len(rows)))
            near = differing_bits(hashes[rows][:, None], hashes[None, block]) <= distance
            near &= positions[None, block] < positions[rows][:, None]
            first = _first_alike(near, rows, chunk, marks.thumbnails)
            hit = first >= 0
            earliest[rows[hit]] = positions[first[hit]]
            rows = rows[~hit]
            if not len(rows):
                break
    return earliest


def _first_alike(near: NDArray[np.bool_], rows: Ints, start: int, thumbnails: Thumbnails) -> Ints:
    """Returns for each row the first of those that are `near` it (rows, others) whose thumbnail is similar; -1 where
    none is.

    `start`: the row of the first other one. `near` is modified.
    """
    first = np.full(len(rows), -1, np.int64)
    remaining = np.flatnonzero(near.any(axis=1))
    while len(remaining):
        columns = near[remaining].argmax(axis=1)
        is_alike = _alike(thumbnails, rows[remaining], start + columns)
        first[remaining[is_alike]] = start + columns[is_alike]
        near[remaining, columns] = False
        remaining = remaining[~is_alike]
        remaining = remaining[near[remaining].any(axis=1)]
    return first


def within_cap(captions: Ints, unique: NDArray[np.bool_], cap: int, before: int) -> NDArray[np.bool_]:
    """Returns which failures the cap of their caption keeps: the first `cap` of the `unique` ones in the order of
    draws.

    `captions`: the caption number of each failure, ascending. `before`: how many unique ones of the first caption are
    in earlier shards.
    """
    cumulative = np.cumsum(unique)
    starts = np.ones(len(captions), bool)
    starts[1:] = captions[1:] != captions[:-1]
    begins = np.flatnonzero(starts)
    earlier = np.where(begins > 0, cumulative[begins - 1], 0)
    rank = cumulative - np.repeat(earlier, np.diff(np.append(begins, len(captions))))
    if len(captions):
        rank[captions == captions[0]] += before
    is_kept: NDArray[np.bool_] = unique & (rank <= cap)
    return is_kept


# Finds moved copies: failures that show the same as an earlier one of their label, shifted by a pixel.


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
    all_rows = np.arange(len(windows))
    unmoved, moved = np.zeros(len(all_rows), bool), np.ones(len(rows), bool)
    return np.append(all_rows, rows), np.append(windows[:, 0], windows[rows, columns]), np.append(unmoved, moved)


def earliest_moved(marks: CopyMarks, is_moved: NDArray[np.bool_]) -> Ints:
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
    remaining = np.flatnonzero(moved)
    for step in range(MOST_COMPARED):
        neighbours = begins[remaining] + step
        is_earlier = ~moved[neighbours] & (ordered.positions[neighbours] < ordered.positions[remaining])
        remaining, neighbours = remaining[is_earlier], neighbours[is_earlier]
        if not len(remaining):
            break
        pair = ordered.thumbnails[remaining], ordered.thumbnails[neighbours]
        is_same = alike(*pair, MOVED_MEAN_DIFFERENCE, MOVED_LARGEST_DIFFERENCE)
        earliest[remaining[is_same]] = ordered.positions[neighbours[is_same]]
        remaining = remaining[~is_same]
    result = np.full(len(marks), NONE, np.int64)
    result[order] = earliest
    return result


DISTANCE = 4
"""The bits of 64 in which the hashes of a picture and its copy may differ."""


@dataclass(frozen=True)
class PictureFingerprints:
    """What pictures are compared by: `hashes` (n,), `thumbnails` (n, THUMBNAIL_BYTES) and `windows` (n, 1 + moves)."""

    hashes: Hashes
    thumbnails: Thumbnails
    windows: Hashes

    def __len__(self) -> int:
        return len(self.hashes)

    @staticmethod
    def of(pictures: Iterable[Pixels]) -> PictureFingerprints:
        hashes, levels, inner = [], bytearray(), bytearray()
        for picture in pictures:
            hashes.append(fingerprint(picture))
            levels += thumbnail(picture)
            inner += windows(picture)
        return PictureFingerprints(
            np.array(hashes, np.uint64),
            np.frombuffer(bytes(levels), np.uint8).reshape(-1, THUMBNAIL_BYTES),
            np.frombuffer(bytes(inner), "<u8").reshape(-1, WINDOW_BYTES // 8),
        )

    @staticmethod
    def joined(parts: Iterable[PictureFingerprints]) -> PictureFingerprints:
        all_parts = list(parts)
        return PictureFingerprints(
            *(
                np.concatenate([getattr(part, name) for part in all_parts])
                for name in ("hashes", "thumbnails", "windows")
            )
        )


def are_copies(pictures: PictureFingerprints, originals: PictureFingerprints) -> NDArray[np.bool_]:
    """Returns which of the pictures are copies of one of the originals."""
    # The originals come first: so the earliest match of a picture is an original, if any original matches.
    count, joined = len(originals), PictureFingerprints.joined([originals, pictures])
    all_rows = np.arange(len(joined))
    marks = CopyMarks(all_rows, np.zeros(len(all_rows), np.int32), joined.hashes, joined.thumbnails)
    copies: NDArray[np.bool_] = earliest_repeats(marks, DISTANCE) < count
    rows, hashes, is_moved = moved_rows(joined.windows)
    inner = CopyMarks(rows, np.zeros(len(rows), np.int32), hashes, joined.thumbnails[rows])
    copies[rows[earliest_moved(inner, is_moved) < count]] = True
    return copies[count:]
