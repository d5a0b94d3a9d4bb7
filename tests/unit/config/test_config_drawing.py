import pytest

from c2b_ray.config import read_audit
from c2b_ray.errors import ConfigError


def drawn(**changes):
    fields = {"task": "t", "classes": ["bus"], "classifier": "m", "attributes": {"a": ["x", "y"]}}
    return read_audit({**fields, "images": {"source": "retrieve", "index": "i"}, **changes})


VERIFIED = {"verification": {"model": "v"}}


def test_defaults_of_drawing_follow_from_the_source_and_the_verifier():
    plain, verified = drawn(), drawn(**VERIFIED)
    assert (plain.images.selection, verified.images.selection) == ("nearest", "accepted")
    assert (plain.images_per_caption, plain.captions_per_cell, plain.images_per_cell) == (40, 5, 200)
    assert plain.images.pool == 2000
    assert plain.model_dump() == drawn(images_per_caption=40).model_dump()  # they mean the same
    table = {"images": {"source": "labelled", "table": "t"}}
    assert drawn(**table).images_per_caption is None
    assert drawn(**table).model_dump() != drawn(**table, images_per_caption=100).model_dump()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": {"source": "retrieve", "index": "i", "selection": "accepted"}}, "accepted needs `verification`"),
        ({"images": {"source": "retrieve", "index": "i", "pool": 39}}, "39 images cannot give 40"),
        (
            {"images": {"source": "generate", "generator": "g", "pool": 100}},
            "`pool` does not belong to source: generate",
        ),
        ({"images": {"source": "labelled", "table": "t"}, "confirm": True}, "no further images"),
        ({"confirm": True}, "confirm needs `verification`"),
        (
            {
                "images": {"source": "labelled", "table": "t"},
                "budget": {"images": 10**8},
                "intersections": [["a", "b"]],
            },
            "need `images_per_caption`",
        ),
    ],
)
def test_how_images_are_drawn_is_checked(changes, words):
    with pytest.raises(ConfigError, match=words):
        drawn(**changes)


GENERATED = {"images": {"source": "generate", "generator": "g"}}


def test_generated_images_have_two_stages_unless_the_config_says_how_many_it_wants():
    asked = drawn(**GENERATED)
    assert (asked.screening.least, asked.screening.fresh) == (0.08, 300)
    assert (asked.images_per_caption, asked.images_per_cell, asked.most_per_cell) == (20, 100, 400)
    assert read_audit(asked.model_dump(mode="json")) == asked
    assert drawn(**GENERATED, captions_per_cell=3).images_per_caption == 34
    for changes in (
        {"images_per_caption": 40},
        {"budget": {"images": 1000}},
        {"confirm": True},
        {"intersections": [["a", "b"]], "attributes": {"a": ["x", "y"], "b": ["x", "y"]}},
    ):
        fixed = drawn(**GENERATED, **changes)
        assert fixed.images_per_caption == 40
        assert "screening" not in fixed.model_dump(mode="json")  # as in the ids of runs of earlier releases


def test_retrieved_and_verified_images_have_two_stages_that_are_tested_together():
    asked = drawn(**VERIFIED)
    assert (asked.screening.least, asked.screening.fresh, asked.screening.tested) == (0.08, 400, "all")
    assert (asked.images_per_cell, asked.most_per_cell, asked.images.pool) == (200, 600, 2000)
    assert read_audit(asked.model_dump(mode="json")) == asked
    nearest = {"images": {"source": "retrieve", "index": "i", "selection": "nearest"}}
    both = {"images": {"source": ["retrieve", "generate"], "index": "i", "generator": "g"}}
    for changes in ({"images_per_caption": 40}, {"budget": {"images": 1000}}, {"confirm": True}, nearest, both):
        fixed = drawn(**VERIFIED, **changes)
        assert fixed.images_per_caption == 40
        assert "screening" not in fixed.model_dump(mode="json")  # as in the ids of runs of earlier releases


def test_retrieved_images_are_tested_on_fresh_ones_alone_where_the_config_names_a_screening():
    asked = drawn(**VERIFIED, screening={"fresh": 200})
    assert (asked.images_per_caption, asked.images.pool) == (20, 3000)
    assert asked.model_dump()["screening"] == {"least": 0.08, "fresh": 200}  # as runs of earlier releases recorded it
    assert drawn(**VERIFIED, screening={}, images_per_caption=12).images_per_cell == 60
    assert drawn(**VERIFIED, screening={"tested": "all"}).images_per_cell == 200


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"screening": {}}, "screening needs `verification`"),
        ({"screening": {}, "images": {"source": "labelled", "table": "t"}}, "no fresh images"),
        ({"screening": {}, "budget": {"images": 1000}, **VERIFIED}, "leave out `budget`"),
        ({"screening": {}, "confirm": True, **GENERATED}, "leave out `confirm`"),
    ],
)
def test_two_stages_need_fresh_images_and_decide_alone_who_gets_them(changes, words):
    with pytest.raises(ConfigError, match=words):
        drawn(**changes)
