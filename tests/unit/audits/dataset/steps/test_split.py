"""The two parts of a dataset share no caption, or else no near-duplicate, whatever the order of rows."""

from __future__ import annotations

import numpy as np
import pytest

from c2b_ray.audits.dataset.steps.plan import near_pairs, split


def rows(count: int, captions: int, seed: int = 0):
    random = np.random.default_rng(seed)
    hashes = random.integers(0, 2**64, count, np.uint64)
    # Every fifth row is a near-duplicate of an earlier one, three bits apart; a chain of three may span captions.
    for row in range(5, count, 5):
        bits = random.choice(64, 3, replace=False)
        hashes[row] = hashes[row - random.integers(1, 5)] ^ np.bitwise_or.reduce(np.uint64(1) << bits.astype(np.uint64))
    return [f"image-{row}" for row in range(count)], random.integers(0, captions, count), hashes


def apart(hashes):
    return np.bitwise_count(hashes[:, None] ^ hashes[None])


@pytest.mark.parametrize("captions", [3, 40])
def test_near_duplicates_and_captions_stay_on_one_side(captions):
    ids, numbers, hashes = rows(300, captions)
    parts = split(ids, numbers, hashes)
    across = parts.test[:, None] & ~parts.test[None]
    assert parts.by == ("caption" if captions == 40 else "image")
    if parts.by == "caption":
        assert not set(numbers[parts.test]) & set(numbers[~parts.test])
    else:
        assert not (across & (apart(hashes) <= 4)).any()
        assert 60 <= parts.test.sum() <= 64  # a fifth, and not a group more than that takes


def test_captions_whose_images_look_alike_by_chance_stay_groups_of_their_own():
    """Of 20,000 scenes of the world in 20 captions, 52 pairs have nearly equal hashes: they joined all captions."""
    numbers = np.repeat(np.arange(20), 50)
    hashes = np.random.default_rng(0).integers(0, 2**64, 1000, np.uint64)
    hashes[50::50] = hashes[49:-1:50]  # the last image of a caption, and the first of the next one
    parts = split([f"image-{row}" for row in range(1000)], numbers, hashes)
    assert (parts.groups, parts.by, parts.test.sum()) == (20, "caption", 200)


def test_the_order_of_rows_changes_nothing():
    ids, numbers, hashes = rows(200, 3)
    order = np.random.default_rng(1).permutation(200)
    before, after = split(ids, numbers, hashes), split([ids[row] for row in order], numbers[order], hashes[order])
    assert np.array_equal(before.test[order], after.test)


def test_linked_pairs_connect_what_comparing_all_pairs_connects():
    _, _, hashes = rows(400, 3, seed=3)
    hashes = hashes % np.uint64(2**20)  # crowded: chains and large bands
    from scipy.sparse.csgraph import connected_components

    pairs = near_pairs(hashes, 4)
    linked = np.zeros((400, 400), bool)
    linked[pairs[:, 0], pairs[:, 1]] = True
    assert (apart(hashes)[linked] <= 4).all()
    count, _ = connected_components(linked, directed=False)
    expected, _ = connected_components(apart(hashes) <= 4, directed=False)
    assert count == expected < 400


def test_what_cannot_be_split_is_refused():
    with pytest.raises(ValueError, match="2 rows are of one caption, and two groups are needed"):
        split(["a", "b"], np.zeros(2, np.int64), np.array([1, 2], np.uint64), by="caption")
    parts = split(["a", "b"], np.arange(2), np.array([0, 2**40 - 1], np.uint64), by="image", share=0.9)
    assert parts.test.sum() == 1
