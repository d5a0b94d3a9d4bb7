"""Near-duplicates: images that are one picture, under another name or saved again at another size or quality.

It knows pixels and bytes; not what an image shows: two pictures of one kind of scene are no duplicates. A fingerprint
is small enough to travel without its image.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from c2b_ray.roles import Pixels

COLUMNS = ["image_id", "content", "fingerprint"]
"""Of `schemas.IMAGES`: what `Distinct` needs to know of a run's images, and no bytes."""

SIDE = 8
BAND = 2
"""Bytes of a band of the 64 bits of gradients: two images are compared where one of the bands agrees."""

MEAN_DIFFERENCE, LARGEST_DIFFERENCE = 1.8, 16.0
"""Levels (of 255) by which the thumbnails of one picture, saved twice, may differ, on average and anywhere."""


class Distinct:
    """Which images of a run are one picture: those of equal content, and near-duplicates by their fingerprints.

    `images`: a table with COLUMNS. An image without a fingerprint is no picture, and stands for itself: each file that
    cannot be read is an error of its own. So does an image that the table does not list.
    """

    def __init__(self, images: pa.Table) -> None:
        first: dict[str, str] = {}
        own, marks = {}, {}
        for image, content, mark in sorted(zip(*(images[name].to_pylist() for name in COLUMNS), strict=True)):
            if mark is not None:
                own[image] = first.setdefault(content or f"image {image}", image)
                marks[own[image]] = mark
        stands = representatives(marks)
        self._marks = {image: marks[copy] for image, copy in own.items()}
        self._picture = {image: stands[copy] for image, copy in own.items()}

    def picture(self, image: str) -> str:
        """The id that stands for all copies of an image, in the whole run."""
        return self._picture.get(image, image)

    def distinct(self, images: set[str], order: Mapping[str, int] | None = None) -> set[str]:
        """One of these images for each picture among them: the first in alphabetical order; or, with `order`, every
        image that is no copy of one before it, so that what is kept does not depend on what is drawn later."""
        if order is not None:
            gallery = Gallery()
            return {i for i in sorted(images, key=lambda i: (order[i], i)) if gallery.add(self._marks.get(i))}
        kept: dict[str, str] = {}
        for image in sorted(images):
            # Not what stands for the picture in the whole run: that may have been drawn for another class.
            kept.setdefault(self.picture(image), image)
        return set(kept.values())


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
    # Thumbnails that differ by so little on average differ by no more in their own averages.
    levels = thumbnails[rows].mean(axis=1)
    rows, levels = rows[np.argsort(levels, kind="stable")], np.sort(levels, kind="stable")
    ends = np.searchsorted(levels, levels + MEAN_DIFFERENCE + 1e-6, side="right")
    for place, row in enumerate(rows):
        later = rows[place + 1 : ends[place]]
        if not len(later):
            continue
        gap = np.abs(thumbnails[later].astype(np.int16) - thumbnails[row])
        same = (gap.mean(axis=1) <= MEAN_DIFFERENCE) & (gap.max(axis=1) <= LARGEST_DIFFERENCE)
        for other in later[same]:
            a, b = _root(parent, int(row)), _root(parent, int(other))
            parent[max(a, b)] = min(a, b)


def _root(parent: NDArray[np.int64], row: int) -> int:
    while parent[row] != row:
        row = int(parent[row])
    return row


class Gallery:
    """Pictures one by one, each once: a near-duplicate of one that is there is turned away.

    What is let in never depends on what comes later, as it does where duplicates of duplicates are joined.
    """

    def __init__(self) -> None:
        self._thumbnails: list[NDArray[np.int16]] = []
        self._with_band: dict[tuple[int, bytes], list[int]] = defaultdict(list)

    def add(self, mark: bytes | None) -> bool:
        """Whether the picture with this `fingerprint` is a new one. None, of what is no picture, always is."""
        if mark is None:
            return True
        bands = [(start, mark[start : start + BAND]) for start in range(0, 8, BAND)]
        thumbnail = np.frombuffer(mark[8:], np.uint8).astype(np.int16)
        for place in {place for band in bands for place in self._with_band.get(band, ())}:
            gap = np.abs(self._thumbnails[place] - thumbnail)
            if gap.mean() <= MEAN_DIFFERENCE and gap.max() <= LARGEST_DIFFERENCE:
                return False
        for band in bands:
            self._with_band[band].append(len(self._thumbnails))
        self._thumbnails.append(thumbnail)
        return True
