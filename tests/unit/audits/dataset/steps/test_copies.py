"""Near-duplicates and moved copies, against all pairs compared one by one."""

import numpy as np
import pytest

from c2b_ray.audits.dataset.steps.copies import (
    MOST_COMPARED,
    NONE,
    CopyMarks,
    bucket_of,
    earliest_in_band,
    earliest_moved,
    earliest_repeats,
    moved_rows,
    within_cap,
)
from c2b_ray.audits.dataset.steps.fingerprint import (
    MOVES,
    alike,
    bands,
    differing_bits,
    fingerprint,
    thumbnail,
    windows,
)
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample


def _marks(random, count, spread):
    """Clusters of hashes that differ in few bits, of two labels and three pictures, in no order."""
    hashes = random.integers(0, 2**63, 6).astype(np.uint64)[random.integers(0, 6, count)]
    for _ in range(spread):
        hashes = hashes ^ (np.uint64(1) << random.integers(0, 64, count).astype(np.uint64))
    pictures = random.integers(0, 256, (3, 192), np.uint8)[random.integers(0, 3, count)]
    thumbnails = (pictures // 2 + random.integers(0, 4, (count, 192))).astype(np.uint8)
    thumbnails[::3] = pictures[::3] // 2  # some are equal
    labels = random.integers(0, 2, count).astype(np.int32)
    return CopyMarks(random.permutation(9 * count)[:count], labels, hashes, thumbnails)


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
    marks = CopyMarks(np.arange(count), np.zeros(count, np.int32), np.zeros(count, np.uint64), thumbnails)
    earliest = earliest_repeats(marks, 0)
    assert np.flatnonzero(earliest < NONE).tolist() == [count - 1]
    assert earliest[-1] == 7


def test_the_cap_counts_what_is_left_of_each_caption_and_what_earlier_shards_have_of_the_first():
    captions = np.array([3, 3, 3, 3, 5, 5, 5])
    unique = np.array([True, False, True, True, True, True, False])
    assert within_cap(captions, unique, 2, 0).tolist() == [True, False, True, False, True, True, False]
    assert within_cap(captions, unique, 2, 1).tolist() == [True, False, False, False, True, True, False]
    assert within_cap(captions[:0], unique[:0], 2, 9).tolist() == []


def earliest(pictures, labels=None, order=None):
    """Of each picture, the earliest one that it is a moved copy of; entries are compared in this order."""
    hashes = np.frombuffer(b"".join(windows(picture) for picture in pictures), "<u8").reshape(len(pictures), -1)
    rows, own, is_moved = moved_rows(hashes)
    small = np.array([np.frombuffer(thumbnail(picture), np.uint8) for picture in pictures])
    marks = CopyMarks(rows, np.array(labels or [0] * len(pictures), np.int32)[rows], own, small[rows])
    order = np.arange(len(rows)) if order is None else order.permutation(len(rows))
    found = earliest_moved(marks.take(order), is_moved[order])
    result = np.full(len(pictures), NONE)
    np.minimum.at(result, rows[order], found)
    return [None if one == NONE else int(one) for one in result]


def moved(picture, x, y, by=1):
    wide = np.pad(picture, ((by, by), (by, by), (0, 0)), mode="edge")
    height, width = picture.shape[:2]
    return np.ascontiguousarray(wide[by + y * by : by + y * by + height, by + x * by : by + x * by + width])


@pytest.mark.parametrize("times", [1, 3])
def test_a_copy_that_is_moved_by_a_pixel_is_found_each_way_and_other_scenes_are_not(times):
    scenes = [render(scene) for scene in sample(40, 5, target_class="bus")]
    scenes = [scene.repeat(times, axis=0).repeat(times, axis=1) for scene in scenes]
    copies = [moved(scenes[number], *MOVES[number % len(MOVES)], times) for number in range(40)]
    assert (np.array([fingerprint(one) for one in scenes]) != [fingerprint(one) for one in copies]).mean() > 0.9
    for random in (None, np.random.default_rng(1)):
        found = earliest([*scenes, *copies], order=random)
        assert found[:40] == [None] * 40
        assert np.mean([one == number for number, one in enumerate(found[40:])]) >= 0.95


def test_only_earlier_pictures_of_the_label_count_and_the_earliest_is_named():
    scene = render(sample(1, 7, target_class="bus")[0])
    copies = [scene, moved(scene, 1, 0), moved(scene, -1, 0), scene]
    assert earliest(copies) == [None, 0, 0, 1]  # of equal pictures plain fingerprints tell
    assert earliest(copies, [0, 1, 0, 1]) == [None, None, 0, 1]


def test_blank_and_tiny_pictures_are_moved_copies_of_none():
    blank, tiny = np.full((64, 64, 3), 200, np.uint8), np.zeros((8, 8, 3), np.uint8)
    tiny[2:4, 2:4] = 255
    assert earliest([blank, blank, tiny, moved(tiny, 1, 0)]) == [None] * 4
    assert len(moved_rows(np.zeros((5, 1 + len(MOVES)), np.uint64))[0]) == 5


def test_each_is_compared_with_the_earliest_ones_of_its_hash_alone():
    count = MOST_COMPARED + 5
    positions = np.arange(count + 1)
    small = np.zeros((count + 1, 192), np.uint8)
    small[: count - 1, ::7] = 255  # unlike the last two
    is_moved = positions == count
    marks = CopyMarks(positions, np.zeros(count + 1, np.int32), np.zeros(count + 1, np.uint64), small)
    assert (earliest_moved(marks, is_moved) == NONE).all()
    small[1] = 0
    assert earliest_moved(marks, is_moved)[count] == 1
