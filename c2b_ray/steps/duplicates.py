"""Finds near-duplicates: images that are the same picture, under another name or saved again at another size or
quality.

It knows pixels and bytes; not what an image shows: two pictures of one kind of scene are no duplicates. A fingerprint
is small enough to be stored and sent without its image.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from c2b_ray.roles import Pixels
from c2b_ray.steps.image_ids import ImageIds, Ints, counted, numbered, repeated, wide

COLUMNS = ["image_id", "content", "fingerprint"]
"""The columns of `schemas.IMAGES` that `Distinct` needs; no bytes."""

SIDE = 8
BAND = 2
"""Bytes of a band of the 64 bits of gradients: two images are compared where one of the bands agrees."""

FINE_ENOUGH = 48
"""Pixels per side from which on a reduced picture has nearly the same fingerprint: levels differ by 0.2 on average."""

MEAN_DIFFERENCE, LARGEST_DIFFERENCE = 1.8, 16.0
"""Levels (of 255) by which the thumbnails of one picture, saved twice, may differ, on average and anywhere."""

_HASH = 8
_LEVELS_AT_ONCE = 1 << 15
"""Levels that are summed at once: for more, OpenBLAS starts threads, which many processes beside each other pay for
with twenty times the time."""
_COMPILED_FROM = 1 << 17
"""Levels of a picture from which on compiled sums are used: to load them takes as long as some thousand small ones."""
_GREY = np.array([19595, 38470, 7471]) / 2**16  # of red, green and blue: ITU-R 601, as Pillow's "L"
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
        marked = np.flatnonzero(self._fingerprints.is_valid().to_numpy())
        # Among those with a fingerprint, the first of equal content represents the others.
        first = _first_of_content(images["content"].take(pa.array(marked)))
        contents = np.flatnonzero(first == np.arange(len(first)))
        rows = marked[contents]
        joined = near_duplicates(
            _matrix(self._fingerprints if len(rows) == len(self._ids) else self._fingerprints.take(pa.array(rows)))
        )
        if classes is not None:
            joined = _of_one_class(joined, _known(classes, self._ids.names(rows)))
        stands = np.arange(len(first))
        stands[contents] = contents[joined]
        self._picture = np.arange(len(self._ids))
        self._picture[marked] = marked[stands[first]]
        self._first = np.full(len(self._ids), -1, np.int64)
        self._first[marked] = marked[first]
        self._first[~repeated(self._picture)] = -1

    def pictures(self, ids: ImageIds) -> Ints:
        """Returns a number for the picture of each of these images: the same for all copies of one."""
        rows = self._ids.numbers(ids.ids)
        alone = rows < 0
        pictures = np.append(self._picture, 0)[rows]
        pictures[alone] = len(self._ids) + np.flatnonzero(alone)
        return pictures

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
    nothing = pc.index(names, "").as_py()
    return np.where(numbers == nothing, rows, first[numbers])


def _known(classes: tuple[ImageIds, Ints], ids: pa.Array) -> Ints:
    """Returns the classes of these images; -1 where it is not known."""
    ids_known, numbers = classes
    known: Ints = np.append(numbers, -1)[ids_known.numbers(ids)]
    return known


def _of_one_class(joined: Ints, classes: Ints) -> Ints:
    """Takes apart the groups of near-duplicates that hold images of several classes."""
    width = int(classes.max(initial=0)) + 1
    known = classes >= 0
    kinds, _ = counted(joined[known] * width + classes[known])
    groups, number = counted(kinds // width)
    apart: Ints = np.where(np.isin(joined, groups[number > 1]), np.arange(len(joined)), joined)
    return apart


def _matrix(fingerprints: pa.ChunkedArray) -> NDArray[np.uint8]:
    """Returns fingerprints of equal length as rows of bytes."""
    whole = fingerprints.combine_chunks()
    offsets = np.frombuffer(whole.buffers()[1], np.int64)[whole.offset : whole.offset + len(whole) + 1]
    data = np.frombuffer(whole.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]] if len(whole) else np.zeros(0)
    return data.reshape(len(whole), -1 if len(whole) else _HASH).astype(np.uint8, copy=False)


def fingerprint(pixels: Pixels, size: tuple[int, int] | None = None) -> bytes:
    """Returns 8 bytes of gradient signs (dHash, Krawetz 2013), then a thumbnail of SIDE × SIDE × 3 levels.

    Both are means of areas, in whole numbers: a border within a pixel gives each side its share of the pixel. So a
    picture has the same fingerprint on every machine, and nearly the same one at any size. `size`: height and width of
    the picture of which `pixels` are a reduction by a whole factor; the last pixel of a line is cut short where the
    factor does not divide them.
    """
    height, width = size or (pixels.shape[0], pixels.shape[1])
    strips = _strips(np.ascontiguousarray(pixels).reshape(len(pixels), -1), height).reshape(SIDE, -1, 3)
    thumbnail = np.rint(_shares(width, pixels.shape[1], SIDE) @ strips / (height * width))
    coloured = np.rint(_shares(width, pixels.shape[1], SIDE + 1) @ strips / (height * width))
    grey = np.rint(coloured @ _GREY)
    return np.packbits(grey[:, 1:] > grey[:, :-1]).tobytes() + thumbnail.astype(np.uint8).tobytes()


def _strips(lines: NDArray[np.uint8], height: int) -> NDArray[np.float64]:
    """Returns the sums of a picture's lines over SIDE equal strips, (SIDE, levels)."""
    if lines.size < _COMPILED_FROM:
        rows, strips = _shares(height, len(lines), SIDE), np.zeros((SIDE, lines.shape[1]))
        for start in range(0, len(lines), at_once := max(1, _LEVELS_AT_ONCE // lines.shape[1])):
            strips += rows[:, start : start + at_once] @ lines[start : start + at_once]
        return strips
    from c2b_ray.steps.area_sums import strip_sums

    return np.asarray(strip_sums(lines, height, SIDE), np.float64)


@lru_cache(maxsize=64)
def _shares(length: int, pixels: int, parts: int) -> NDArray[np.float64]:
    """Returns, for a line of `pixels` pixels, each pixel's share of each of `parts` equal parts: (parts, pixels),
    `length` per part.

    All pixels but the last are whole and of equal length.
    """
    borders = np.arange(parts + 1) * length
    edges = np.minimum(np.arange(pixels + 1) * -(-length // pixels), length) * parts
    overlaps = np.minimum.outer(borders[1:], edges[1:]) - np.maximum.outer(borders[:-1], edges[:-1])
    shares: NDArray[np.float64] = np.maximum(overlaps, 0).astype(np.float64)
    return shares


def near_duplicates(fingerprints: NDArray[np.uint8]) -> Ints:
    """Returns for each fingerprint, a row of bytes, the first row of those that near-duplicates join it with."""
    if not len(fingerprints):
        return np.zeros(0, np.int64)
    # Equal ones count once: among a thousand blank pictures every pair would be compared.
    equal = _first_equal(fingerprints)
    firsts, group_numbers = np.unique(equal, return_inverse=True)
    joined = _joined(fingerprints if len(firsts) == len(equal) else fingerprints[firsts])[group_numbers]
    first = np.full(len(firsts), len(equal))
    np.minimum.at(first, joined, np.arange(len(equal)))
    first_of_row: Ints = first[joined]
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
    _, firsts, group_numbers = np.unique(np.concatenate(sums), return_index=True, return_inverse=True)
    first: Ints = firsts[group_numbers]
    again = np.flatnonzero(first != np.arange(len(first)))
    others = again[(fingerprints[again] != fingerprints[first[again]]).any(axis=1)]
    first[others] = others
    return first


def _joined(fingerprints: NDArray[np.uint8]) -> Ints:
    """Returns a number for each fingerprint: the same for those that near-duplicates join."""
    n = len(fingerprints)
    hashes, thumbnails = fingerprints[:, :_HASH], fingerprints[:, _HASH:]
    level = thumbnails.mean(axis=1)
    pairs = [
        _alike(np.ascontiguousarray(hashes[:, band : band + BAND]).view(np.uint16)[:, 0], level, thumbnails)
        for band in range(0, _HASH, BAND)
    ]
    one, other = np.concatenate(pairs, axis=1)
    _, label = connected_components(coo_array((np.ones(len(one), bool), (one, other)), shape=(n, n)), directed=False)
    joined: Ints = label.astype(np.int64)
    return joined


def _alike(band: NDArray[np.uint16], level: NDArray[np.float64], thumbnails: NDArray[np.uint8]) -> Ints:
    """Returns the pairs (2, pairs) of near-duplicates among thumbnails whose bands of gradients are equal."""
    # The averages of two thumbnails differ by no more than the thumbnails do on average. So thumbnails are sorted by
    # average, and each is compared with the next ones while their averages are close enough.
    order = np.lexsort((level, band))
    key, ordered = band[order], level[order]
    active, step, duplicates = np.arange(len(order) - 1), 1, [np.zeros((2, 0), np.int64)]
    while len(active):
        after = active + step
        near = (key[after] == key[active]) & (ordered[after] <= ordered[active] + MEAN_DIFFERENCE + 1e-6)
        active = active[near]
        for start in range(0, len(active), _BLOCK):
            block = active[start : start + _BLOCK]
            pair = np.stack([order[block], order[block + step]])
            gap = np.abs(thumbnails[pair[0]].astype(np.int16) - thumbnails[pair[1]])
            same = (gap.mean(axis=1) <= MEAN_DIFFERENCE) & (gap.max(axis=1) <= LARGEST_DIFFERENCE)
            duplicates.append(pair[:, same])
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
        bands = [(start, mark[start : start + BAND]) for start in range(0, _HASH, BAND)]
        thumbnail = np.frombuffer(mark[_HASH:], np.uint8).astype(np.int16)
        for number in {number for band in bands for number in self._with_band.get(band, ())}:
            gap = np.abs(self._thumbnails[number] - thumbnail)
            if gap.mean() <= MEAN_DIFFERENCE and gap.max() <= LARGEST_DIFFERENCE:
                return False
        for band in bands:
            self._with_band[band].append(len(self._thumbnails))
        self._thumbnails.append(thumbnail)
        return True
