"""Moved copies: found whichever way they are moved, whatever the order of work; other pictures are left alone."""

import numpy as np
import pytest

from c2b_ray.audits.dataset.steps.copies import MOST_COMPARED, NONE, Marks, earliest_moved, moved_rows
from c2b_ray.audits.dataset.steps.fingerprint import MOVES, fingerprint, thumbnail, windows
from c2b_ray.world.render import render
from c2b_ray.world.scenes import sample


def earliest(pictures, labels=None, order=None):
    """Of each picture, the earliest one that it is a moved copy of; entries are compared in this order."""
    hashes = np.frombuffer(b"".join(windows(picture) for picture in pictures), "<u8").reshape(len(pictures), -1)
    rows, own, is_moved = moved_rows(hashes)
    small = np.array([np.frombuffer(thumbnail(picture), np.uint8) for picture in pictures])
    marks = Marks(rows, np.array(labels or [0] * len(pictures), np.int32)[rows], own, small[rows])
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
    marks = Marks(positions, np.zeros(count + 1, np.int32), np.zeros(count + 1, np.uint64), small)
    assert (earliest_moved(marks, is_moved) == NONE).all()
    small[1] = 0
    assert earliest_moved(marks, is_moved)[count] == 1
