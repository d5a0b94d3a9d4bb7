"""The draws that a shard keeps while it is made: the outcome of each, and the images that may become rows.

The image of a failure is not kept if it is a near-duplicate of an earlier one of the shard, or beyond its caption's cap
within the shard: the second pass leaves it out, or, if it turns out to be needed, has it drawn again. So a shard never
holds more images of a caption than the cap. It knows outcomes and numbers, not files.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from c2b_ray.schemas.dataset import CANDIDATE, DROPS
from c2b_ray.steps.dataset.fingerprint import THUMBNAIL_BYTES, WINDOW_BYTES, Thumbnails
from c2b_ray.steps.dataset.plan import Ints
from c2b_ray.steps.dataset.repeats import Marks, repeated_among
from c2b_ray.steps.dataset.shard import CODE, REASONS, Candidate, Outcome


class ShardDraws:
    """The draws of one shard, batch by batch. `distance`: of near-duplicates; None: keep them. `cap`: per caption."""

    def __init__(self, draws: int, distance: int | None, cap: int) -> None:
        self._distance, self._cap = distance, cap
        self._codes = np.zeros(draws, np.uint8)
        self._hashes, self._labels = np.zeros(draws, np.uint64), np.zeros(draws, np.int32)
        self._thumbnails = np.zeros((draws, THUMBNAIL_BYTES), np.uint8)  # no memory until failures write theirs
        self._windows = np.zeros((draws, WINDOW_BYTES), np.uint8)
        self._ids: dict[int, str] = {}
        self._details: dict[int, str] = {}
        self._failures: list[int] = []
        self._kept: Counter[int] = Counter()
        self._seen = 0

    def add(self, outcome: Outcome, label_numbers: NDArray[np.int32]) -> list[Candidate]:
        """Records the next batch; returns the candidates whose images are kept. `label_numbers`: by draw."""
        first, count = self._seen, len(outcome.codes)
        self._seen += count
        self._codes[first : self._seen] = outcome.codes
        self._labels[first : self._seen] = label_numbers
        self._details |= {first + index: detail for index, detail in outcome.details.items()}
        for candidate in outcome.candidates:
            self._hashes[first + candidate.index] = candidate.hash
            self._thumbnails[first + candidate.index] = np.frombuffer(candidate.thumbnail, np.uint8)
            self._windows[first + candidate.index] = np.frombuffer(candidate.windows, np.uint8)
            self._ids[first + candidate.index] = candidate.image_id
        new = [first + candidate.index for candidate in outcome.candidates]
        repeated = self._repeated(new)
        self._failures += new
        return [
            one for one, again in zip(outcome.candidates, repeated, strict=True) if not again and self._within_cap(one)
        ]

    def table(self, caption_numbers: Ints, draws: Ints) -> pa.Table:
        """Returns a row of `schemas.dataset.DROPS` per draw; the reason is `CANDIDATE` where it may become a row."""
        count = len(self._codes)
        failed = self._codes == CODE[CANDIDATE]
        of_failures = pa.array(np.cumsum(failed) - 1, pa.int64(), mask=~failed)
        columns = {
            "caption_number": pa.array(caption_numbers, pa.int32()),
            "draw": pa.array(draws, pa.int64()),
            "reason": pa.array(REASONS, pa.string()).take(pa.array(self._codes)),
            "detail": pa.array([self._details.get(index) for index in range(count)], pa.string()),
            "image_id": pa.array([self._ids.get(index) for index in range(count)], pa.string()),
            "fingerprint": pa.array(self._hashes, pa.uint64(), mask=~failed),
            "thumbnail": thumbnail_column(self._thumbnails[failed]).take(of_failures),
            "windows": thumbnail_column(self._windows[failed]).take(of_failures),
        }
        return pa.table(columns, schema=DROPS)

    def counts(self) -> dict[str, int]:
        """Returns the number of draws by reason."""
        numbers = np.bincount(self._codes, minlength=len(REASONS)).tolist()
        return {reason: number for reason, number in zip(REASONS, numbers, strict=True) if number}

    def _repeated(self, new: list[int]) -> list[bool]:
        if self._distance is None or not new:
            return [False] * len(new)
        repeated = repeated_among(self._marks(new), self._marks(self._failures), self._distance)
        return [bool(again) for again in repeated]

    def _marks(self, indices: list[int]) -> Marks:
        rows = np.array(indices, np.int64)
        return Marks(rows, self._labels[rows], self._hashes[rows], self._thumbnails[rows])

    def _within_cap(self, candidate: Candidate) -> bool:
        number = candidate.wanted.caption.number
        self._kept[number] += 1
        return self._kept[number] <= self._cap


def thumbnail_column(levels: Thumbnails) -> pa.Array:
    """Returns thumbnails, or other bytes (images, bytes), as a column of a table."""
    data = pa.py_buffer(np.ascontiguousarray(levels).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(levels.shape[1]), len(levels), [None, data])


def thumbnails_of(column: pa.ChunkedArray) -> Thumbnails:
    """Returns the thumbnails of a column made by `thumbnail_column`. The column has no nulls."""
    return levels_of(column, THUMBNAIL_BYTES)


def levels_of(column: pa.ChunkedArray, width: int) -> Thumbnails:
    """Returns the bytes of a column of `width` bytes per row, without nulls: (rows, width)."""
    whole = pa.concat_arrays([pa.array([], column.type), *column.chunks])
    levels = np.frombuffer(whole.buffers()[1] or b"", np.uint8)[: len(whole) * width]
    return levels.reshape(len(whole), width)
