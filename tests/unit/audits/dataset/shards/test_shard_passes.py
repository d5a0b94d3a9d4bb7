"""Whole builds with toy models: rows against a plain loop, whatever the shards."""

import os
from collections import Counter, defaultdict
from functools import partial

import numpy as np
import pytest
from toy_dataset import BLACK, CAP, CAPTIONS, DRAWS, NAN, Mover, build, kind, picture, toy_models

from c2b_ray.audits.dataset.steps.fingerprint import alike, differing_bits, fingerprint, thumbnail
from c2b_ray.audits.dataset.steps.plan import seed_of_draw


def by_a_plain_loop(distance):
    """(caption, draw) → None for a row, else the reason of its drop."""
    result, seen, kept = {}, defaultdict(list), defaultdict(int)
    for number, (label, text) in enumerate(CAPTIONS):
        for draw in range(DRAWS):
            seed = seed_of_draw(0, text, draw)
            said = "mug" if kind(seed) % 2 == 0 else "boat"
            reason = "no_image" if kind(seed) == BLACK else "no_answer" if kind(seed) == NAN else None
            reason = reason or ("not_failed" if said == label else None)
            if reason is None:
                mark = np.uint64(fingerprint(picture(seed)))
                small = np.frombuffer(thumbnail(picture(seed)), np.uint8)[None]
                near = [
                    other
                    for other, its in seen[label]
                    if distance is not None and differing_bits(mark, other) <= distance and alike(small, its).all()
                ]
                seen[label].append((mark, small))
                reason = "near_duplicate" if near else "over_cap" if kept[number] == CAP else None
                kept[number] += reason is None
            result[number, draw] = reason
    return result


@pytest.mark.parametrize(("shard_draws", "distance"), [(9, 4), (20, 4), (64, 0), (500, None)])
def test_rows_and_drops_are_those_of_a_plain_loop(tmp_path, shard_draws, distance):
    rows, drops, _ = build(tmp_path / "out", shard_draws, distance=distance)
    expected = by_a_plain_loop(distance)
    assert [(row["caption_number"], row["draw"]) for row in rows] == [
        at for at, reason in expected.items() if not reason
    ]
    assert {(row["caption_number"], row["draw"]): row["reason"] for row in drops} == {
        at: reason for at, reason in expected.items() if reason
    }
    if distance == 4:
        assert {"near_duplicate", "over_cap", "no_image", "no_answer", "not_failed"} <= set(expected.values())


def test_what_does_not_show_its_label_is_left_out_with_what_it_shows(tmp_path):
    rows, drops, _ = build(tmp_path / "out", make=partial(toy_models, verified=True))
    assert rows == []
    unseen = {row["detail"] for row in drops if row["reason"] == "label_not_verified"}
    assert unseen == {"something else", "no answer: dim"}


def test_copies_that_are_moved_by_a_pixel_are_left_out_in_datasets_of_format_3(tmp_path):
    moving = partial(toy_models, generator=Mover)
    rows, drops, _ = build(tmp_path / "new", make=moving)
    # Of the six pictures boats fail on two that the classifier answers (numbers 0 and 2), mugs on three.
    assert Counter(row["label"] for row in rows) == {"boat": 2, "mug": 3}
    kept = {row["image_id"] for row in rows}
    repeated = {row["detail"] for row in drops if row["reason"] == "near_duplicate"}
    assert len(repeated & kept) == 5
    before, _, _ = build(tmp_path / "old", make=moving, format=2)
    assert len(before) > len(rows)
    for format, location in ((3, "new"), (2, "old")):  # drawn and compared anew from what is there
        (tmp_path / location / "shards" / next(iter(os.listdir(tmp_path / location / "shards")))).unlink()
        again, _, _ = build(tmp_path / location, make=moving, format=format)
        assert again == (rows if format == 3 else before)
