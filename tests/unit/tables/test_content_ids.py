"""Ids are of what made a row: the same parts give the same id for good."""

import hashlib
import json

import pytest

from c2b_ray.tables import content_id, content_ids, texts


def test_ids_stay_what_they_were():
    # From the first release: a run's ids must outlive every version that resumes it.
    assert content_id("predict", 'é"\n', ["bus", "boat"], {"b": 1.5, "a": None}) == "1b8e1787f18594ade125"
    assert content_id("ab", "c") != content_id("a", "bc")


def test_many_ids_are_those_of_one_after_the_other():
    settings = (["bus", "boat"], [[0], [1, 2]], "top1")
    assert content_ids("predict", ["a", "ü"], *settings) == [content_id("predict", v, *settings) for v in ("a", "ü")]


@pytest.mark.parametrize("part", [0, 12_345, -7, 2**70, True, False, 1.0, "1", None, [1, True]])
def test_a_part_is_hashed_as_its_json(part):
    data = json.dumps(part).encode()
    assert content_id(part) == hashlib.blake2b(len(data).to_bytes(8, "big") + data, digest_size=10).hexdigest()


@pytest.mark.parametrize("rows", [[], ["a"], ["a", 'with "quotes"', "é", "", "last"]])
def test_texts_some_at_a_time_have_the_id_of_their_list(rows):
    for size in (1, 2, 5):
        some = texts(lambda size=size: iter([[], *(rows[start : start + size] for start in range(0, len(rows), size))]))
        assert content_id(b"before", some, 3) == content_id(b"before", rows, 3)
