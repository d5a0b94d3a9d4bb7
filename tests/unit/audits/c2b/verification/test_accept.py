import pyarrow as pa
import pytest

from c2b_ray.audits.c2b.hypotheses.labelled import caption_pairs
from c2b_ray.audits.c2b.verification.calibration import Content, SeenImages, accepts, contents
from c2b_ray.steps.caption import caption
from c2b_ray.steps.cells import pairs
from c2b_ray.steps.propose import propose
from c2b_ray.tables import VERIFICATIONS

ATTRIBUTES = {"weather": ["snow", "rain, or so"], "size": ["small", "large"]}
SNOW = Content("bus", {"weather": "snow"})


def verification(shown="bus", weather="snow", size="large", error=None):
    return {
        "verification_id": "v",
        "image_id": "i",
        "target_class": "bus",
        "revision": "r",
        "class_shown": shown,
        "attributes": ["weather", "size"],
        "values": [weather, size],
        "certainties": [None, None],
        "error": error,
    }


@pytest.mark.parametrize(
    ("changes", "content", "accepted"),
    [
        ({}, SNOW, True),
        ({"weather": "rain, or so"}, SNOW, False),
        ({"weather": None}, SNOW, False),  # the verifier named no value
        ({"shown": "boat"}, SNOW, False),
        ({"shown": None}, SNOW, True),  # it was not asked for the class
        ({"error": "no picture"}, SNOW, False),
        ({}, Content("bus", {"weather": "snow", "size": "small"}), False),
        ({"size": "small"}, Content("bus", {"weather": "snow", "size": "small"}), True),
        ({}, Content("bus", {"mood": "sad"}), True),  # never asked about
    ],
)
def test_an_image_is_accepted_for_the_class_and_all_values_of_its_caption(changes, content, accepted):
    assert accepts(verification(**changes), content) is accepted


def test_captions_of_pairs_say_two_values():
    proposals, _ = propose("t", ["bus"], None, ATTRIBUTES, 0)
    captions, _ = caption("t", proposals, None, 1, 0)
    of_pairs, _ = caption_pairs(pairs(proposals, [("weather", "size")]), captions, None, 0)
    found = list(contents(proposals, pa.concat_tables([captions, of_pairs])).values())
    assert found[0] == SNOW
    assert [dict(content.values) for content in found[4:]] == [
        {"weather": weather, "size": size} for weather in ATTRIBUTES["weather"] for size in ATTRIBUTES["size"]
    ]


def test_an_image_was_looked_at_once_it_is_there_and_verified_for_the_class():
    images = pa.table({"image_id": ["i", "j"], "fingerprint": pa.array([b"x", None], pa.binary())})
    about = {"c": SNOW, "d": Content("boat", {"weather": "snow"})}
    verified = SeenImages(images.select, pa.Table.from_pylist([verification()], VERIFICATIONS), about)
    assert [verified.looked_at("i", "c"), verified.looked_at("i", "d"), verified.looked_at("j", "c")] == [1, 0, 0]
    assert verified.accepts("i", "c")
    unverified = SeenImages(images.select, None, about)
    assert unverified.looked_at("j", "d")
    assert unverified.accepts("j", "d")
    assert not unverified.looked_at("k", "d")
    assert (unverified.fingerprint("i"), unverified.fingerprint("j"), unverified.fingerprint("k")) == (b"x", None, None)
