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
