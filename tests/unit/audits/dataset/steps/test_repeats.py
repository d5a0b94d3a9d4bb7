"""Near-duplicates against all pairs compared one by one, in one piece and in buckets."""

import numpy as np
import pytest

from c2b_ray.audits.dataset.steps.copies import NONE, Marks, bucket_of, earliest_in_band, earliest_repeats, within_cap
from c2b_ray.audits.dataset.steps.fingerprint import alike, bands, differing_bits


def _marks(random, count, spread):
    """Clusters of hashes that differ in few bits, of two labels and three pictures, in no order."""
    hashes = random.integers(0, 2**63, 6).astype(np.uint64)[random.integers(0, 6, count)]
    for _ in range(spread):
        hashes = hashes ^ (np.uint64(1) << random.integers(0, 64, count).astype(np.uint64))
    pictures = random.integers(0, 256, (3, 192), np.uint8)[random.integers(0, 3, count)]
    thumbnails = (pictures // 2 + random.integers(0, 4, (count, 192))).astype(np.uint8)
    thumbnails[::3] = pictures[::3] // 2  # some are equal
    labels = random.integers(0, 2, count).astype(np.int32)
    return Marks(random.permutation(9 * count)[:count], labels, hashes, thumbnails)


def _by_all_pairs(marks, distance):
    near = differing_bits(marks.hashes[:, None], marks.hashes[None, :]) <= distance
    near &= marks.labels[:, None] == marks.labels[None, :]
    near &= marks.positions[None, :] < marks.positions[:, None]
    for row in np.flatnonzero(near.any(axis=1)):
        others = np.flatnonzero(near[row])
        near[row, others] = alike(marks.thumbnails[others], np.broadcast_to(marks.thumbnails[row], (len(others), 192)))
    return np.where(near, marks.positions[None, :], NONE).min(axis=1, initial=NONE)


@pytest.mark.parametrize("seed", range(8))
def test_the_earliest_near_duplicate_is_that_of_all_pairs(seed):
    random = np.random.default_rng(seed)
    marks = _marks(random, int(random.integers(0, 500)), seed)
    for distance in (0, 2, 5):
        assert (earliest_repeats(marks, distance) == _by_all_pairs(marks, distance)).all()


def test_buckets_compared_apart_find_the_same():
    marks, buckets = _marks(np.random.default_rng(1), 400, 3), 7
    result = np.full(len(marks), NONE, np.int64)
    for number, band in enumerate(bands(marks.hashes, 5)):
        of = bucket_of(marks.labels, band, number, buckets)
        assert len(np.unique(of)) > 1
        for bucket in range(buckets):
            rows = np.flatnonzero(of == bucket)
            found = earliest_in_band(marks.take(rows), band[rows], 4)
            result[rows] = np.minimum(result[rows], found)
    assert (result == _by_all_pairs(marks, 4)).all()


def test_pictures_of_one_hash_that_differ_are_all_kept_however_many():
    count = 1100  # more than are compared in step with the others, and more than one block of rows
    levels = np.arange(count, dtype=np.uint16)
    thumbnails = np.zeros((count, 192), np.uint8)
    thumbnails[:, 0], thumbnails[:, 1], thumbnails[:, 2] = levels % 12 * 23, levels // 12 % 12 * 23, levels // 144 * 23
    thumbnails[-1] = thumbnails[7] + 5
    marks = Marks(np.arange(count), np.zeros(count, np.int32), np.zeros(count, np.uint64), thumbnails)
    earliest = earliest_repeats(marks, 0)
    assert np.flatnonzero(earliest < NONE).tolist() == [count - 1]
    assert earliest[-1] == 7


def test_the_cap_counts_what_is_left_of_each_caption_and_what_earlier_shards_have_of_the_first():
    captions = np.array([3, 3, 3, 3, 5, 5, 5])
    unique = np.array([True, False, True, True, True, True, False])
    assert within_cap(captions, unique, 2, 0).tolist() == [True, False, True, False, True, True, False]
    assert within_cap(captions, unique, 2, 1).tolist() == [True, False, False, False, True, True, False]
    assert within_cap(captions[:0], unique[:0], 2, 9).tolist() == []
